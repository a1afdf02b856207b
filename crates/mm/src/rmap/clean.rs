//! Making entries clean before content is written to its store, or is copied.

use super::{Rmap, shown, walk_folio};
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Machine, Scope, Work};
use crate::memory::Memory;
use crate::table::Bits;
use crate::tlb::Range;
use crate::units::*;

impl Rmap {
    /// Take the right to write away from every entry that maps the folio, and clear their dirty bits, before its
    /// content is written to its store: a later store must fault and so be seen. Returns whether any was dirty.
    ///
    /// Entries do not say it all: who has emptied one, with its mark noted and its mapping counted off, may have yet to
    /// flush, as calls flush once at their end. Such a call is under way where the space says so
    /// ([`Tlb::is_tightening`](crate::tlb::Tlb::is_tightening)), and its range is registered until it has flushed: so
    /// the flush is made here. It is asked for after the walk: what is emptied later has lost its right to write
    /// already. (Linux flushes such entries before it lets go of their table's lock, `tlb_delay_rmap`: two flushes for
    /// each call instead of one.)
    pub fn mkclean<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) -> bool {
        let _scope = memory.scope(Scope::FolioMkclean);
        let frame = &memory.frames[pfn];
        assert!(frame.has(FrameFlags::LOCKED), "folio {pfn} must be locked to be cleaned");
        let Owner::File(_) = frame.owner() else { return false };
        let Some(list) = self.spans(frame.owner()) else { return false };
        let spans = list.lock();
        let mut dirty = false;
        if frame.mapcount() > 0 {
            walk_folio(memory, pfn, &spans, |tables, _, run| {
                if run.entry.bits().intersects(Bits::WRITE | Bits::DIRTY) {
                    let tightened = tables.forbid_writes_and_clean(run);
                    memory.charge(Work::EntryClear, run.count as u64);
                    dirty |= tightened.entry().has(Bits::DIRTY);
                    tables.flush_tightened(tightened);
                }
            });
        }
        for span in spans.holding(frame.page_index(), frame.pages() as u64) {
            if memory.tlb.is_tightening(span.space) {
                let (first, end) = shown(frame, span);
                memory.tlb.flush(memory, span.space, Range::pages(first, end.0 - first.0));
            }
        }
        dirty
    }

    /// Clear the dirty bits of all entries of an anonymous folio, so that they tell whether it is written from now on.
    /// `false`: somebody has taken entries of the space away and has yet to flush, so that a CPU may write to the folio
    /// without leaving a mark.
    pub fn clean_anon<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) -> bool {
        let _scope = memory.scope(Scope::FolioMkclean);
        let frame = &memory.frames[pfn];
        assert!(
            frame.has(FrameFlags::LOCKED) && frame.is_anon(),
            "folio {pfn} must be locked and anonymous to be cleaned"
        );
        let Some(list) = self.spans(frame.owner()) else { return false };
        let spans = list.lock();
        walk_folio(memory, pfn, &spans, |tables, _, run| {
            if run.entry.has(Bits::DIRTY) {
                let tightened = tables.clean(run);
                memory.charge(Work::EntryClear, run.count as u64);
                tables.flush_tightened(tightened);
            }
        });
        spans
            .holding(frame.page_index(), frame.pages() as u64)
            .all(|span| !memory.tlb.is_tightening(span.space))
    }
}

//! Making entries clean before content is written to its store, or is copied.

use super::{Rmap, shown, walk_folio};
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Machine, Scope, Work};
use crate::memory::Memory;
use crate::table::{Bits, Cleaned, TakenRun};
use crate::tlb::Range;
use crate::units::*;

impl Rmap {
    /// Write-protect every entry that maps the folio, and clear the dirty bits, before the folio's content is written
    /// to its device: a later store must fault, so that it is noticed. Returns whether any entry was dirty.
    ///
    /// The entries are not enough: a call that has emptied an entry, noted its dirty bit and reduced the mapcount may
    /// not have flushed yet, because calls flush once at their end.
    /// [`Tlb::is_tightening`](crate::tlb::Tlb::is_tightening) tells whether such a call is under way in a space, and
    /// the call's range stays registered until it has flushed. So the flush is made here. The question is asked after
    /// the walk: an entry that is emptied later has been write-protected already. (Linux flushes such entries before
    /// it releases the table's lock, `tlb_delay_rmap`: two flushes for each call instead of one.)
    pub(crate) fn mkclean<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) -> bool {
        let _scope = memory.scope(Scope::FolioMkclean);
        let frame = &memory.frames[pfn];
        assert!(frame.has(FrameFlags::LOCKED), "folio {pfn} must be locked to be cleaned");
        let Owner::File(_) = frame.owner() else { return false };
        let Some(list) = self.spans(frame.owner()) else { return false };
        let spans = list.share();
        let mut dirty = false;
        if frame.mapcount() > 0 {
            walk_folio(memory, pfn, &spans, |tables, _, run| {
                // Linux flushes each entry of a folio by itself.
                let mut rest = Some(*run);
                while let Some(run) = rest {
                    let (one, behind) = run.split(1);
                    rest = behind;
                    if !tables.read(one.slot).bits().intersects(Bits::WRITE | Bits::DIRTY) {
                        continue;
                    }
                    let tightened = tables.forbid_writes_and_clean(&one);
                    memory.charge(Work::EntryClear, 1);
                    dirty |= tightened.entry().has(Bits::DIRTY);
                    tables.flush_tightened(tightened);
                }
            });
        }
        for span in spans.holding(frame.page_index(), frame.pages() as u64) {
            if memory.tlb.is_tightening(span.space) {
                let (first, end) = shown(frame, span);
                memory.tlb.flush(memory.host(), span.space, Range::pages(first, end.0 - first.0));
            }
        }
        dirty
    }

    /// Clear the dirty bits of all entries of an anonymous folio, so that they tell whether it is written from now on.
    /// `None`: entries of the space were taken away and not flushed yet, so a CPU may write to the folio without
    /// setting a dirty bit.
    #[expect(
        clippy::disallowed_methods,
        reason = "its entries are clean, and no change of them waits for its flush"
    )]
    pub(crate) fn clean_anon<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) -> Option<Cleaned> {
        let _scope = memory.scope(Scope::FolioMkclean);
        let frame = &memory.frames[pfn];
        assert!(
            frame.has(FrameFlags::LOCKED) && frame.is_anon(),
            "folio {pfn} must be locked and anonymous to be cleaned"
        );
        let list = self.spans(frame.owner())?;
        let spans = list.share();
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
            .then(|| Cleaned::of(pfn))
    }
}

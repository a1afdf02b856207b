//! Looking at the entries that map a folio: was it used, may it be written.

use super::look::look_around;
use super::{Rmap, SpanFlags, shown, walk_spans};
use crate::frame::{FrameFlags, Owner};
use crate::lru::mglru::LookAround;
use crate::machine::{Machine, Scope, Work};
use crate::memory::Memory;
use crate::table::Bits;
use crate::tlb::Range;
use crate::units::*;

/// What the entries of a folio say about its use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Referenced {
    /// Ranges through which it was used since the last look; -1: could not be found out now.
    pub vmas: i32,
    /// One of them was program text.
    pub exec: bool,
    /// A range has it locked in memory.
    pub locked: bool,
}

impl Rmap {
    /// Count the ranges that have used the folio, clearing the young bits of all its entries. `group`: only ranges of
    /// this group or below it count (and are cleared).
    ///
    /// No flush: a CPU that still holds the translation will not set the bit again for a while, which is an error on
    /// the cheap side (x86 does the same).
    ///
    /// `look`: also look around used entries, for what else of the folio's vector was used.
    pub fn referenced<M: Machine>(
        &self,
        memory: &Memory<M>,
        pfn: Pfn,
        group: Option<GroupId>,
        mut look: Option<&mut LookAround>,
    ) -> Referenced {
        let _scope = memory.scope(Scope::FolioReferenced);
        let frame = &memory.frames[pfn];
        let mut found = Referenced::default();
        if frame.mapcount() == 0 {
            return found;
        }
        let Some(list) = self.spans(frame.owner()) else { return found };
        let Some(spans) = list.try_lock() else { return Referenced { vmas: -1, ..found } };
        let mut left = frame.mapcount();
        let mut last = None;
        walk_spans(memory, pfn, &spans, |tables, span, run| {
            left = left.saturating_sub(run.count);
            if span.flags.contains(SpanFlags::LOCKED) {
                found.locked = true;
                return false;
            }
            let foreign = group.is_some_and(|group| !memory.lru.groups.is_below(span.group, group));
            if !foreign && run.entry.has(Bits::YOUNG) && !span.flags.contains(SpanFlags::NO_RECENCY) {
                tables.clear_young(run);
                memory.charge(Work::EntryClear, run.count as u64);
                if let Some(look) = look.as_deref_mut().filter(|_| !run.is_large()) {
                    look_around(memory, tables, span, run.page, frame, look);
                }
                if last != Some(span.vma) {
                    last = Some(span.vma);
                    found.vmas += 1;
                    found.exec |= span.flags.contains(SpanFlags::EXEC);
                }
            }
            left > 0
        });
        found
    }

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
        assert!(frame.has(FrameFlags::LOCKED), "{pfn} is cleaned by who has not locked it");
        let Owner::File(_) = frame.owner() else { return false };
        let Some(list) = self.spans(frame.owner()) else { return false };
        let spans = list.lock();
        let mut dirty = false;
        if frame.mapcount() > 0 {
            walk_spans(memory, pfn, &spans, |tables, _, run| {
                if run.entry.bits().intersects(Bits::WRITE | Bits::DIRTY) {
                    let tightened = tables.forbid_writes_and_clean(run);
                    memory.charge(Work::EntryClear, run.count as u64);
                    dirty |= tightened.entry().has(Bits::DIRTY);
                    tables.flush_tightened(tightened);
                }
                true
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
            "{pfn} is cleaned by who has not locked it"
        );
        let Some(list) = self.spans(frame.owner()) else { return false };
        let spans = list.lock();
        walk_spans(memory, pfn, &spans, |tables, _, run| {
            if run.entry.has(Bits::DIRTY) {
                let tightened = tables.clean(run);
                memory.charge(Work::EntryClear, run.count as u64);
                tables.flush_tightened(tightened);
            }
            true
        });
        spans
            .holding(frame.page_index(), frame.pages() as u64)
            .all(|span| !memory.tlb.is_tightening(span.space))
    }
}

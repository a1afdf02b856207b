//! Taking every mapping of a folio away, for reclaim.

use super::{Rmap, Span, SpanFlags};
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Machine, Work};
use crate::memory::Memory;
use crate::table::{Absent, Bits, Resident};
use crate::tlb::{Batch, Cleared};
use crate::units::*;

/// How hard to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnmapMode {
    /// Unmap even where the folio is locked in memory.
    pub ignore_mlock: bool,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unmapped {
    /// No entry maps the folio any more.
    pub all: bool,
    /// An entry was dirty; for a file folio the caller must mark the folio dirty in its file.
    pub dirty: bool,
}

impl Rmap {
    /// Unmap a folio that the caller has locked and holds a reference of.
    ///
    /// Anonymous folios with [`FrameFlags::SWAPBACKED`] must be in the swap cache: their entries become swap entries.
    /// Those without (MADV_FREE) are dropped if clean, and become ordinary again if written since. Entries of file
    /// folios just go. Each cleared entry is noted in `batch`, which the caller settles before it frees the folio.
    pub fn try_to_unmap<M: Machine>(
        &self,
        memory: &Memory<M>,
        pfn: Pfn,
        mode: UnmapMode,
        batch: &mut Batch,
    ) -> Unmapped {
        let frame = &memory.frames[pfn];
        debug_assert!(frame.has(FrameFlags::LOCKED));
        let mut dirty = false;
        if frame.mapcount() > 0 {
            self.walk(memory, pfn, &mut |tables, span, leaf| {
                if span.flags.contains(SpanFlags::LOCKED) && !mode.ignore_mlock {
                    return false;
                }
                let (replacement, kind) = match self.replacement(memory, pfn) {
                    Some(choice) => choice,
                    None => return false,
                };
                let taken = tables.clear(leaf.slot, replacement);
                let old = taken.entry();
                memory.charge(Work::EntryClear, 1);
                let dropped = replacement == Absent::None && frame.is_anon();
                if old.has(Bits::DIRTY) && dropped {
                    // Written after MADV_FREE, perhaps between our look and the exchange: it must be kept.
                    tables.restore(taken);
                    frame.set(FrameFlags::SWAPBACKED);
                    return false;
                }
                if old.has(Bits::DIRTY) {
                    dirty = true;
                    if frame.is_anon() {
                        frame.set(FrameFlags::DIRTY);
                    }
                }
                tables.counts().add(kind, -1);
                if replacement != Absent::None {
                    tables.counts().add(Resident::Swap, 1);
                }
                let cleared = Cleared { dropped, ..leaf.cleared(span.space, old, pfn) };
                if let Some(generation) = batch.note(memory.ground(), &memory.tlb, &cleared) {
                    tables.owe(leaf.slot, generation);
                }
                self.remove(memory.ground(), pfn);
                // The caller's own reference keeps the folio.
                let last = frame.put(1);
                debug_assert!(!last);
                true
            });
        }
        Unmapped { all: frame.mapcount() == 0, dirty }
    }

    /// The entry that takes the place of one that maps `pfn`, and what kind of page the space loses. `None`: there is
    /// nowhere to swap it to.
    fn replacement<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) -> Option<(Absent, Resident)> {
        let frame = &memory.frames[pfn];
        match frame.owner() {
            Owner::Anon(_) if !frame.has(FrameFlags::SWAPBACKED) => Some((Absent::None, Resident::Anon)),
            Owner::Anon(_) => {
                if !frame.has(FrameFlags::SWAPCACHE) {
                    return None;
                }
                let slot = frame.swap_slot();
                memory.swap.dup(slot);
                // From here on the entry says whether others may have one too: fork, which sees only entries, changes it.
                let before = frame.clear(FrameFlags::EXCLUSIVE);
                let exclusive = before.contains(FrameFlags::EXCLUSIVE);
                Some((Absent::Swap { slot, exclusive }, Resident::Anon))
            }
            _ if frame.has(FrameFlags::SWAPBACKED) => Some((Absent::None, Resident::Shmem)),
            _ => Some((Absent::None, Resident::File)),
        }
    }

    /// Call `visit` for the part of every mapped range that shows indices `[first, end)` of a file. The ranges stay
    /// mapped meanwhile.
    pub fn for_shown(
        &self,
        file: FileId,
        first: PageIndex,
        end: PageIndex,
        visit: &mut dyn FnMut(&Span, Vpn, Vpn),
    ) {
        let Some(list) = self.spans(Owner::File(file)) else { return };
        for span in list.lock().holding(first, end.0 - first.0) {
            let from = first.0.max(span.index.0) - span.index.0;
            let to = (end.0 - span.index.0).min(span.pages);
            visit(span, Vpn(span.start.0 + from), Vpn(span.start.0 + to));
        }
    }
}

//! Taking every mapping of a folio away, for reclaim.

use super::{Rmap, Span, SpanFlags};
use crate::frame::{FolioPages, Frame, FrameFlags, Owner};
use crate::machine::{Machine, Scope, Work};
use crate::memory::Memory;
use crate::table::{Absent, Bits, Entry, EntryRun, LockedTables, Resident};
use crate::tlb::UnmapBatch;
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
        batch: &mut UnmapBatch,
    ) -> Unmapped {
        let _scope = memory.scope(Scope::TryToUnmapOne);
        let frame = &memory.frames[pfn];
        assert!(frame.has(FrameFlags::LOCKED), "{pfn} is unmapped by who has not locked it");
        let mut dirty = false;
        if frame.mapcount() > 0 {
            self.walk(memory, pfn, |tables, span, run| {
                let locked = span.flags.contains(SpanFlags::LOCKED) && !mode.ignore_mlock;
                if locked {
                    return false;
                }
                if run.is_large() && frame.is_anon() {
                    return self.unmap_split(memory, tables, run, batch, &mut dirty);
                }
                let taken = self.unmap_run(memory, tables, run, batch);
                dirty |= taken.is_some_and(|old| old.has(Bits::DIRTY));
                // Where it stops, what was taken away before is counted off already.
                taken.is_some()
            });
        }
        Unmapped { all: frame.mapcount() == 0, dirty }
    }

    /// Take a 2 MiB entry of anonymous memory away: its pages have an entry of swap each, so it is split first.
    #[cold]
    fn unmap_split<M: Machine>(
        &self,
        memory: &Memory<M>,
        tables: &mut LockedTables<'_, M>,
        large: &EntryRun,
        batch: &mut UnmapBatch,
        dirty: &mut bool,
    ) -> bool {
        tables.split_large(large);
        self.split_large(memory, large.entry.pfn());
        let mut page = large.page;
        while page < large.end() {
            let run = tables.find_run(page, large.end()).expect("it has just been split");
            let Some(old) = self.unmap_run(memory, tables, &run, batch) else { return false };
            *dirty |= old.has(Bits::DIRTY);
            page = run.end();
        }
        true
    }

    /// Take one run of a folio's entries away; returns what it was. `None`: it has to stay, and is as it was.
    fn unmap_run<M: Machine>(
        &self,
        memory: &Memory<M>,
        tables: &mut LockedTables<'_, M>,
        run: &EntryRun,
        batch: &mut UnmapBatch,
    ) -> Option<Entry> {
        let pages = run.mapped(&memory.frames);
        let frame = &memory.frames[pages.head];
        let fate = UnmappedTo::of(frame)?;
        let slot = (fate == UnmappedTo::Swapped).then(|| slots_of(memory, pages));
        let mut emptied = tables.empty_run(run, |i| match slot {
            Some(first) => leave_in_swap(memory, pages.first.add(i), SwapSlot(first.0 + i)),
            None => Absent::None,
        });
        let old = emptied.entry();
        memory.charge(Work::EntryClear, run.count as u64);
        if old.has(Bits::DIRTY) {
            match fate {
                UnmappedTo::Dropped => {
                    // Written after MADV_FREE, perhaps between our look and the exchange: it must be kept.
                    tables.restore(run, emptied);
                    frame.set(FrameFlags::SWAPBACKED);
                    return None;
                }
                UnmappedTo::Swapped => {
                    frame.set(FrameFlags::DIRTY);
                }
                UnmappedTo::InFile(_) => {}
            }
        }
        let count = i64::from(pages.count);
        tables.counts().add(fate.was(), -count);
        if fate == UnmappedTo::Swapped {
            tables.counts().add(Resident::Swap, count);
        }
        if fate == UnmappedTo::Dropped {
            emptied = emptied.dropping_content();
        }
        let refs = batch.take(memory, &memory.tlb, emptied);
        let partly = if run.is_large() {
            self.remove_large(memory, pages.head)
        } else {
            self.remove_range(memory, pages)
        };
        if partly {
            memory.lru.defer_split(memory, pages.head);
        }
        // The caller's own reference keeps the folio.
        refs.put_held(&memory.frames);
        Some(old)
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

/// Where the content of a folio is once it is not mapped any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UnmappedTo {
    /// In its slots, which take the entries' place.
    Swapped,
    /// Nowhere: MADV_FREE gave it up.
    Dropped,
    /// In its file, of whose kind it counts as.
    InFile(Resident),
}

impl UnmappedTo {
    /// `None`: there is nowhere to swap it to.
    fn of(frame: &Frame) -> Option<UnmappedTo> {
        let swapbacked = frame.has(FrameFlags::SWAPBACKED);
        match (frame.owner(), swapbacked) {
            (Owner::Anon(_), false) => Some(UnmappedTo::Dropped),
            (Owner::Anon(_), true) => frame.has(FrameFlags::SWAPCACHE).then_some(UnmappedTo::Swapped),
            (_, true) => Some(UnmappedTo::InFile(Resident::Shmem)),
            (_, false) => Some(UnmappedTo::InFile(Resident::File)),
        }
    }

    /// As what the space loses its pages.
    fn was(self) -> Resident {
        match self {
            UnmappedTo::Swapped | UnmappedTo::Dropped => Resident::Anon,
            UnmappedTo::InFile(kind) => kind,
        }
    }
}

/// The first slot of these pages, whose slots follow each other; entries that are about to be set refer to them.
fn slots_of<M: Machine>(memory: &Memory<M>, pages: FolioPages) -> SwapSlot {
    let first = SwapSlot(memory.frames[pages.head].swap_slot().0 + pages.offset());
    memory.swap.dup_run(first, pages.count);
    first
}

/// The swap entry that takes the place of the one that maps a page.
fn leave_in_swap<M: Machine>(memory: &Memory<M>, page: Pfn, slot: SwapSlot) -> Absent {
    // From here on the entry says whether others may have one too: fork, which sees only entries, changes it.
    let before = memory.frames[page].clear(FrameFlags::EXCLUSIVE);
    Absent::Swap { slot, exclusive: before.contains(FrameFlags::EXCLUSIVE) }
}

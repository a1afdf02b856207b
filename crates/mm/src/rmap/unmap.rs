//! Unmapping folios, for reclaim.

use super::walk::{MappedPage, Mapping, Visit, walk};
use super::{Rmap, Span, SpanFlags, Tally};
use crate::frame::{FolioPages, FolioRun, Frame, FrameFlags, Owner};
use crate::machine::{Machine, Scope, Work};
use crate::memory::Memory;
use crate::table::{Absent, Bits, Entry, EntryRun, LockedTables, Resident, TableWindow, TakenRun};
use crate::tlb::{EmptiedPages, HeldRefs, UnmapBatch, put_held_pages};
use crate::units::*;
use base::demand;

/// What may be unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnmapMode {
    /// Unmap the folio even where a range locks it in memory.
    pub ignore_mlock: bool,
}

impl Rmap {
    /// Unmap the wanted folios of a run. The caller holds their locks and a reference of each. Returns the folios of a
    /// file that had a dirty entry: the caller must mark them dirty in the file. A folio that had to stay is still
    /// mapped afterwards.
    ///
    /// Anonymous folios with [`FrameFlags::SWAPBACKED`] must be in the swap cache: their entries become swap entries.
    /// Without it (MADV_FREE) they are dropped if they are clean; if they were written since, they are ordinary again.
    /// Entries of folios of files are cleared. Each cleared entry is noted in `batch`, which the caller settles before
    /// it frees the folio.
    #[inline]
    pub fn try_to_unmap<'a, M: Machine, const N: usize>(
        &self,
        memory: &Memory<M>,
        run: FolioRun<'a, N>,
        mode: UnmapMode,
        batch: &mut UnmapBatch,
    ) -> FolioRun<'a, N> {
        let mapped = run.filter(|_, pfn| {
            let frame = &memory.frames[pfn];
            demand!(frame.has(FrameFlags::LOCKED), [pfn]; "folio {pfn} must be locked to be unmapped");
            frame.mapcount() > 0
        });
        if mapped.is_empty() { mapped } else { self.unmap_mapped(memory, mapped, mode, batch) }
    }

    /// [`Rmap::try_to_unmap`] of folios that are mapped.
    fn unmap_mapped<'a, M: Machine, const N: usize>(
        &self,
        memory: &Memory<M>,
        run: FolioRun<'a, N>,
        mode: UnmapMode,
        batch: &mut UnmapBatch,
    ) -> FolioRun<'a, N> {
        if !batch.joins() && run.wanted().count_ones() > 1 {
            // These policies flush each page by itself, or count pages until a list is full.
            return run.filter(|at, _| !self.unmap_mapped(memory, run.with(1 << at), mode, batch).is_empty());
        }
        let _scope = memory.scope(Scope::TryToUnmapOne);
        let frame = &memory.frames[run.ends().0];
        let Some(list) = self.spans(frame.owner()) else { return run.with(0) };
        let together = match frame.owner() {
            Owner::File(file) if batch.joins() => Some(EmptiedPages::new(file)),
            _ => None,
        };
        let kind = Resident::of(frame);
        let mut unmapping = Unmapping { rmap: self, memory, mode, batch, kind, together, dirty: 0 };
        walk(memory, run, &list.share(), &mut unmapping);
        run.with(unmapping.dirty)
    }

    /// Call `visit` for the part of every mapped range that shows indices `[first, end)` of a file. The ranges stay
    /// registered during the call.
    pub(crate) fn for_shown(
        &self,
        file: FileId,
        first: PageIndex,
        end: PageIndex,
        visit: &mut dyn FnMut(&Span, Vpn, Vpn),
    ) {
        let Some(list) = self.spans(Owner::File(file)) else { return };
        for span in list.share().holding(first, end.0 - first.0) {
            let from = first.0.max(span.index.0) - span.index.0;
            let to = (end.0 - span.index.0).min(span.pages);
            visit(span, Vpn(span.start.0 + from), Vpn(span.start.0 + to));
        }
    }
}

/// The visitor that unmaps a run.
struct Unmapping<'a, M> {
    rmap: &'a Rmap,
    memory: &'a Memory<M>,
    mode: UnmapMode,
    batch: &'a mut UnmapBatch,
    /// How the folios count in the spaces that map them.
    kind: Resident,
    /// Pages of a file whose entries in this window were cleared, but not yet given to the batch nor uncounted. `None`:
    /// each run of entries is given to the batch by itself.
    together: Option<EmptiedPages>,
    /// Bit i: folio i is of a file, and an entry of it was dirty.
    dirty: u32,
}

impl<M: Machine> Visit<M> for Unmapping<'_, M> {
    fn entries(&mut self, tables: &mut LockedTables<'_, M>, mapping: &Mapping<'_>) -> bool {
        let &Mapping { span, at, ref entries } = mapping;
        if self.spares(span) {
            return true;
        }
        if entries.is_large() && self.kind == Resident::Anon {
            return !self.unmap_split(tables, entries);
        }
        let taken = self.unmap_run(tables, entries);
        let dirty = taken.is_some_and(|old| old.has(Bits::DIRTY)) && self.kind != Resident::Anon;
        self.dirty |= u32::from(dirty) << at;
        // If it stops here, the entries that were cleared before are uncounted already.
        taken.is_none()
    }

    #[inline]
    fn page(&mut self, window: &mut TableWindow<'_, '_, M>, place: usize, page: MappedPage<'_>) -> bool {
        let MappedPage { span, at, entry } = page;
        let Some(accepts) = self.together.as_ref().map(|together| together.accept(entry.has(Bits::WRITE)))
        else {
            let run = page.as_run(window, place);
            return self.entries(window.tables(), &run);
        };
        if self.spares(span) {
            return true;
        }
        if !accepts {
            self.note(window);
        }
        if let Some(together) = &mut self.together {
            let old = window.take(place, entry.pfn(), together);
            self.memory.charge(Work::EntryClear, 1);
            self.dirty |= u32::from(old.has(Bits::DIRTY)) << at;
        }
        false
    }

    #[inline]
    fn leave(&mut self, window: &mut TableWindow<'_, '_, M>) {
        if self.together.as_ref().is_some_and(|together| !together.is_empty()) {
            self.note(window);
        }
    }
}

impl<M: Machine> Unmapping<'_, M> {
    /// Whether the range locks the folio in memory and this is respected.
    #[inline]
    fn spares(&self, span: &Span) -> bool {
        span.flags.contains(SpanFlags::LOCKED) && !self.mode.ignore_mlock
    }

    /// Record the debt for the entries that were collected, then uncount them.
    fn note(&mut self, window: &mut TableWindow<'_, '_, M>) {
        let (memory, rmap) = (self.memory, self.rmap);
        let Some(taken) = &mut self.together else { return };
        self.batch.take_pages(memory.host(), &memory.tlb, taken);
        window.tables().counts().add(self.kind, -(taken.len() as i64));
        let mut tally = Tally::new(memory);
        // The caller's references keep the folios.
        put_held_pages(taken, &memory.frames, |page, frame| {
            let pages = FolioPages { head: page, first: page, count: 1 };
            rmap.remove_tallied(memory, (frame, false), pages, &mut tally);
        });
        tally.settle(memory);
    }

    /// Unmap a 2 MiB entry of anonymous memory: each page gets a swap entry, so the entry is split first. Returns
    /// `false` if it has to stay.
    #[cold]
    fn unmap_split(&mut self, tables: &mut LockedTables<'_, M>, large: &EntryRun) -> bool {
        let split = tables.split_large(large);
        self.rmap.split_large(self.memory, split);
        let mut page = large.page;
        while page < large.end() {
            let entries = tables.find_run(page, large.end()).expect("the table of a split entry");
            if self.unmap_run(tables, &entries).is_none() {
                return false;
            }
            page = entries.end();
        }
        true
    }

    /// Clear one run of a folio's entries; returns its old value. `None`: the run has to stay and is unchanged.
    fn unmap_run(&mut self, tables: &mut LockedTables<'_, M>, entries: &EntryRun) -> Option<Entry> {
        let (memory, pages) = (self.memory, entries.mapped(&self.memory.frames));
        let frame = &memory.frames[pages.head];
        let to = UnmappedTo::of(frame)?;
        let slot = (to == UnmappedTo::Swapped).then(|| slots_of(memory, pages));
        let mut emptied = tables.empty_run(entries, |i| match slot {
            Some(first) => leave_in_swap(memory, pages.first.add(i), SwapSlot(first.0 + i)),
            None => Absent::None,
        });
        let old = emptied.entry();
        memory.charge(Work::EntryClear, u64::from(entries.count));
        if old.has(Bits::DIRTY) {
            match to {
                UnmappedTo::Dropped => {
                    // Written after MADV_FREE, perhaps just before the entries were exchanged: it must be kept.
                    tables.restore(entries, emptied);
                    frame.set(FrameFlags::SWAPBACKED);
                    return None;
                }
                UnmappedTo::Swapped => {
                    frame.set(FrameFlags::DIRTY);
                }
                UnmappedTo::InFile => {}
            }
        }
        let count = i64::from(pages.count);
        tables.counts().add(self.kind, -count);
        if to == UnmappedTo::Swapped {
            tables.counts().add(Resident::Swap, count);
        }
        if to == UnmappedTo::Dropped {
            emptied = emptied.dropping_content();
        }
        let refs = tables.leave_to(self.batch, emptied);
        let partly = if entries.is_large() {
            self.rmap.remove_large(memory, pages.head)
        } else {
            self.rmap.remove_range(memory, pages)
        };
        if partly {
            memory.lru.defer_split(memory, pages.head);
        }
        // The caller's reference keeps the folio.
        refs.put_held(&memory.frames);
        Some(old)
    }
}

/// Where the content of a folio is once it is unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UnmappedTo {
    /// In its swap slots, which the entries name.
    Swapped,
    /// Nowhere: MADV_FREE allows to drop it.
    Dropped,
    InFile,
}

impl UnmappedTo {
    /// `None`: it has no swap slot.
    fn of(frame: &Frame) -> Option<UnmappedTo> {
        match (frame.owner(), frame.has(FrameFlags::SWAPBACKED)) {
            (Owner::Anon(_), false) => Some(UnmappedTo::Dropped),
            (Owner::Anon(_), true) => frame.has(FrameFlags::SWAPCACHE).then_some(UnmappedTo::Swapped),
            _ => Some(UnmappedTo::InFile),
        }
    }
}

/// The first of the consecutive swap slots of these pages, with a reference for each entry that is about to be set.
fn slots_of<M: Machine>(memory: &Memory<M>, pages: FolioPages) -> SwapSlot {
    let first = SwapSlot(memory.frames[pages.head].swap_slot().0 + pages.offset());
    memory.swap.dup_run(first, pages.count);
    first
}

/// The swap entry that takes the place of the one that maps a page.
fn leave_in_swap<M: Machine>(memory: &Memory<M>, page: Pfn, slot: SwapSlot) -> Absent {
    // From here on the entry holds the flag: fork, which sees only entries, may clear it.
    let before = memory.frames[page].clear(FrameFlags::EXCLUSIVE);
    Absent::Swap { slot, exclusive: before.contains(FrameFlags::EXCLUSIVE) }
}

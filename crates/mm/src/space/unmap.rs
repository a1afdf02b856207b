//! Taking mappings away: munmap, and the clearing of entries that everything else that does so shares.

use super::split::split_entry_at;
use super::tree::Overlap;
use super::vma::{Vma, VmaView};
use super::{Space, Spaces, Stop};
use crate::api::Error;
use crate::cache::{drop_swap_entry, drop_unmapped};
use crate::frame::Owner;
use crate::machine::{Machine, Scope, WaitKey, Work};
use crate::mm_core::MmCore;
use crate::rmap::Tally;
use crate::stat::Stat;
use crate::table::{Absent, Bits, Entry, EntryRun, LockedTables, Migrating, Resident, USER_END};
use crate::tlb::{Ascending, Emptied, Gather};
use crate::units::*;
use core::cell::Cell;
use smallvec::SmallVec;

impl Spaces {
    /// munmap.
    pub fn munmap<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        start: Vpn,
        pages: u64,
    ) -> Result<(), Stop> {
        if pages == 0 || pages > USER_END.0 || start.0 > USER_END.0 - pages {
            return Err(Error::Invalid.into());
        }
        let _held = self.at(id).mapping.write(&core.machine, WaitKey::Space(id));
        self.unmap_range(core, id, start, Vpn(start.0 + pages));
        Ok(())
    }

    /// Unmap `[start, end)`. The mapping semaphore is held alone. When this returns, no CPU can reach the pages.
    pub(super) fn unmap_range<M: Machine>(&self, core: &MmCore<M>, id: SpaceId, start: Vpn, end: Vpn) {
        if start >= end {
            // Nothing to do, and nothing to cut in two either.
            return;
        }
        let space = self.at(id);
        let overlap = space.vmas.lock().overlap(start, end);
        match overlap {
            Overlap::Nothing => {}
            Overlap::Start { whole: true } => self.unmap_whole(core, space, id, start, end),
            Overlap::Start { whole: false } => self.unmap_start(core, space, id, start, end),
            Overlap::Other => self.unmap_ranges(core, space, id, start, end),
        }
    }

    /// Unmap `[start, end)`, with which one range begins. Ranges are what they would be had it been cut in two, and the
    /// lower part taken out, but nothing is made only to be taken apart.
    fn unmap_start<M: Machine>(&self, core: &MmCore<M>, space: &Space, id: SpaceId, start: Vpn, end: Vpn) {
        split_entry_at(core, space, id, end);
        // As for a cut, and again for what is taken out.
        core.charge(Work::VmaChange, 1);
        let left = core.gather(id, |gather| {
            let mut vmas = space.vmas.lock();
            let left = vmas.remove_start(start, end, gather);
            // What lies behind needs the table that it shares with these pages.
            let shares = !end.0.is_multiple_of(TABLE_ENTRIES as u64);
            let hole = (if shares { start } else { vmas.free_below(start) }, end);
            drop(vmas);
            unmap_entries(core, id, (start, end), hole, &left.view, gather);
            left
        });
        // The entries were found by way of the whole range until now.
        left.relink(core, id, space.group());
        core.charge(Work::VmaChange, 1);
    }

    /// Unmap `[start, end)`, which is one range.
    fn unmap_whole<M: Machine>(&self, core: &MmCore<M>, space: &Space, id: SpaceId, start: Vpn, end: Vpn) {
        let gone = core.gather(id, |gather| {
            let mut vmas = space.vmas.lock();
            let gone = vmas.remove_ending_at(end, gather).expect("it was just seen");
            let hole = vmas.hole(start, end);
            drop(vmas);
            unmap_entries(core, id, (start, end), hole, &gone.view, gather);
            gone
        });
        gone.unlink(core);
        core.charge(Work::VmaChange, 1);
    }

    /// Unmap `[start, end)`, however ranges lie in it.
    fn unmap_ranges<M: Machine>(&self, core: &MmCore<M>, space: &Space, id: SpaceId, start: Vpn, end: Vpn) {
        self.split_at(core, id, start);
        self.split_at(core, id, end);
        let mut gone: SmallVec<[Vma; 1]> = SmallVec::new();
        core.gather(id, |gather| {
            let hole = {
                let mut vmas = space.vmas.lock();
                while let Some(vma) = vmas.remove_last(end, start, gather) {
                    gone.push(vma);
                }
                vmas.hole(start, end)
            };
            for vma in gone.iter().rev() {
                zap(core, id, &vma.view, vma.view.start, vma.view.end(), gather);
            }
            core.tables.lock(core, id).take_empty_tables((start, end), hole, gather);
        });
        for vma in gone.iter().rev() {
            vma.unlink(core);
            core.charge(Work::VmaChange, 1);
        }
    }
}

/// Clear all entries of `[start, end)`, which lay in `vma` and lies in `hole` now, and take tables out that are empty
/// then.
fn unmap_entries<M: Machine>(
    core: &MmCore<M>,
    id: SpaceId,
    (start, end): (Vpn, Vpn),
    hole: (Vpn, Vpn),
    vma: &VmaView,
    gather: &mut Gather,
) {
    let mut tables = core.tables.lock(core, id);
    zap_locked(core, &mut tables, (start, end), vma.has_recency(), gather);
    tables.take_empty_tables((start, end), hole, gather);
}

/// Clear all entries of `[start, end)`, which lies in `vma`. Pages wait in `gather` for its flush.
pub(super) fn zap<M: Machine>(
    core: &MmCore<M>,
    id: SpaceId,
    vma: &VmaView,
    start: Vpn,
    end: Vpn,
    gather: &mut Gather,
) {
    let mut tables = core.tables.lock(core, id);
    zap_locked(core, &mut tables, (start, end), vma.has_recency(), gather);
}

/// [`zap`] under the tables' lock. `recency`: that a page was used counts for its folio.
fn zap_locked<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    (start, end): (Vpn, Vpn),
    recency: bool,
    gather: &mut Gather,
) {
    let _scope = core.scope(Scope::UnmapPageRange);
    zap_locked_if(core, tables, (start, end), recency, gather, |_| true);
}

/// Clear those entries of `[start, end)` for which `wanted` says so. `recency`: that a page was used counts for its
/// folio.
pub(super) fn zap_if<M: Machine>(
    core: &MmCore<M>,
    id: SpaceId,
    (start, end): (Vpn, Vpn),
    recency: bool,
    gather: &mut Gather,
    wanted: impl Fn(&EntryRun) -> bool,
) {
    let mut tables = core.tables.lock(core, id);
    zap_locked_if(core, &mut tables, (start, end), recency, gather, wanted);
}

/// [`zap_if`] under the tables' lock.
#[inline]
fn zap_locked_if<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    (start, end): (Vpn, Vpn),
    recency: bool,
    gather: &mut Gather,
    wanted: impl Fn(&EntryRun) -> bool,
) {
    let mmu = core;
    let (mut gather, mut tally) = (gather.ascending(), Tally::new(mmu));
    let mut from = start;
    loop {
        // A large entry of anonymous memory that reaches out of the range: it is split, and the walk goes on inside it.
        let split = Cell::new(None);
        // Tables that were set aside for large entries whose folios were being moved.
        let unused = Cell::new(0);
        let wanted = |run: &EntryRun| {
            if run.is_large()
                && reaches_out((run.page, run.end()), start, end)
                && core.frames[run.entry.pfn()].is_anon()
            {
                // The first: what lies behind it is walked again.
                split.set(split.get().or(Some(*run)));
                return false;
            }
            wanted(run)
        };
        let absent = |tables: &mut _, absent| match absent {
            Absent::Swap { slot, .. } => forget_swapped(core, tables, slot),
            Absent::Moving(migrating) => {
                unused.set(unused.get() + u32::from(forget_moving(core, tables, migrating)));
            }
            Absent::None => {}
        };
        tables.take_each(from, end, wanted, absent, |tables, emptied| {
            if emptied.is_large() {
                let partly = reaches_out(emptied.range(), start, end);
                let what = (emptied.mapped().head, emptied.entry());
                forget_large(core, tables, what, partly, recency, gather.gather());
                return gather.gather().emptied(mmu, emptied);
            }
            forget_run(core, tables, emptied, recency, &mut gather, &mut tally);
        });
        for _ in 0..unused.get() {
            gather.gather().unused_table(tables.withdraw());
        }
        let Some(run) = split.get() else { break };
        split_anon_entry(core, tables, &run);
        from = run.page.max(start);
        // What is walked next lies below what was cleared behind the entry.
        gather.descend();
    }
    tally.settle(mmu);
}

/// Does a large entry for `[from, to)` map more than pages of `[start, end)`?
fn reaches_out((from, to): (Vpn, Vpn), start: Vpn, end: Vpn) -> bool {
    from < start || to > end
}

/// An entry whose page is in swap was taken away.
#[inline]
fn forget_swapped<M: Machine>(core: &MmCore<M>, tables: &mut LockedTables<'_, M>, slot: SwapSlot) {
    core.charge(Work::EntryClear, 1);
    tables.counts().add(Resident::Swap, -1);
    drop_swap_entry(core, slot);
}

/// An entry whose page is being moved was taken away: it held no reference, and whoever moves the page has noted what
/// it said of its content. What CPUs may still do through its old translation is paid for when the space is settled.
/// Returns whether a table was set aside for it.
#[cold]
fn forget_moving<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    migrating: Migrating,
) -> bool {
    core.charge(Work::EntryClear, 1);
    let kind = Resident::of(&core.frames[core.frames.head(migrating.page())]);
    let pages = if migrating.is_large() { TABLE_ENTRIES as i64 } else { 1 };
    tables.counts().add(kind, -pages);
    migrating.is_large() && kind == Resident::Anon
}

/// Split a 2 MiB entry of anonymous memory, whose folio is there or on its way.
pub(super) fn split_anon_entry<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    run: &EntryRun,
) {
    tables.split_large(run);
    if run.entry.is_present() {
        core.rmap.split_large(core, run.entry.pfn());
    } else {
        core.count(Stat::ThpSplitPmd, 1);
    }
}

/// A run of entries was emptied: see to what it said.
#[inline(always)]
fn forget_run<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    emptied: Emptied,
    recency: bool,
    gather: &mut Ascending<'_>,
    tally: &mut Tally,
) {
    let mmu = core;
    let pages = emptied.mapped();
    core.charge(Work::EntryClear, pages.count as u64);
    if pages.head == core.zero {
        return gather.emptied(mmu, emptied.of_zeroes(core.zero));
    }
    let frame = &core.frames[pages.head];
    let kind = Resident::of(frame);
    if kind != Resident::Anon {
        tell_file(core, emptied.entry(), pages.head, recency);
    }
    let anon = kind == Resident::Anon;
    tables.counts().add(kind, -i64::from(pages.count));
    if core.rmap.remove_tallied(mmu, anon, pages, tally) {
        core.lru.defer_split(mmu, pages.head);
    }
    if anon {
        drop_unmapped(core, pages.head);
    }
    gather.emptied(mmu, emptied);
}

/// A folio of a file learns what hardware marked in its entries.
#[inline(always)]
fn tell_file<M: Machine>(core: &MmCore<M>, entry: Entry, head: Pfn, recency: bool) {
    if entry.has(Bits::DIRTY) {
        core.cache.mark_dirty(core, head);
    }
    if recency && entry.has(Bits::YOUNG) && matches!(core.frames[head].owner(), Owner::File(_)) {
        core.lru.mark_accessed(core, head);
    }
}

/// A 2 MiB entry of a folio was emptied: see to what it said, but for its flush. (What was emptied stays with the
/// caller, who keeps it in registers.) `partly`: more went than was to go, as it was not split before.
#[cold]
fn forget_large<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    (head, entry): (Pfn, Entry),
    partly: bool,
    recency: bool,
    gather: &mut Gather,
) {
    let mmu = core;
    core.charge(Work::EntryClear, 1);
    let kind = Resident::of(&core.frames[head]);
    if kind == Resident::Anon {
        assert!(!partly, "a large entry of anonymous memory reaches out of the range and was not split");
        let table = tables.withdraw();
        gather.unused_table(table);
    } else {
        tell_file(core, entry, head, recency);
        core.count(Stat::ThpSplitPmd, i64::from(partly));
    }
    tables.counts().add(kind, -(TABLE_ENTRIES as i64));
    if core.rmap.remove_large(mmu, head) {
        core.lru.defer_split(mmu, head);
    }
}

/// Unmap all pages of a file from `first` on, private copies too, wherever they are mapped.
pub fn zap_file<M: Machine>(core: &MmCore<M>, file: FileId, first: PageIndex) {
    core.rmap.for_shown(file, first, PageIndex(u64::MAX), &mut |span, start, end| {
        core.gather(span.space, |gather| {
            gather.changes(start, end);
            zap_if(core, span.space, (start, end), false, gather, |_| true);
        });
    });
}

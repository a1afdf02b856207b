//! munmap, and clearing entries for every other operation that takes mappings away.

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

    /// Unmap `[start, end)`. The caller holds the mapping semaphore alone. On return no CPU can reach the pages.
    pub(super) fn unmap_range<M: Machine>(&self, core: &MmCore<M>, id: SpaceId, start: Vpn, end: Vpn) {
        if start >= end {
            // An empty interval must not cut a range in two.
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

    /// Unmap `[start, end)`, which is the first part of one range. The ranges end up as if the range had been cut and
    /// its lower part removed, but no range is made for the lower part.
    fn unmap_start<M: Machine>(&self, core: &MmCore<M>, space: &Space, id: SpaceId, start: Vpn, end: Vpn) {
        split_entry_at(core, space, id, end);
        // One charge for the cut, a second one below for the removal.
        core.charge(Work::VmaChange, 1);
        let left = core.gather(id, |gather| {
            let mut vmas = space.vmas.lock();
            let left = vmas.remove_start(start, end, gather);
            // What follows `end` still needs the table that it shares with these pages.
            let shares = !end.0.is_multiple_of(TABLE_ENTRIES as u64);
            let hole = (if shares { start } else { vmas.free_below(start) }, end);
            drop(vmas);
            unmap_entries(core, Zap::of(&left.view, start, end), hole, gather);
            left
        });
        // Until here, reverse-map walks must find the entries through the whole range.
        left.relink(core, id, space.group());
        core.charge(Work::VmaChange, 1);
    }

    /// Unmap `[start, end)`, which is exactly one range.
    fn unmap_whole<M: Machine>(&self, core: &MmCore<M>, space: &Space, id: SpaceId, start: Vpn, end: Vpn) {
        let gone = core.gather(id, |gather| {
            let mut vmas = space.vmas.lock();
            let gone =
                vmas.remove_ending_at(end, gather).expect("the caller has found a range that ends here");
            let hole = vmas.hole(start, end);
            drop(vmas);
            unmap_entries(core, Zap::of(&gone.view, start, end), hole, gather);
            gone
        });
        gone.unlink(core);
        core.charge(Work::VmaChange, 1);
    }

    /// Unmap `[start, end)`, whatever ranges are in it.
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
                zap(core, Zap::of(&vma.view, vma.view.start, vma.view.end()), gather);
            }
            core.tables.lock(core, id).take_empty_tables((start, end), hole, gather);
        });
        for vma in gone.iter().rev() {
            vma.unlink(core);
            core.charge(Work::VmaChange, 1);
        }
    }
}

/// Which entries to clear.
#[derive(Clone, Copy)]
pub(super) struct Zap {
    start: Vpn,
    end: Vpn,
    /// Whether a young bit counts as a use of its folio.
    recency: bool,
}

impl Zap {
    /// The entries of `[start, end)`, whose young bits do not count.
    pub(super) fn new(start: Vpn, end: Vpn) -> Zap {
        Zap { start, end, recency: false }
    }

    /// The entries of `[start, end)`, which is part of this range.
    pub(super) fn of(vma: &VmaView, start: Vpn, end: Vpn) -> Zap {
        Zap { recency: vma.has_recency(), ..Zap::new(start, end) }
    }

    /// Count young bits as uses.
    pub(super) fn with_recency(self) -> Zap {
        Zap { recency: true, ..self }
    }

    /// Whether a large entry for `[from, to)` maps pages outside of the interval.
    fn is_exceeded_by(self, (from, to): (Vpn, Vpn)) -> bool {
        from < self.start || to > self.end
    }
}

/// Clear all entries of an interval that is now part of `hole`, and take out the tables that are then empty.
fn unmap_entries<M: Machine>(core: &MmCore<M>, what: Zap, hole: (Vpn, Vpn), gather: &mut Gather) {
    let mut tables = core.tables.lock(core, gather.space());
    zap_locked(core, &mut tables, what, gather);
    tables.take_empty_tables((what.start, what.end), hole, gather);
}

/// Clear all entries of an interval. Their pages wait in `gather` for its flush.
pub(super) fn zap<M: Machine>(core: &MmCore<M>, what: Zap, gather: &mut Gather) {
    let mut tables = core.tables.lock(core, gather.space());
    zap_locked(core, &mut tables, what, gather);
}

/// [`zap`] under the page-table lock.
fn zap_locked<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    what: Zap,
    gather: &mut Gather,
) {
    let _scope = core.scope(Scope::UnmapPageRange);
    zap_locked_if(core, tables, what, gather, |_| true);
}

/// Clear the entries of an interval that are `wanted`.
pub(super) fn zap_if<M: Machine>(
    core: &MmCore<M>,
    what: Zap,
    gather: &mut Gather,
    wanted: impl Fn(&EntryRun) -> bool,
) {
    let mut tables = core.tables.lock(core, gather.space());
    zap_locked_if(core, &mut tables, what, gather, wanted);
}

/// [`zap_if`] under the page-table lock.
#[inline]
fn zap_locked_if<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    what: Zap,
    gather: &mut Gather,
    wanted: impl Fn(&EntryRun) -> bool,
) {
    let Zap { start, end, recency } = what;
    let (mut gather, mut tally) = (gather.ascending(), Tally::new(core));
    let mut from = start;
    loop {
        // A large entry of anonymous memory that exceeds the interval: it is split, and the walk resumes inside it.
        let split = Cell::new(None);
        // Tables that were deposited for large entries whose folios are being moved.
        let unused = Cell::new(0);
        let wanted = |run: &EntryRun| {
            if run.is_large()
                && what.is_exceeded_by((run.page, run.end()))
                && core.frames[run.entry.pfn()].is_anon()
            {
                // Keep the first one: the walk resumes there.
                split.set(split.get().or(Some(*run)));
                return false;
            }
            wanted(run)
        };
        let absent = |tables: &mut _, absent| match absent {
            Absent::Swap { slot, .. } => account_swapped(core, tables, slot),
            Absent::Moving(migrating) => {
                unused.set(unused.get() + u32::from(account_migrating(core, tables, migrating)));
            }
            Absent::None => {}
        };
        tables.take_each(from, end, wanted, absent, |tables, emptied| {
            if emptied.is_large() {
                let partly = what.is_exceeded_by(emptied.range());
                let large = EmptiedLarge { head: emptied.mapped().head, entry: emptied.entry(), partly };
                account_large(core, tables, large, recency, gather.gather());
                return gather.gather().emptied(core, emptied);
            }
            account_run(core, tables, emptied, recency, &mut gather, &mut tally);
        });
        for _ in 0..unused.get() {
            gather.gather().unused_table(tables.withdraw());
        }
        let Some(run) = split.get() else { break };
        split_anon_entry(core, tables, &run);
        from = run.page.max(start);
        // The walk goes back: entries above the split one have already been cleared.
        gather.descend();
    }
    tally.settle(core);
}

/// Account for a cleared swap entry.
#[inline]
fn account_swapped<M: Machine>(core: &MmCore<M>, tables: &mut LockedTables<'_, M>, slot: SwapSlot) {
    core.charge(Work::EntryClear, 1);
    tables.counts().add(Resident::Swap, -1);
    drop_swap_entry(core, slot);
}

/// Account for a cleared entry whose page is being moved. It held no reference, and the mover has noted its dirty bit.
/// Settling the space later pays for what CPUs may still do through the old translation. Returns whether a table was
/// deposited for it.
#[cold]
fn account_migrating<M: Machine>(
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

/// Split a 2 MiB entry of anonymous memory, whether its folio is present or being moved.
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

/// Account for a run of cleared entries.
#[inline(always)]
fn account_run<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    emptied: Emptied,
    recency: bool,
    gather: &mut Ascending<'_>,
    tally: &mut Tally,
) {
    let pages = emptied.mapped();
    core.charge(Work::EntryClear, pages.count as u64);
    if pages.head == core.zero {
        return gather.emptied(core, emptied.of_zeroes(core.zero));
    }
    let frame = &core.frames[pages.head];
    let kind = Resident::of(frame);
    if kind != Resident::Anon {
        transfer_bits(core, emptied.entry(), pages.head, recency);
    }
    let anon = kind == Resident::Anon;
    tables.counts().add(kind, -i64::from(pages.count));
    if core.rmap.remove_tallied(core, anon, pages, tally) {
        core.lru.defer_split(core, pages.head);
    }
    if anon {
        drop_unmapped(core, pages.head);
    }
    gather.emptied(core, emptied);
}

/// Pass what hardware set in an entry on to its file's folio.
#[inline(always)]
fn transfer_bits<M: Machine>(core: &MmCore<M>, entry: Entry, head: Pfn, recency: bool) {
    if entry.has(Bits::DIRTY) {
        core.cache.mark_dirty(core, head);
    }
    if recency && entry.has(Bits::YOUNG) && matches!(core.frames[head].owner(), Owner::File(_)) {
        core.lru.mark_accessed(core, head);
    }
}

/// A 2 MiB entry that was cleared.
struct EmptiedLarge {
    head: Pfn,
    entry: Entry,
    /// Whether more was cleared than was asked for, as the entry was not split before.
    partly: bool,
}

/// Account for a cleared 2 MiB entry, except for its flush. (The caller keeps what was emptied, in registers.)
#[cold]
fn account_large<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    EmptiedLarge { head, entry, partly }: EmptiedLarge,
    recency: bool,
    gather: &mut Gather,
) {
    core.charge(Work::EntryClear, 1);
    let kind = Resident::of(&core.frames[head]);
    if kind == Resident::Anon {
        assert!(
            !partly,
            "a large anonymous entry that exceeds the interval must be split before it is cleared"
        );
        let table = tables.withdraw();
        gather.unused_table(table);
    } else {
        transfer_bits(core, entry, head, recency);
        core.count(Stat::ThpSplitPmd, i64::from(partly));
    }
    tables.counts().add(kind, -(TABLE_ENTRIES as i64));
    if core.rmap.remove_large(core, head) {
        core.lru.defer_split(core, head);
    }
}

/// Unmap all pages of a file from `first` on wherever they are mapped, private copies included.
pub fn zap_file<M: Machine>(core: &MmCore<M>, file: FileId, first: PageIndex) {
    core.rmap.for_shown(file, first, PageIndex(u64::MAX), &mut |span, start, end| {
        core.gather(span.space, |gather| {
            gather.changes(start, end);
            zap_if(core, Zap::new(start, end), gather, |_| true);
        });
    });
}

//! Clearing entries: what every operation that takes mappings away shares.

use super::vma::VmaView;
use crate::cache::{drop_swap_entry, drop_unmapped};
use crate::frame::{FolioPages, Frame, Owner};
use crate::machine::{Machine, Scope, Work};
use crate::mm_core::MmCore;
use crate::rmap::Tally;
use crate::stat::Stat;
use crate::table::{Absent, Bits, Entry, EntryRun, LockedTables, Migrating, Resident, TakenRun};
use crate::tlb::{Ascending, Emptied, Gather};
use crate::units::*;
use core::cell::Cell;

/// Which entries to clear.
#[derive(Clone, Copy)]
pub(super) struct Zap {
    pub(super) start: Vpn,
    pub(super) end: Vpn,
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

/// Clear all entries of an interval. Their pages wait in `gather` for its flush.
pub(super) fn zap<M: Machine>(core: &MmCore<M>, what: Zap, gather: &mut Gather) {
    let mut tables = core.tables.lock(core, gather.space());
    zap_locked(core, &mut tables, what, gather);
}

/// [`zap`] under the page-table lock.
pub(super) fn zap_locked<M: Machine>(
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
                return gather.gather().emptied(core.host(), emptied);
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
    #[expect(clippy::disallowed_methods, reason = "its entry was cleared")]
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
    let split = tables.split_large(run);
    core.rmap.split_large(core, split);
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
        return gather.emptied(core.host(), emptied.of_zeroes(core.zero));
    }
    let frame = &core.frames[pages.head];
    match Resident::of(frame) {
        Resident::Anon => {
            uncount_run(core, tables, (frame, Resident::Anon), pages, tally);
            drop_unmapped(core, frame, pages.head);
        }
        kind => {
            transfer_bits(core, emptied.entry(), pages.head, recency);
            uncount_run(core, tables, (frame, kind), pages, tally);
        }
    }
    gather.emptied(core.host(), emptied);
}

/// Take pages out of the counts of their space and of their folio, whose record is `frame`.
#[inline(always)]
fn uncount_run<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    (frame, kind): (&Frame, Resident),
    pages: FolioPages,
    tally: &mut Tally,
) {
    tables.counts().add(kind, -i64::from(pages.count));
    if core.rmap.remove_tallied(core, (frame, kind == Resident::Anon), pages, tally) {
        core.lru.defer_split(core, pages.head);
    }
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
pub(crate) fn zap_file<M: Machine>(core: &MmCore<M>, file: FileId, first: PageIndex) {
    core.rmap.for_shown(file, first, PageIndex(u64::MAX), &mut |span, start, end| {
        core.gather(span.space, |gather| {
            gather.changes(start, end);
            zap_if(core, Zap::new(start, end), gather, |_| true);
        });
    });
}

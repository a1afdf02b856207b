//! Page tables: four levels of 512 entries, in x86-64's format, in frames from the allocator.
//!
//! Each space has one tree, which is locked whole ([`Tree::lock`]) or table by table ([`Tree::lock_one`]; `held` says
//! who needs what). Hardware reads the tree at any time and sets young and dirty bits, so entries change by single
//! atomic operations that never lose a bit hardware set.
//!
//! A table's frame counts its non-empty entries in its private word, so an empty table is known at once. A present
//! entry that maps a page holds a reference of its folio and counts in its mapcount. The room that sets and clears
//! entries maintains both; this room maintains the tree and the space's resident counts.
//!
//! **What a lock allows.** Under a table's lock entries may be emptied or lose rights, which yields a value that must
//! be flushed ([`Emptied`](crate::tlb::Emptied), [`Tightened`]). Nothing may be installed in the place of an emptied
//! entry that has not been flushed. Entries may be installed that show what a stale translation of the page would
//! show. To let a page show something else, or become writable, the lock must first be turned into a [`Settled`] one:
//! then no CPU caches a translation that was removed before, and because debts are recorded under this lock, none can
//! appear while it is held. A table's record holds the generation of the newest debt for one of its entries, so a
//! fault pays only for its surroundings: what is settled is one table, until its lock is released. Only a
//! task that holds the tree alone can settle all of the space.
#![expect(clippy::disallowed_methods, reason = "it keeps page tables, and makes what they give")]

mod aging;
mod counts;
mod detached;
pub mod entry;
mod held;
mod large;
mod migrating;
mod reserve;
mod run;
mod settled;
mod shown;
mod source;
mod walk;
mod window;

pub use aging::Middle;
pub use counts::{Counts, Resident};
pub use detached::Detached;
pub use entry::{Absent, Bits, Entry, Migrating, Rights};
pub(crate) use large::SplitEntry;
pub(crate) use migrating::{Cleaned, Landing, UsedCopy, Waiting};
pub use run::{EntryRun, TakenRun};
pub use settled::{Moving, PageSettled, Settled, Writes};
pub use shown::Shown;
pub use source::Source;
pub use window::TableWindow;

use crate::alloc::{AllocRequest, Allocator, Means, NeedsReclaim};
use crate::arena::Arena;
use crate::event::Event;
use crate::frame::{FolioPages, Frame, FrameFlags, Mobility};
use crate::lock::{Gate, GateGuard, Lock};
use crate::machine::{Machine, Work};
use crate::mmu::Mmu;
use crate::primitive::{AtomicU16, AtomicU32, AtomicU64, Ordering::*};
use crate::stat::Stat;
use crate::tlb::{Gather, Tightened};
use crate::units::*;
use base::demand;
use core::cell::Cell;
use held::{TableHold, TableLocks};
use std_alloc::vec::Vec;

/// Levels of a tree; level 0 holds the entries of pages.
pub const LEVELS: u32 = 4;
/// log2 of the entries of a table.
const LEVEL_BITS: u32 = 9;
/// First page number above user space (47 bits of address).
pub(crate) const USER_END: Vpn = Vpn(1 << (47 - PAGE_SHIFT));

/// The lowest-level table found last, and the high bits of its page numbers: accesses tend to stay in a table. A
/// task that has found the table in the tree sets it; one that unlinks a table, alone, forgets it.
struct Recent(AtomicU64);

impl Default for Recent {
    fn default() -> Self {
        Recent(AtomicU64::new(Recent::NONE))
    }
}

impl Recent {
    /// No page has these high bits.
    const NONE: u64 = u64::MAX;

    #[inline]
    fn get(&self, page: Vpn) -> Option<Pfn> {
        let recent = self.0.load(Relaxed);
        (recent >> 32 == page.0 >> LEVEL_BITS).then_some(Pfn(recent as u32))
    }

    #[inline]
    fn set(&self, page: Vpn, table: Pfn) {
        self.0.store((page.0 >> LEVEL_BITS) << 32 | u64::from(table.0), Relaxed);
    }

    fn forget(&self) {
        self.0.store(Recent::NONE, Relaxed);
    }
}

/// The tree of one space.
pub struct Tree {
    root: AtomicU32,
    gate: Gate,
    locks: TableLocks,
    recent: Recent,
    /// Number of the newest hold of a lock, or of one near it. A slot is valid only in the hold in which it was found.
    hold: AtomicU16,
    counts: Counts,
    /// Empty tables in reserve, one for each large anonymous entry: splitting the entry takes one and cannot fail.
    deposits: Lock<Vec<Pfn>>,
}

impl Default for Tree {
    fn default() -> Self {
        Tree {
            root: AtomicU32::new(Pfn::NONE.0),
            gate: Gate::default(),
            locks: Default::default(),
            recent: Recent::default(),
            hold: AtomicU16::new(0),
            counts: Counts::default(),
            deposits: Lock::default(),
        }
    }
}

impl Tree {
    /// Lock the tree, which belongs to `space`, whole.
    #[inline]
    pub fn lock<'a, M: Machine>(&'a self, mmu: &'a Mmu<M>, space: SpaceId) -> LockedTables<'a, M> {
        LockedTables::new(mmu, space, self, self.gate.alone())
    }

    /// Lock one table of the tree at a time: the one in which an entry was found or reserved last.
    #[inline]
    pub(crate) fn lock_one<'a, M: Machine>(&'a self, mmu: &'a Mmu<M>, space: SpaceId) -> LockedTables<'a, M> {
        LockedTables::new(mmu, space, self, self.gate.share())
    }

    /// The space's counts.
    #[inline]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A number for a hold. If two tasks take the same, a slot of the one is not refused by the other.
    #[inline]
    fn next_hold(&self) -> u16 {
        let hold = self.hold.load(Relaxed).wrapping_add(1);
        self.hold.store(hold, Relaxed);
        hold
    }
}

/// The trees of all spaces, by [`SpaceId`].
#[derive(Default)]
pub struct Tables {
    trees: Arena<Tree>,
}

/// The place of an entry. It is valid while its table stays locked. In a later hold of the lock the table may be gone,
/// and the slot is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    table: Pfn,
    index: u16,
    hold: u16,
}

impl Slot {
    /// The slot `entries` further on in the same table.
    #[inline]
    pub fn ahead(self, entries: u32) -> Slot {
        debug_assert!(self.index as u32 + entries < TABLE_ENTRIES as u32);
        Slot { index: self.index + entries as u16, ..self }
    }

    /// Number of entries from this one to the end of its table.
    #[inline]
    pub fn room(self) -> u32 {
        TABLE_ENTRIES as u32 - self.index as u32
    }
}

/// The locked tree of a space, or one locked table of it.
pub struct LockedTables<'a, M> {
    mmu: &'a Mmu<M>,
    space: SpaceId,
    tree: &'a Tree,
    held: TableHold<'a>,
    /// Number of this hold of a lock.
    hold: Cell<u16>,
    /// The entries whose debts have been paid in this hold.
    settled: Cell<Paid>,
    /// Pages whose entries were emptied in this hold and not flushed yet.
    vacated: Vacated,
}

/// The smallest range that contains all pages that lost their entries.
#[derive(Clone, Copy)]
struct Vacated {
    start: Vpn,
    end: Vpn,
}

impl Vacated {
    const NONE: Vacated = Vacated { start: Vpn(u64::MAX), end: Vpn(0) };

    #[inline(always)]
    fn add(&mut self, page: Vpn, pages: u64) {
        self.start = self.start.min(page);
        self.end = self.end.max(Vpn(page.0 + pages));
    }

    /// Note that these pages were flushed. If they cover the whole range, it becomes empty.
    fn flushed(&mut self, start: Vpn, end: Vpn) {
        if start <= self.start && self.end <= end {
            *self = Vacated::NONE;
        }
    }

    /// Assert that no CPU may cache an old translation of these pages.
    #[inline(always)]
    fn check(&self, page: Vpn, pages: u32) {
        demand!(
            page >= self.end || page.0 + pages as u64 <= self.start.0, [page];
            "{page} was emptied in this hold of the lock: `flush` what that gave before another page takes its place"
        );
    }
}

/// The entries of a tree whose debts are paid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Paid {
    Nothing,
    Table(Pfn),
    All,
}

impl Tables {
    /// Give a new space an empty tree.
    pub fn create<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        alloc: &Allocator,
        space: SpaceId,
        means: Means,
    ) -> Result<(), NeedsReclaim> {
        let tree = self.trees.ensure(space.0);
        let root = new_table(mmu, alloc, means)?;
        let _alone = tree.gate.alone();
        tree.locks.begin();
        tree.recent.forget();
        tree.counts.tables.store(1, Relaxed);
        tree.root.store(root.0, Release);
        Ok(())
    }

    /// Remove the tree of a space that exits. All of its entries have been cleared; the remaining tables go to
    /// `gather`.
    pub(crate) fn destroy<M: Machine>(&self, mmu: &Mmu<M>, space: SpaceId, gather: &mut Gather) {
        let mut locked = self.lock(mmu, space);
        locked.take_empty_tables((Vpn(0), USER_END), (Vpn(0), USER_END), gather);
        let tree = locked.tree;
        assert!(tree.deposits.lock().is_empty(), "{space} ends with tables in reserve for large entries");
        let counts = (tree.counts.all(), tree.counts.tables());
        assert_eq!(counts, ([0; 4], 1), "{space} ends with pages or tables left");
        let root = Pfn(tree.root.swap(Pfn::NONE.0, AcqRel));
        locked.end_table(root);
        drop(locked);
        gather.table(root);
    }

    /// The root table of a space, or [`Pfn::NONE`] if the space is not alive.
    #[inline]
    pub fn root(&self, space: SpaceId) -> Pfn {
        self.trees.get(space.0).map_or(Pfn::NONE, |tree| Pfn(tree.root.load(Acquire)))
    }

    /// Lock the tree of a space.
    #[inline]
    pub fn lock<'a, M: Machine>(&'a self, mmu: &'a Mmu<M>, space: SpaceId) -> LockedTables<'a, M> {
        self.tree(space).lock(mmu, space)
    }

    /// Lock one table of a space's tree at a time.
    #[inline]
    pub(crate) fn lock_one<'a, M: Machine>(&'a self, mmu: &'a Mmu<M>, space: SpaceId) -> LockedTables<'a, M> {
        self.tree(space).lock_one(mmu, space)
    }

    /// Lock the tree of a space if nobody holds it or a table of it.
    pub(crate) fn try_lock<'a, M: Machine>(
        &'a self,
        mmu: &'a Mmu<M>,
        space: SpaceId,
    ) -> Option<LockedTables<'a, M>> {
        let tree = self.tree(space);
        tree.gate.try_alone().map(|gate| LockedTables::new(mmu, space, tree, gate))
    }

    /// Lock one table of a space's tree at a time, if nobody holds the tree.
    pub(crate) fn try_lock_one<'a, M: Machine>(
        &'a self,
        mmu: &'a Mmu<M>,
        space: SpaceId,
    ) -> Option<LockedTables<'a, M>> {
        let tree = self.tree(space);
        tree.gate.try_share().map(|gate| LockedTables::new(mmu, space, tree, gate))
    }

    /// The tree of a space, for a caller that locks it repeatedly.
    #[inline]
    pub fn tree(&self, space: SpaceId) -> &Tree {
        &self.trees[space.0]
    }

    /// Free the tables of a [`Gather`] after its flush.
    pub(crate) fn free_tables<M: Machine>(&self, mmu: &Mmu<M>, alloc: &Allocator, tables: &[Pfn]) {
        if tables.is_empty() {
            return;
        }
        for frame in tables.iter().map(|&table| &mmu.frames[table]) {
            assert!(frame.has(FrameFlags::TABLE), "a frame that is no page table is freed as one");
            frame.clear(FrameFlags::TABLE);
            // The gather has settled the space, or no CPU runs the space any more.
            frame.set_debt(0);
            frame.clear_private();
            assert!(frame.put(1));
        }
        alloc.free(mmu, tables);
        mmu.count(Stat::NrPageTablePages, -(tables.len() as i64));
    }
}

fn new_table<M: Machine>(mmu: &Mmu<M>, alloc: &Allocator, means: Means) -> Result<Pfn, NeedsReclaim> {
    let request = AllocRequest {
        reserve: means.reserve,
        mixes: means.mixes,
        ..AllocRequest::of_kernel(Mobility::Unmovable, Order::ZERO, mmu.node())
    };
    let table = alloc.take(mmu, &request, means.mark)?.into_pfn();
    if !mmu.clears_pages() {
        mmu.machine.zero(table, 1);
        mmu.charge(Work::ZeroPage, 1);
    }
    // First access before hardware may walk the table, for machines that keep page tables apart from other frames.
    let _ = mmu.machine.table(table);
    mmu.charge(Work::TableAlloc, 1);
    mmu.frames[table].begin_table();
    mmu.count(Stat::NrPageTablePages, 1);
    Ok(table)
}

impl<'a, M: Machine> LockedTables<'a, M> {
    #[inline]
    fn new(mmu: &'a Mmu<M>, space: SpaceId, tree: &'a Tree, gate: GateGuard<'a>) -> Self {
        LockedTables {
            mmu,
            space,
            tree,
            held: TableHold::new(&tree.locks, gate),
            hold: Cell::new(tree.next_hold()),
            settled: Cell::new(Paid::Nothing),
            vacated: Vacated::NONE,
        }
    }

    fn root(&self) -> Pfn {
        Pfn(self.tree.root.load(Acquire))
    }

    /// The space's counts.
    #[inline]
    pub fn counts(&self) -> &'a Counts {
        &self.tree.counts
    }

    /// Lock a table that was found. Slots of the one that was locked before are no longer valid, nor is what was paid
    /// for it.
    #[inline(always)]
    fn enter(&self, table: Pfn) {
        if self.held.enter(&self.mmu.frames[table]) {
            self.begin_hold();
        }
    }

    /// [`LockedTables::enter`] for a loop over many entries, which needs the registers.
    #[inline(never)]
    fn enter_apart(&self, table: Pfn) {
        self.enter(table);
    }

    #[inline]
    fn begin_hold(&self) {
        self.hold.set(self.tree.next_hold());
        self.settled.set(Paid::Nothing);
    }

    /// Lock a table if nobody has locked it. No table is locked yet.
    pub(crate) fn try_enter(&self, table: Pfn) -> bool {
        self.held.try_enter(&self.mmu.frames[table])
    }

    /// Hold the whole tree from now on. If it was not so before, entries may have changed, and slots are refused.
    pub(crate) fn become_alone(&mut self) {
        if !self.held.is_alone() {
            self.held.become_alone();
            self.begin_hold();
        }
    }

    /// Assert that no other task holds a table of this tree.
    #[inline]
    fn assert_alone(&self, what: &str) {
        demand!(self.held.is_alone(), [what, space = self.space]; "{what} of {space} needs all of its tables");
    }

    /// A table leaves the tree.
    fn end_table(&self, table: Pfn) {
        self.assert_alone("unlinking a table");
        self.held.leave();
        self.tree.locks.end(&self.mmu.frames[table]);
    }

    #[inline]
    fn at(&self, table: Pfn, index: usize) -> Entry {
        Entry::from_raw(self.mmu.machine.table(table)[index].load(Acquire))
    }

    #[inline]
    fn slot(&self, table: Pfn, page: Vpn, level: u32) -> Slot {
        Slot { table, index: walk::index(page, level) as u16, hold: self.hold.get() }
    }

    #[inline]
    fn cell(&self, slot: Slot) -> &'a AtomicU64 {
        &self.cells(slot, 1)[0]
    }

    /// The cells of `count` entries of one table.
    #[inline]
    fn cells(&self, slot: Slot, count: u32) -> &'a [AtomicU64] {
        demand!(slot.hold == self.hold.get(), [slot]; "{slot:?} was found before its table was unlocked");
        let (mmu, first) = (self.mmu, slot.index as usize);
        &mmu.machine.table(slot.table)[first..first + count as usize]
    }

    /// Update a table's count of entries.
    #[inline]
    fn count_entries(&mut self, table: Pfn, by: i64) {
        if by != 0 {
            self.mmu.frames[table].change_table(by);
        }
    }

    /// The record of the folio that `pages` belong to.
    #[inline]
    fn head_of(&self, pages: FolioPages) -> &'a Frame {
        let frames = &self.mmu.frames;
        let head = &frames[pages.head];
        demand!(pages.are_of(frames, head), [pages]; "{pages:?} are not pages of one folio");
        head
    }

    /// Read an entry.
    #[inline]
    pub fn read(&self, slot: Slot) -> Entry {
        Entry::from_raw(self.cell(slot).load(Acquire))
    }

    /// The space.
    #[inline]
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Pay every debt of the space, so that no CPU caches a translation that was removed before. May send IPIs under
    /// the lock, which is that of the whole tree: otherwise new debts would arrive.
    #[inline]
    pub fn settle(self) -> Settled<'a, M> {
        self.assert_alone("settling all");
        self.mmu.tlb.settle_space(self.mmu.host(), self.space);
        Settled::new(self, Paid::All)
    }

    /// As [`LockedTables::settle`], for the entries of the table that holds `slot`, that of `page`. Pays only if
    /// reclaim unmapped a page of this table without a flush; the rest of the space may owe much.
    #[inline]
    pub(crate) fn settle_at(self, slot: Slot, page: Vpn) -> Settled<'a, M> {
        debug_assert_eq!(slot.hold, self.hold.get(), "{slot:?} must be of the locked table");
        let frame = &self.mmu.frames[slot.table];
        if frame.debt() != 0 {
            let first = Vpn(page.0 & !(TABLE_ENTRIES as u64 - 1));
            self.mmu.tlb.settle_table(self.mmu.host(), self.space, first, frame.debt());
            frame.set_debt(0);
        }
        Settled::new(self, Paid::Table(slot.table))
    }

    /// Replace an entry; returns the old one's bits.
    #[inline]
    fn replace(&mut self, slot: Slot, entry: Entry) -> Entry {
        let old = Entry::from_raw(self.cell(slot).swap(entry.raw(), AcqRel));
        self.count_entries(slot.table, i64::from(old.is_none()) - i64::from(entry.is_none()));
        old
    }

    /// Replace an entry that maps nothing by another entry that maps nothing.
    #[inline]
    pub(crate) fn set_absent(&mut self, slot: Slot, new: Absent) {
        let old = self.replace(slot, new.into());
        demand!(!old.is_present(), [old]; "{old:?} maps a page: empty its run");
    }

    /// Map pages of a folio that show what every stale translation of their addresses shows, because they have not
    /// been written since: pages of a file's cache or of the swap cache. The places were empty or held swap entries.
    #[inline]
    pub fn install_unchanged(
        &mut self,
        (slot, page): (Slot, Vpn),
        pages: FolioPages,
        shown: Shown,
        rights: Rights,
    ) {
        self.vacated.check(page, pages.count);
        shown.check(self.head_of(pages), pages, || self.read(slot).absent());
        let entry = Entry::new(pages.first, Bits::PRESENT | rights.bits_of_entry());
        let present = self.put_run(slot, entry, pages.count);
        debug_assert!(!present, "the entry for {} must be cleared before it is installed", pages.first);
    }

    /// Mark a present entry as accessed, and as written if `dirty`, for machines whose hardware does not.
    #[inline]
    pub(crate) fn mark_used(&mut self, slot: Slot, dirty: bool) {
        let mut bits = Bits::YOUNG;
        bits.set(Bits::DIRTY, dirty);
        self.set_bits(slot, 1, bits);
    }

    /// Let user mode access a run again. This needs no flush: a CPU that uses the old entry from its TLB faults and
    /// retries.
    pub(crate) fn permit_use(&mut self, run: &EntryRun) {
        self.set_bits(run.slot, run.count, Bits::USER);
    }

    /// Clear the young bits of a run; returns it as it was.
    #[inline]
    pub(crate) fn clear_young(&mut self, run: &EntryRun) -> Entry {
        self.set_bits(run.slot, run.count, Bits::AGED);
        self.mmu.event(Event::PteClearYoung, [run.entry.pfn().0 as u64, run.pages(), 0, 0]);
        self.clear_bits(run, Bits::YOUNG)
    }

    /// Set the rights of a run. The right to write is removed only if `read_only`, and never granted. `None`: the run
    /// has these rights already.
    pub(crate) fn change_rights(
        &mut self,
        run: &EntryRun,
        rights: Rights,
        read_only: bool,
    ) -> Option<Tightened> {
        // Under the lock only the marks of an entry change.
        let (found, rights) = (run.entry.bits(), rights.bits_of_entry());
        let mut forbidden = (Bits::USER | Bits::NO_EXEC).difference(rights);
        forbidden.set(Bits::WRITE, read_only);
        let (adds, takes) = (!found.contains(rights), found.intersects(forbidden));
        if adds {
            self.set_bits(run.slot, run.count, rights);
        }
        if takes {
            self.clear_bits(run, forbidden);
        }
        (adds || takes).then(|| self.tightened(run, run.entry))
    }

    /// Write-protect a run.
    #[inline]
    pub fn forbid_writes(&mut self, run: &EntryRun) -> Tightened {
        let old = self.clear_bits(run, Bits::WRITE);
        self.tightened(run, old)
    }

    /// Write-protect a run and clear its dirty bits.
    pub fn forbid_writes_and_clean(&mut self, run: &EntryRun) -> Tightened {
        let old = self.clear_bits(run, Bits::WRITE | Bits::DIRTY);
        self.tightened(run, old)
    }

    /// Clear the dirty bits of a run.
    pub(crate) fn clean(&mut self, run: &EntryRun) -> Tightened {
        let old = self.clear_bits(run, Bits::DIRTY);
        self.tightened(run, old)
    }

    /// Clear the young and dirty bits of a run. A CPU that caches an entry as dirty would not set the bit again, so
    /// this must be flushed before later stores can be told from earlier ones.
    pub(crate) fn clear_young_and_dirty(&mut self, run: &EntryRun) -> Tightened {
        self.set_bits(run.slot, run.count, Bits::AGED);
        self.mmu.event(Event::PteClearYoung, [run.entry.pfn().0 as u64, run.pages(), 0, 0]);
        let old = self.clear_bits(run, Bits::YOUNG | Bits::DIRTY);
        self.tightened(run, old)
    }

    /// Put any entry into an empty place, as code with access to the hardware could. For tests.
    #[cfg(test)]
    pub(crate) fn place(&mut self, slot: Slot, pfn: Pfn, bits: Bits) {
        self.replace(slot, Entry::new(pfn, bits));
    }
}

#[cfg(test)]
mod tests;

//! A range of places in one table, for callers that visit many of them: the table is looked up once.

use super::{Bits, Entry, EntryRun, LockedTables, Rights, Shown, Slot};
use crate::event::Event;
use crate::frame::FrameFlags;
use crate::machine::{Machine, Work};
use crate::primitive::{AtomicU64, Ordering::*};
use crate::tlb::{EmptiedPages, stale};
use crate::units::*;
use base::demand;

/// Places of one table of the lowest level, by their distance from the first. Valid while the tree stays locked.
pub struct TableWindow<'t, 'a, M: Machine> {
    tables: &'t mut LockedTables<'a, M>,
    page: Vpn,
    first: Slot,
    cells: &'a [AtomicU64],
    /// Number of places that were emptied, less those that were filled.
    gone: i64,
}

impl<'a, M: Machine> LockedTables<'a, M> {
    /// The places of up to `most` pages from `page` on, up to the end of their table; `None` if no table of the lowest
    /// level holds them.
    #[inline]
    pub fn window(&mut self, page: Vpn, most: u64) -> Option<TableWindow<'_, 'a, M>> {
        let first = self.find_slot(page)?;
        let cells = self.cells(first, most.min(first.room() as u64) as u32);
        Some(TableWindow { tables: self, page, first, cells, gone: 0 })
    }
}

impl<M: Machine> LockedTables<'_, M> {
    /// The place of a page in a table of the lowest level. Not inlined: callers have loops that need the registers.
    #[inline(never)]
    fn find_slot(&self, page: Vpn) -> Option<Slot> {
        Some(self.find(page).filter(|run| !run.is_large())?.slot)
    }
}

impl<'a, M: Machine> TableWindow<'_, 'a, M> {
    /// Number of places.
    #[inline]
    pub fn places(&self) -> usize {
        self.cells.len()
    }

    /// The page that a place is for.
    #[inline]
    pub fn page(&self, at: usize) -> Vpn {
        Vpn(self.page.0 + at as u64)
    }

    /// The table that they are in.
    #[inline]
    pub fn table(&self) -> Pfn {
        self.first.table
    }

    /// The locked tables.
    #[inline]
    pub fn tables(&mut self) -> &mut LockedTables<'a, M> {
        self.tables
    }

    /// Charge work that Linux does before it locks the table for the next place. The places of a window are visited in
    /// one hold of the lock, but in simulated time each has a hold of its own.
    #[inline]
    pub(crate) fn charge_between(&mut self, work: Work) {
        let LockedTables { held, mmu, .. } = self.tables;
        held.between(|| mmu.charge(work, 1));
    }

    /// Read an entry.
    #[inline]
    pub fn read(&self, at: usize) -> Entry {
        Entry::from_raw(self.cells[at].load(Acquire))
    }

    /// The entry at a place, as a run. It maps a page that is a folio by itself.
    #[inline]
    pub fn run(&self, at: usize, entry: Entry) -> EntryRun {
        EntryRun { head: entry.pfn(), ..EntryRun::one(self.page(at), self.first.ahead(at as u32), entry) }
    }

    /// Clear the young bit of a page.
    #[inline]
    pub(crate) fn clear_young(&mut self, at: usize) {
        let cell = &self.cells[at];
        cell.fetch_or(Bits::AGED.bits(), AcqRel);
        let old = Entry::from_raw(cell.fetch_and(!Bits::YOUNG.bits(), AcqRel));
        self.tables.mmu.event(Event::PteClearYoung, [old.pfn().0 as u64, 1, 0, 0]);
    }

    /// Map a page, a folio by itself, at an empty place. Every old translation of its address shows the same content
    /// ([`LockedTables::install_unchanged`]).
    #[inline]
    pub fn install_unchanged(&mut self, at: usize, page: Pfn, shown: Shown, rights: Rights) {
        let frame = &self.tables.mmu.frames[page];
        let flags = frame.flags();
        let cached = shown.is_page_of(frame, 0);
        let single = !flags.intersects(FrameFlags::HEAD | FrameFlags::TAIL);
        demand!(
            cached && single, [page, owner = frame.owner(), flags];
            "{page} of {owner:?}, {flags:?}, is not what its address shows"
        );
        demand!(
            self.gone <= 0, [page];
            "{page} is mapped while emptied places of this window are not flushed"
        );
        self.tables.vacated.check(Vpn(self.page.0 + at as u64), 1);
        let entry = Entry::new(page, Bits::PRESENT | rights.bits_of_entry());
        let old = Entry::from_raw(self.cells[at].swap(entry.raw(), AcqRel));
        debug_assert!(old.is_none(), "the entry for {page} must be cleared before it is installed");
        self.gone -= 1;
    }

    /// Empty a place that maps `page`, a folio by itself, and add it to `emptied`; returns its entry with all marks
    /// that hardware had set by then.
    #[inline]
    pub(crate) fn take(&mut self, at: usize, page: Pfn, emptied: &mut EmptiedPages) -> Entry {
        self.gone += 1;
        let old = Entry::from_raw(self.cells[at].swap(Entry::NONE.raw(), AcqRel));
        emptied.push(
            (self.tables.space, self.first.table),
            page,
            [Bits::WRITE, Bits::DIRTY].map(|bit| old.has(bit)),
        );
        if self.tables.mmu.machine.listens() {
            self.tell(at, page, old);
        }
        old
    }

    /// Report to tracers. Not inlined: on hardware there are none.
    #[inline(never)]
    fn tell(&self, at: usize, page: Pfn, old: Entry) {
        stale(self.tables.mmu, &self.run(at, old).cleared(self.tables.space, old, page), false);
    }
}

impl<M: Machine> Drop for TableWindow<'_, '_, M> {
    #[inline]
    fn drop(&mut self) {
        if self.gone > 0 {
            self.tables.vacated.add(self.page, self.cells.len() as u64);
        }
        debug_assert_eq!(self.first.hold, self.tables.hold.get(), "a window outlives the lock of its table");
        self.tables.count_entries(self.first.table, -self.gone);
    }
}

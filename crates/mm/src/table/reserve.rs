//! Finding or making the place of an entry, with the tables on the way to it.

use super::walk::index;
use super::{Bits, Entry, LEVELS, LockedTables, Slot, new_table};
use crate::alloc::{Allocator, Means, NeedsReclaim};
use crate::machine::{Machine, Work};
use crate::primitive::Ordering::*;
use crate::units::*;

impl<M: Machine> LockedTables<'_, M> {
    /// As [`LockedTables::reserve`], for a caller that has just come in: it hands the lock over and gets it back, so
    /// that what is held has no address and stays in registers.
    #[inline(always)]
    pub(crate) fn reserve_first(
        self,
        alloc: &Allocator,
        page: Vpn,
        means: Means,
    ) -> Result<(Self, Slot), NeedsReclaim> {
        let Some(slot) = self.recent_slot(page) else {
            // Taken apart here: what the other function writes has an address.
            let (tables, slot) = self.reserve_apart(alloc, page, means)?;
            return Ok((tables, slot));
        };
        Ok((self, slot))
    }

    /// The entry of `page`, if it is in the table that was found last.
    #[inline(always)]
    fn recent_slot(&self, page: Vpn) -> Option<Slot> {
        let table = self.tree.recent.get(page)?;
        self.mmu.charge(Work::TableLevel, LEVELS as u64);
        self.enter(table);
        Some(self.slot(table, page, 0))
    }

    #[inline(never)]
    fn reserve_apart(
        mut self,
        alloc: &Allocator,
        page: Vpn,
        means: Means,
    ) -> Result<(Self, Slot), NeedsReclaim> {
        let slot = self.reserve_from_root(alloc, page, means)?;
        Ok((self, slot))
    }

    /// Find or create the entry of `page`, allocating missing tables; or find the large entry that maps it.
    #[inline]
    pub fn reserve(&mut self, alloc: &Allocator, page: Vpn, means: Means) -> Result<Slot, NeedsReclaim> {
        match self.recent_slot(page) {
            Some(slot) => Ok(slot),
            None => self.reserve_from_root(alloc, page, means),
        }
    }

    #[inline(never)]
    fn reserve_from_root(
        &mut self,
        alloc: &Allocator,
        page: Vpn,
        means: Means,
    ) -> Result<Slot, NeedsReclaim> {
        let mut table = self.root();
        for level in (1..LEVELS).rev() {
            let entry = self.read_above(table, page, level);
            if entry.has(Bits::LARGE) {
                return Ok(self.slot(table, page, level));
            }
            if entry.is_present() {
                table = entry.pfn();
                continue;
            }
            if !self.held.is_alone() {
                // Another task may be about to do the same.
                self.become_alone();
                return self.reserve_from_root(alloc, page, means);
            }
            table = self.add_table(alloc, self.slot(table, page, level), means)?;
        }
        self.mmu.charge(Work::TableLevel, LEVELS as u64);
        self.tree.recent.set(page, table);
        self.enter(table);
        Ok(self.slot(table, page, 0))
    }

    /// The entry of a page in a table above the lowest level. If it maps 2 MiB, that table is locked.
    #[inline]
    pub(super) fn read_above(&self, table: Pfn, page: Vpn, level: u32) -> Entry {
        let entry = self.at(table, index(page, level));
        if !entry.has(Bits::LARGE) {
            return entry;
        }
        self.enter(table);
        // It may be gone, but not for a table.
        self.at(table, index(page, level))
    }

    /// Link a new table into an empty place. It takes over the debts for entries of the table above, each of which
    /// mapped as much as the new table does.
    pub(super) fn add_table(
        &mut self,
        alloc: &Allocator,
        slot: Slot,
        means: Means,
    ) -> Result<Pfn, NeedsReclaim> {
        let new = new_table(self.mmu, alloc, means)?;
        self.link_table(slot, new);
        Ok(new)
    }

    pub(super) fn link_table(&mut self, slot: Slot, table: Pfn) {
        self.assert_alone("linking a table");
        self.enter(slot.table);
        self.mmu.frames[table].set_debt(self.mmu.frames[slot.table].debt());
        self.replace(slot, Entry::table(table));
        self.tree.counts.tables.fetch_add(1, Relaxed);
    }
}

//! What aging reads from page tables: where tables exist, and whether they were used.

use super::{Bits, EntryRun, LEVELS, LockedTables, Slot, USER_END};
use crate::machine::{Machine, Work};
use crate::primitive::Ordering::*;
use crate::units::*;

/// What is in the tree at the level of 2 MiB entries.
#[derive(Clone, Copy, Debug)]
pub enum Middle {
    /// Nothing is mapped before this page.
    Hole(Vpn),
    /// One entry maps all 2 MiB.
    Large(EntryRun),
    /// A table of the lowest level.
    Table {
        /// The place of the entry that points to it.
        slot: Slot,
        /// The table.
        table: Pfn,
        /// Whether the entry was used since the last look, if the machine records that.
        young: bool,
    },
}

impl<M: Machine> LockedTables<'_, M> {
    /// What is at the place of the 2 MiB entry of a page: a hole for a space that has ended. Nothing is locked by this.
    pub fn middle(&self, page: Vpn) -> Middle {
        let mut table = self.root();
        if !table.is_some() {
            return Middle::Hole(USER_END);
        }
        for level in (1..LEVELS).rev() {
            let entry = self.at(table, super::walk::index(page, level));
            self.mmu.charge(Work::EntryScan, 1);
            if !entry.is_present() {
                return Middle::Hole(super::walk::behind(page, level));
            }
            let slot = self.slot(table, page, level);
            if entry.has(Bits::LARGE) {
                return Middle::Large(self.large_run(page, level, slot, entry));
            }
            table = entry.pfn();
            if level == 1 {
                return Middle::Table { slot, table, young: entry.has(Bits::YOUNG) };
            }
        }
        unreachable!("the lowest table was found")
    }

    /// Lock the table of a large entry that was found, if it is free and no other is locked. Returns the entry as it is
    /// now.
    pub(crate) fn try_enter_large(&self, found: EntryRun) -> Option<EntryRun> {
        if !self.try_enter(found.slot.table) {
            return None;
        }
        let entry = self.read(found.slot);
        entry.has(Bits::LARGE).then_some(EntryRun { entry, ..found })
    }

    /// Clear the young bit of an entry that points to a table.
    pub(crate) fn clear_table_young(&mut self, slot: Slot) {
        self.cell(slot).fetch_and(!Bits::YOUNG.bits(), AcqRel);
        self.mmu.charge(Work::EntryClear, 1);
    }
}

//! A number for each page, by its name: as many places as there is memory for pages, twice.
//!
//! Two pages may want one place. Which of them has it is said by a policy: the other is not known until it is given up.

use super::PageName;
use crate::arena::Arena;
use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// Numbers by name.
pub(super) struct Table {
    /// Part of the name above, the number below; 0: nobody's.
    cells: Arena<AtomicU64>,
    mask: u64,
}

/// A place in the table.
pub(super) struct TableSlot<'a> {
    cell: &'a AtomicU64,
    tag: u64,
}

impl Table {
    /// For pages of so many frames.
    pub(super) fn new(frames: u64) -> Table {
        Table { cells: Arena::default(), mask: (2 * frames).next_power_of_two() - 1 }
    }

    /// Where a page's number is, or would be.
    pub(super) fn place(&self, name: PageName) -> TableSlot<'_> {
        let cell = self.cells.ensure((name.0 & self.mask) as u32);
        // Never 0.
        TableSlot { cell, tag: name.0 >> 32 << 32 | 1 << 63 }
    }

    /// Change all numbers; who is left with 0 is forgotten.
    pub(super) fn for_each(&self, mut change: impl FnMut(u32) -> u32) {
        for index in 0..=self.mask as u32 {
            let Some(cell) = self.cells.get(index) else { continue };
            let old = cell.load(Relaxed);
            if old != 0 {
                let number = change(old as u32);
                cell.store(if number == 0 { 0 } else { old >> 32 << 32 | u64::from(number) }, Relaxed);
            }
        }
    }
}

impl TableSlot<'_> {
    /// The page's number, if the place is its.
    pub(super) fn own(&self) -> Option<u32> {
        let value = self.cell.load(Relaxed);
        (value >> 32 << 32 == self.tag).then_some(value as u32)
    }

    /// The number of whoever has the place; 0 if nobody has.
    pub(super) fn any(&self) -> u32 {
        self.cell.load(Relaxed) as u32
    }

    /// The place is the page's from now on.
    pub(super) fn set(&self, number: u32) {
        self.cell.store(self.tag | u64::from(number), Relaxed);
    }
}

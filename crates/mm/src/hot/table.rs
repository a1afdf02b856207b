//! A table of numbers by page name, with twice as many places as memory has pages.
//!
//! Two pages may map to one place. The policy decides which of them has it; the other is not recorded until the place
//! is given up.

use super::PageName;
use crate::arena::Arena;
use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// A table of numbers by page name.
pub(super) struct Table {
    /// Part of the name in the high half, the number in the low half; 0: free.
    cells: Arena<AtomicU64>,
    mask: u64,
}

pub(super) struct TableSlot<'a> {
    cell: &'a AtomicU64,
    tag: u64,
}

impl Table {
    /// Create a table for the pages of `frames` frames.
    pub(super) fn new(frames: u64) -> Table {
        Table { cells: Arena::default(), mask: (2 * frames).next_power_of_two() - 1 }
    }

    pub(super) fn place(&self, name: PageName) -> TableSlot<'_> {
        let cell = self.cells.ensure((name.0 & self.mask) as u32);
        // The tag is never 0.
        TableSlot { cell, tag: name.0 >> 32 << 32 | 1 << 63 }
    }

    /// Change all numbers; a place left with 0 becomes free.
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
    /// The page's number, if the page has the place.
    pub(super) fn own(&self) -> Option<u32> {
        let value = self.cell.load(Relaxed);
        (value >> 32 << 32 == self.tag).then_some(value as u32)
    }

    /// The number of the page that has the place; 0 if it is free.
    pub(super) fn any(&self) -> u32 {
        self.cell.load(Relaxed) as u32
    }

    /// Give the place to the page, with this number.
    pub(super) fn set(&self, number: u32) {
        self.cell.store(self.tag | u64::from(number), Relaxed);
    }
}

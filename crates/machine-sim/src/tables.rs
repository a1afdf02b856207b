//! The contents of frames that hold page tables; other frames have no bytes in the simulator.
//!
//! Such a frame has a slot in an array that grows by chunks and never moves, so references into it stay valid. A frame that
//! is used for something else gives its slot back.

use mm::machine::TablePage;
use mm::primitive::{AtomicU64, Ordering::Relaxed};
use mm::units::{Pfn, TABLE_ENTRIES};
use std::cell::{Cell, OnceCell, RefCell};

/// Tables in one chunk.
const CHUNK: usize = 64;

/// The page tables of a machine.
pub(crate) struct Tables {
    /// For each frame, slot + 1; 0: none.
    slots: Box<[Cell<u32>]>,
    chunks: Box<[OnceCell<Box<[TablePage]>>]>,
    used: Cell<u32>,
    free: RefCell<Vec<u32>>,
}

impl Tables {
    /// No tables, for frames below `frames`.
    pub(crate) fn new(frames: usize) -> Tables {
        Tables {
            slots: vec![0u32; frames].into_iter().map(Cell::new).collect(),
            chunks: (0..frames.div_ceil(CHUNK)).map(|_| OnceCell::new()).collect(),
            used: Cell::new(0),
            free: RefCell::new(Vec::new()),
        }
    }

    /// The table in `pfn`, if the frame holds one.
    #[inline]
    pub(crate) fn get(&self, pfn: Pfn) -> Option<&TablePage> {
        match self.slots.get(pfn.index())?.get() {
            0 => None,
            slot => Some(self.slot(slot as usize - 1)),
        }
    }

    /// The table in `pfn`; a frame that held none becomes a table of zeroes.
    #[inline]
    pub(crate) fn get_or_new(&self, pfn: Pfn) -> &TablePage {
        match self.get(pfn) {
            Some(table) => table,
            None => self.claim(pfn),
        }
    }

    /// The frame is used for something else.
    #[inline]
    pub(crate) fn release(&self, pfn: Pfn) {
        let slot = self.slots[pfn.index()].replace(0);
        if slot != 0 {
            self.free.borrow_mut().push(slot - 1);
        }
    }

    #[inline]
    fn slot(&self, slot: usize) -> &TablePage {
        &self.chunks[slot / CHUNK].get().expect("a slot in use must be in an allocated chunk")[slot % CHUNK]
    }

    #[cold]
    fn claim(&self, pfn: Pfn) -> &TablePage {
        let reused = self.free.borrow_mut().pop();
        let slot = reused.unwrap_or_else(|| self.used.replace(self.used.get() + 1));
        self.slots[pfn.index()].set(slot + 1);
        let empty = || std::array::from_fn::<_, TABLE_ENTRIES, _>(|_| AtomicU64::new(0));
        self.chunks[slot as usize / CHUNK].get_or_init(|| (0..CHUNK).map(|_| empty()).collect());
        let table = self.slot(slot as usize);
        if reused.is_some() {
            table.iter().for_each(|entry| entry.store(0, Relaxed));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_slot_is_cleared_for_its_next_table() {
        let tables = Tables::new(1000);
        tables.get_or_new(Pfn(7))[3].store(9, Relaxed);
        tables.get_or_new(Pfn(8))[3].store(8, Relaxed);
        assert_eq!(tables.get(Pfn(7)).unwrap()[3].load(Relaxed), 9);
        tables.release(Pfn(7));
        assert!(tables.get(Pfn(7)).is_none());
        assert_eq!(tables.get_or_new(Pfn(900))[3].load(Relaxed), 0);
        assert_eq!(tables.get(Pfn(8)).unwrap()[3].load(Relaxed), 8);
        assert!(tables.get(Pfn(5000)).is_none());
    }
}

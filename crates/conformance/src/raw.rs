//! Frames and page tables that the suite builds itself, in addition to the memory manager's.
//!
//! The suite may change the root of a CPU that runs a task without a space under the memory manager only
//! while no space is loaded there. That is so while no space exists. The machine's own root must be back when
//! the check ends.

use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::report::{NotPassed, Verdict};
use mm::alloc::{AllocRequest, Watermark};
use mm::frame::Mobility;
use mm::lock::Lock;
use mm::machine::{Asid, Flush, Machine};
use mm::primitive::Ordering::*;
use mm::table::{Bits, Entry};
use mm::units::*;
use std_alloc::format;
use std_alloc::vec::Vec;

/// An address in the middle of what programs can address, with a different index at each level.
const BASE: Vpn = Vpn(7 << 27 | 5 << 18 | 3 << 9);
/// Levels of tables.
const LEVELS: usize = 4;
/// Different words of a page that can be compressed.
const FEW: usize = 5;

/// Bits of an ordinary writable page that has been used before.
pub(crate) const ORDINARY: Bits = Bits::PRESENT.union(Bits::WRITE).union(Bits::USER).union(Bits::YOUNG);

/// Free memory that a check has taken. It is freed on drop.
pub(crate) struct Frames<'k, H: Harness> {
    kit: &'k Kit<'k, H>,
    taken: Lock<Vec<Pfn>>,
}

impl<'k, H: Harness> Frames<'k, H> {
    pub fn new(kit: &'k Kit<'k, H>) -> Frames<'k, H> {
        Frames { kit, taken: Lock::default() }
    }

    /// Take a block of frames with unknown content.
    pub fn take(&self, order: Order) -> Result<Pfn, NotPassed> {
        let mm = self.kit.harness.mm();
        let request = AllocRequest::of_kernel(Mobility::Unmovable, order, mm.mmu().node());
        let no_memory = |_| NotPassed::Failed(format!("no free block of {} pages", order.frames()));
        let pfn = mm.core().alloc.take(mm.mmu(), &request, Watermark::Min).map_err(no_memory)?.into_pfn();
        self.taken.lock().push(pfn);
        Ok(pfn)
    }

    /// Take a frame.
    pub fn one(&self) -> Result<Pfn, NotPassed> {
        self.take(Order::ZERO)
    }

    /// Take a frame and make it a table.
    pub fn table(&self) -> Result<Pfn, NotPassed> {
        let pfn = self.one()?;
        self.kit.machine().zero(pfn, 1);
        self.kit.machine().table(pfn);
        Ok(pfn)
    }
}

impl<H: Harness> Drop for Frames<'_, H> {
    fn drop(&mut self) {
        let mm = self.kit.harness.mm();
        let taken = core::mem::take(&mut *self.taken.lock());
        for pfn in taken {
            assert!(mm.mmu().frames[pfn].put(1), "{pfn} of the suite must have no other user");
            mm.core().alloc.free(mm.mmu(), &[pfn]);
        }
    }
}

/// Tables that map up to 512 pages.
pub(crate) struct Tree<'k, H: Harness> {
    kit: &'k Kit<'k, H>,
    pub frames: Frames<'k, H>,
    /// By level; the root is last.
    tables: [Pfn; LEVELS],
}

impl<'k, H: Harness> Tree<'k, H> {
    /// Tables that map nothing.
    pub fn new(kit: &'k Kit<'k, H>) -> Result<Tree<'k, H>, NotPassed> {
        let frames = Frames::new(kit);
        let mut tables = [Pfn::NONE; LEVELS];
        for table in &mut tables {
            *table = frames.table()?;
        }
        let tree = Tree { kit, frames, tables };
        (1..LEVELS).for_each(|level| tree.link(level, tree.tables[level - 1]));
        Ok(tree)
    }

    /// The root table.
    pub fn root(&self) -> Pfn {
        self.tables[LEVELS - 1]
    }

    /// The page of an entry in the lowest table.
    pub fn page(&self, index: usize) -> Vpn {
        Vpn(BASE.0 + index as u64)
    }

    /// Let the table of `level` point to `below`.
    pub fn link(&self, level: usize, below: Pfn) {
        let at = (BASE.0 >> (9 * level)) as usize % TABLE_ENTRIES;
        self.write_entry(self.tables[level], at, below, ORDINARY);
    }

    /// The entry of the table of `level` on the path to the pages.
    pub fn upper_entry(&self, level: usize) -> Entry {
        let at = (BASE.0 >> (9 * level)) as usize % TABLE_ENTRIES;
        Entry::from_raw(self.kit.machine().table(self.tables[level])[at].load(Acquire))
    }

    /// Change the bits of that entry.
    pub fn set_upper_entry(&self, level: usize, bits: Bits) {
        let pfn = self.upper_entry(level).pfn();
        let at = (BASE.0 >> (9 * level)) as usize % TABLE_ENTRIES;
        self.write_entry(self.tables[level], at, pfn, bits);
    }

    /// A lowest table outside the tree; fill it with [`Tree::write_entry`].
    pub fn new_leaf_table(&self) -> Result<Pfn, NotPassed> {
        self.frames.table()
    }

    /// Write an entry into a table.
    pub fn write_entry(&self, table: Pfn, index: usize, pfn: Pfn, bits: Bits) {
        let raw = u64::from(pfn.0) << PAGE_SHIFT | bits.bits();
        self.kit.machine().table(table)[index].store(raw, Release);
    }

    /// Map a page.
    pub fn map(&self, index: usize, pfn: Pfn, bits: Bits) {
        self.write_entry(self.tables[0], index, pfn, bits);
    }

    /// Map a page to a new frame that holds `value`.
    pub fn map_new(&self, index: usize, value: u64) -> Result<Pfn, NotPassed> {
        let pfn = self.frames.one()?;
        self.map(index, pfn, ORDINARY);
        ensure!(self.store(index, value), "a store to page {index} faults, which is mapped for writing");
        Ok(pfn)
    }

    /// The entry of a page.
    pub fn entry(&self, index: usize) -> Entry {
        Entry::from_raw(self.kit.machine().table(self.tables[0])[index].load(Acquire))
    }

    /// Load the root of the tree on this CPU.
    pub fn load_root(&self, asid: Asid, keep: bool) -> LoadedRoot<'k, H> {
        self.kit.machine().load_root(self.root(), asid, keep);
        LoadedRoot(self.kit)
    }

    /// Load the first word of a page.
    pub fn load(&self, index: usize) -> Option<u64> {
        self.kit.harness.load(self.page(index), 0)
    }

    /// Store to the first word of a page.
    pub fn store(&self, index: usize, value: u64) -> bool {
        self.kit.harness.store(self.page(index), 0, value)
    }

    /// Fill a page with words that differ by page and seed.
    pub fn fill(&self, index: usize, seed: u64) -> Verdict {
        self.store_all(index, |word| pattern(seed, index, word))
    }

    fn store_all(&self, index: usize, value: impl Fn(usize) -> u64) -> Verdict {
        for word in 0..self.kit.harness.words() {
            let stored = self.kit.harness.store(self.page(index), word, value(word));
            ensure!(stored, "a store to word {word} of page {index} faults");
        }
        Ok(())
    }

    /// Fill a page with words of which few differ, so that it can be compressed.
    pub fn repeat(&self, index: usize, seed: u64) -> Verdict {
        self.store_all(index, |word| pattern(seed, index, word % FEW))
    }

    /// Check that a page holds what [`Tree::repeat`] filled page `of` with.
    pub fn repeats(&self, index: usize, seed: u64, of: usize) -> Verdict {
        self.compare(index, |word| pattern(seed, of, word % FEW))
    }

    /// Fill a page with one word.
    pub fn one_word(&self, index: usize, value: u64) -> Verdict {
        self.store_all(index, |_| value)
    }

    /// Check that a page holds one word everywhere.
    pub fn holds_one_word(&self, index: usize, value: u64) -> Verdict {
        self.compare(index, |_| value)
    }

    /// Check that a page holds what page `of` was filled with.
    pub fn holds(&self, index: usize, seed: u64, of: usize) -> Verdict {
        self.compare(index, |word| pattern(seed, of, word))
    }

    /// Check that a page holds zeroes.
    pub fn holds_zeroes(&self, index: usize) -> Verdict {
        self.compare(index, |_| 0)
    }

    fn compare(&self, index: usize, expected: impl Fn(usize) -> u64) -> Verdict {
        for word in 0..self.kit.harness.words() {
            let (got, expected) = (self.kit.harness.load(self.page(index), word), expected(word));
            let right = got == Some(expected);
            ensure!(right, "word {word} of page {index} holds {got:x?}, not {expected:x}");
        }
        Ok(())
    }
}

/// The words that [`Tree::fill`] stores; never 0.
pub(crate) fn pattern(seed: u64, page: usize, word: usize) -> u64 {
    (seed << 40 | (page as u64) << 12 | word as u64) << 1 | 1
}

/// While this exists, a root of the suite is loaded on this CPU. On drop the machine's own root is loaded
/// again.
pub(crate) struct LoadedRoot<'k, H: Harness>(&'k Kit<'k, H>);

impl<H: Harness> Drop for LoadedRoot<'_, H> {
    fn drop(&mut self) {
        let machine = self.0.machine();
        machine.load_root(Pfn::NONE, Asid(0), false);
        machine.flush(Flush::All);
    }
}

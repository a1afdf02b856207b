//! Frames and page tables of the suite's own, beside the memory manager's.
//!
//! A CPU that runs a task of no space may have its root changed under the memory manager, as long as nobody's space is
//! loaded there, which holds while no space exists; and as long as the machine's own root is back when the check ends.

use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::report::{Stop, Verdict};
use mm::alloc::{AllocRequest, Reserve, Watermark};
use mm::frame::Mobility;
use mm::lock::Lock;
use mm::machine::{Asid, Flush, Machine, ZoneKind};
use mm::primitive::Ordering::*;
use mm::table::{Bits, Entry};
use mm::units::*;
use std_alloc::format;
use std_alloc::vec::Vec;

/// Somewhere in the middle of what programs can address, with an index of its own at each level.
const BASE: Vpn = Vpn(7 << 27 | 5 << 18 | 3 << 9);
/// Levels of tables.
const LEVELS: usize = 4;

/// Bits of an ordinary page that can be written, as if it had been used before.
pub(crate) const ORDINARY: Bits = Bits::PRESENT.union(Bits::WRITE).union(Bits::USER).union(Bits::YOUNG);

/// Free memory that a check has taken; given back when dropped.
pub(crate) struct Frames<'k, H: Harness> {
    kit: &'k Kit<'k, H>,
    taken: Lock<Vec<Pfn>>,
}

impl<'k, H: Harness> Frames<'k, H> {
    pub fn new(kit: &'k Kit<'k, H>) -> Frames<'k, H> {
        Frames { kit, taken: Lock::default() }
    }

    /// A block of frames; what it holds is not known.
    pub fn take(&self, order: Order) -> Result<Pfn, Stop> {
        let mm = self.kit.harness.mm();
        let request = AllocRequest {
            order,
            mobility: Mobility::Unmovable,
            node: mm.mmu().node(),
            highest: ZoneKind::Normal,
            reserve: Reserve::None,
            this_node_only: false,
            among: Nodes::ALL,
            atomic: false,
            mixes: true,
        };
        let short = |_| Stop::Failed(format!("no free block of {} pages", order.frames()));
        let pfn = mm.core().alloc.take(mm.mmu(), &request, Watermark::Min).map_err(short)?.into_pfn();
        self.taken.lock().push(pfn);
        Ok(pfn)
    }

    /// A frame.
    pub fn one(&self) -> Result<Pfn, Stop> {
        self.take(Order::ZERO)
    }

    /// A frame that can be used as a table.
    pub fn table(&self) -> Result<Pfn, Stop> {
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
            assert!(mm.mmu().frames[pfn].put(1), "a frame of the suite is used by somebody else");
            mm.core().alloc.free(mm.mmu(), &[pfn]);
        }
    }
}

/// Tables that map up to 512 pages.
pub(crate) struct Tree<'k, H: Harness> {
    kit: &'k Kit<'k, H>,
    pub frames: Frames<'k, H>,
    /// By level; the last is the root.
    tables: [Pfn; LEVELS],
}

impl<'k, H: Harness> Tree<'k, H> {
    /// Tables that map nothing.
    pub fn new(kit: &'k Kit<'k, H>) -> Result<Tree<'k, H>, Stop> {
        let frames = Frames::new(kit);
        let mut tables = [Pfn::NONE; LEVELS];
        for table in &mut tables {
            *table = frames.table()?;
        }
        let tree = Tree { kit, frames, tables };
        (1..LEVELS).for_each(|level| tree.point(level, tree.tables[level - 1]));
        Ok(tree)
    }

    /// The root table.
    pub fn root(&self) -> Pfn {
        self.tables[LEVELS - 1]
    }

    /// The page of an entry of the lowest table.
    pub fn page(&self, index: usize) -> Vpn {
        Vpn(BASE.0 + index as u64)
    }

    /// Make the table of `level` point to another one below.
    pub fn point(&self, level: usize, below: Pfn) {
        let at = (BASE.0 >> (9 * level)) as usize % TABLE_ENTRIES;
        self.put(self.tables[level], at, below, ORDINARY);
    }

    /// What the table of `level` says on the way to the pages.
    pub fn way(&self, level: usize) -> Entry {
        let at = (BASE.0 >> (9 * level)) as usize % TABLE_ENTRIES;
        Entry::from_raw(self.kit.machine().table(self.tables[level])[at].load(Acquire))
    }

    /// Change the entry of `level` on the way.
    pub fn set_way(&self, level: usize, bits: Bits) {
        let pfn = self.way(level).pfn();
        let at = (BASE.0 >> (9 * level)) as usize % TABLE_ENTRIES;
        self.put(self.tables[level], at, pfn, bits);
    }

    /// A lowest table that is not in the tree; to be filled with [`Tree::put`].
    pub fn spare(&self) -> Result<Pfn, Stop> {
        self.frames.table()
    }

    /// Write an entry into any table.
    pub fn put(&self, table: Pfn, index: usize, pfn: Pfn, bits: Bits) {
        let raw = u64::from(pfn.0) << PAGE_SHIFT | bits.bits();
        self.kit.machine().table(table)[index].store(raw, Release);
    }

    /// Map a page.
    pub fn map(&self, index: usize, pfn: Pfn, bits: Bits) {
        self.put(self.tables[0], index, pfn, bits);
    }

    /// Map it to a frame of its own that holds `value`.
    pub fn map_new(&self, index: usize, value: u64) -> Result<Pfn, Stop> {
        let pfn = self.frames.one()?;
        self.map(index, pfn, ORDINARY);
        ensure!(
            self.store(index, value),
            "a store to page {index} of a tree faults that maps it for writing"
        );
        Ok(pfn)
    }

    /// What the table says of a page.
    pub fn entry(&self, index: usize) -> Entry {
        Entry::from_raw(self.kit.machine().table(self.tables[0])[index].load(Acquire))
    }

    /// Load the tree on this CPU.
    pub fn load_root(&self, asid: Asid, keep: bool) -> Loaded<'k, H> {
        self.kit.machine().load_root(self.root(), asid, keep);
        Loaded(self.kit)
    }

    /// Load the first word of a page.
    pub fn load(&self, index: usize) -> Option<u64> {
        self.kit.harness.load(self.page(index), 0)
    }

    /// Store to the first word of a page.
    pub fn store(&self, index: usize, value: u64) -> bool {
        self.kit.harness.store(self.page(index), 0, value)
    }

    /// Fill a page with words that are different in each page of each seed.
    pub fn fill(&self, index: usize, seed: u64) -> Verdict {
        for word in 0..self.kit.harness.words() {
            let stored = self.kit.harness.store(self.page(index), word, pattern(seed, index, word));
            ensure!(stored, "a store to word {word} of page {index} faults");
        }
        Ok(())
    }

    /// Does a page hold what page `of` was filled with?
    pub fn holds(&self, index: usize, seed: u64, of: usize) -> Verdict {
        self.compare(index, |word| pattern(seed, of, word))
    }

    /// Does a page hold zeroes?
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

/// What [`Tree::fill`] stores; never 0.
pub(crate) fn pattern(seed: u64, page: usize, word: usize) -> u64 {
    (seed << 40 | (page as u64) << 12 | word as u64) << 1 | 1
}

/// A root of the suite is loaded here; the machine's own is when this is dropped.
pub(crate) struct Loaded<'k, H: Harness>(&'k Kit<'k, H>);

impl<H: Harness> Drop for Loaded<'_, H> {
    fn drop(&mut self) {
        let machine = self.0.machine();
        machine.load_root(Pfn::NONE, Asid(0), false);
        machine.flush(Flush::All);
    }
}

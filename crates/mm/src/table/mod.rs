//! Page tables: four levels of 512 entries, in x86-64's format, in frames from the allocator.
//!
//! Every space has one tree and one lock for it. Hardware reads the tree at any time and sets young and dirty bits, so
//! entries are changed with single atomic operations, and what hardware set meanwhile is never lost.
//!
//! A table's frame counts its entries that are not empty in its private word, so that an empty table is known at once.
//! A present entry that maps a page holds one reference of its folio and counts in its mapcount; the room above that
//! sets and clears entries keeps both, this room keeps only the tree and the space's resident counts.

pub mod entry;
mod walk;

pub use entry::{Bits, Entry};
pub use walk::Leaf;

use crate::alloc::{Allocator, Mark, NeedsReclaim, Request, Reserve};
use crate::arena::Arena;
use crate::base::Base;
use crate::frame::{FrameFlags, Mobility};
use crate::lock::{Guard, Lock};
use crate::machine::{Machine, Work, ZoneKind};
use crate::primitive::{AtomicU32, Ordering::*};
use crate::stat::Stat;
use crate::tlb::Gather;
use crate::units::*;
use core::cell::Cell;

/// Levels of a tree; level 0 holds the entries of pages.
pub const LEVELS: u32 = 4;
/// log2 of the entries of a table.
const LEVEL_BITS: u32 = 9;
/// First page number beyond user space (47 bits of address).
pub const USER_END: Vpn = Vpn(1 << (47 - PAGE_SHIFT));

/// What kinds of page a space has resident.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resident {
    /// Anonymous pages.
    Anon,
    /// Pages of files on devices.
    File,
    /// Pages of shmem.
    Shmem,
    /// Entries in swap.
    Swap,
}

/// Counts of one space, guarded by its table lock.
#[derive(Default)]
pub struct Counts {
    /// Pages by [`Resident`].
    resident: [i64; 4],
    /// Page-table pages.
    tables: u32,
    recent: Recent,
}

/// The lowest table that was found last, and its pages' numbers without their low bits: use stays in a table for a
/// while.
struct Recent(Cell<(u64, Pfn)>);

impl Default for Recent {
    fn default() -> Self {
        // No page has these high bits.
        Recent(Cell::new((u64::MAX, Pfn::NONE)))
    }
}

impl Recent {
    #[inline]
    fn get(&self, page: Vpn) -> Option<Slot> {
        let (high, table) = self.0.get();
        (high == page.0 >> LEVEL_BITS).then(|| Slot { table, index: walk::index(page, 0) as u16 })
    }

    #[inline]
    fn set(&self, page: Vpn, table: Pfn) {
        self.0.set((page.0 >> LEVEL_BITS, table));
    }

    fn forget(&mut self) {
        *self = Recent::default();
    }
}

impl Counts {
    /// Pages of one kind.
    pub fn get(&self, kind: Resident) -> i64 {
        self.resident[kind as usize]
    }

    /// Pages in memory.
    pub fn rss(&self) -> u64 {
        self.resident[..3].iter().sum::<i64>().max(0) as u64
    }

    /// Page-table pages.
    pub fn tables(&self) -> u32 {
        self.tables
    }

    /// Count pages that came or went.
    #[inline]
    pub fn add(&mut self, kind: Resident, by: i64) {
        self.resident[kind as usize] += by;
    }
}

/// The tree of one space.
struct Tree {
    root: AtomicU32,
    counts: Lock<Counts>,
}

impl Default for Tree {
    fn default() -> Self {
        Tree { root: AtomicU32::new(Pfn::NONE.0), counts: Lock::default() }
    }
}

/// The trees of all spaces, by [`SpaceId`].
#[derive(Default)]
pub struct Tables {
    trees: Arena<Tree>,
}

/// Where one entry stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    table: Pfn,
    index: u16,
}

/// The locked tree of a space.
pub struct Locked<'a, M> {
    base: &'a Base<M>,
    root: Pfn,
    counts: Guard<'a, Counts>,
}

impl Tables {
    /// Give a new space an empty tree.
    pub fn create<M: Machine>(
        &self,
        base: &Base<M>,
        alloc: &Allocator,
        space: SpaceId,
        mark: Mark,
        reserve: Reserve,
    ) -> Result<(), NeedsReclaim> {
        let tree = self.trees.ensure(space.0);
        let root = new_table(base, alloc, mark, reserve)?;
        *tree.counts.lock() = Counts { tables: 1, ..Counts::default() };
        tree.root.store(root.0, Release);
        Ok(())
    }

    /// Take the tree of a space that ends. All of its entries have been cleared; what tables are left goes to `gather`.
    pub fn destroy<M: Machine>(&self, base: &Base<M>, space: SpaceId, gather: &mut Gather) {
        let mut locked = self.lock(base, space);
        locked.take_empty_tables(Vpn(0), USER_END, gather);
        let counts = &*locked.counts;
        assert_eq!((counts.resident, counts.tables), ([0; 4], 1), "{space} ends with pages or tables left");
        let root = Pfn(self.trees[space.0].root.swap(Pfn::NONE.0, AcqRel));
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
    pub fn lock<'a, M: Machine>(&'a self, base: &'a Base<M>, space: SpaceId) -> Locked<'a, M> {
        let tree = &self.trees[space.0];
        let counts = tree.counts.lock();
        Locked { base, root: Pfn(tree.root.load(Acquire)), counts }
    }

    /// Free tables that a [`Gather`] brought, after its flush.
    pub fn free_tables<M: Machine>(&self, base: &Base<M>, alloc: &Allocator, tables: &[Pfn]) {
        for &table in tables {
            base.frames[table].clear(FrameFlags::TABLE);
            base.frames[table].set_private(0);
            assert!(base.frames[table].put(1));
            alloc.free(base, table);
        }
        base.count(Stat::NrPageTablePages, -(tables.len() as i64));
    }
}

fn new_table<M: Machine>(
    base: &Base<M>,
    alloc: &Allocator,
    mark: Mark,
    reserve: Reserve,
) -> Result<Pfn, NeedsReclaim> {
    let request = Request {
        order: Order::ZERO,
        mobility: Mobility::Unmovable,
        node: base.node(),
        highest: ZoneKind::Normal,
        reserve,
        this_node_only: false,
    };
    let table = alloc.take(base, &request, mark)?.into_pfn();
    base.machine.zero(table, 1);
    // Reached once before hardware may walk it: a machine that keeps tables apart from other frames now knows it.
    let _ = base.machine.table(table);
    base.charge(Work::ZeroPage, 1);
    base.charge(Work::TableAlloc, 1);
    base.frames[table].set(FrameFlags::TABLE);
    base.frames[table].set_private(0);
    base.count(Stat::NrPageTablePages, 1);
    Ok(table)
}

impl<'a, M: Machine> Locked<'a, M> {
    /// The space's counts.
    pub fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }

    #[inline]
    fn at(&self, table: Pfn, index: usize) -> Entry {
        Entry(self.base.machine.table(table)[index].load(Acquire))
    }

    /// Read an entry.
    #[inline]
    pub fn read(&self, slot: Slot) -> Entry {
        self.at(slot.table, slot.index as usize)
    }

    /// Replace an entry that hardware cannot use (none or swap), or remove one, returning what was there with all
    /// bits that hardware has set up to now.
    #[inline]
    pub fn replace(&mut self, slot: Slot, entry: Entry) -> Entry {
        let cell = &self.base.machine.table(slot.table)[slot.index as usize];
        let old = Entry(cell.swap(entry.0, AcqRel));
        if old.is_none() != entry.is_none() {
            let frame = &self.base.frames[slot.table];
            let used = frame.private();
            frame.set_private(if old.is_none() { used + 1 } else { used - 1 });
        }
        old
    }

    /// Set bits of a present entry.
    #[inline]
    pub fn set_bits(&mut self, slot: Slot, bits: Bits) -> Entry {
        Entry(self.base.machine.table(slot.table)[slot.index as usize].fetch_or(bits.bits(), AcqRel))
    }

    /// Clear bits of a present entry; returns the entry as it was.
    #[inline]
    pub fn clear_bits(&mut self, slot: Slot, bits: Bits) -> Entry {
        Entry(self.base.machine.table(slot.table)[slot.index as usize].fetch_and(!bits.bits(), AcqRel))
    }

    /// Make the way to the entry of `page`, with new tables where they are missing.
    pub fn reserve(
        &mut self,
        alloc: &Allocator,
        page: Vpn,
        mark: Mark,
        reserve: Reserve,
    ) -> Result<Slot, NeedsReclaim> {
        if let Some(slot) = self.counts.recent.get(page) {
            self.base.charge(Work::TableLevel, LEVELS as u64);
            return Ok(slot);
        }
        let mut table = self.root;
        for level in (1..LEVELS).rev() {
            let slot = Slot { table, index: walk::index(page, level) as u16 };
            let entry = self.read(slot);
            debug_assert!(!entry.has(Bits::LARGE), "a page inside a large entry");
            table = if entry.is_present() {
                entry.pfn()
            } else {
                let new = new_table(self.base, alloc, mark, reserve)?;
                self.replace(slot, Entry::table(new));
                self.counts.tables += 1;
                new
            };
        }
        self.base.charge(Work::TableLevel, LEVELS as u64);
        self.counts.recent.set(page, table);
        Ok(Slot { table, index: walk::index(page, 0) as u16 })
    }

    /// Free frames of an aligned 2 MiB range: install one large entry. The range has no table.
    pub fn map_large(
        &mut self,
        alloc: &Allocator,
        page: Vpn,
        entry: Entry,
        mark: Mark,
        reserve: Reserve,
    ) -> Result<(), NeedsReclaim> {
        assert!(page.0.is_multiple_of(TABLE_ENTRIES as u64) && entry.is_present());
        let mut table = self.root;
        for level in (2..LEVELS).rev() {
            let slot = Slot { table, index: walk::index(page, level) as u16 };
            let next = self.read(slot);
            table = if next.is_present() {
                next.pfn()
            } else {
                let new = new_table(self.base, alloc, mark, reserve)?;
                self.replace(slot, Entry::table(new));
                self.counts.tables += 1;
                new
            };
        }
        let old = self.replace(Slot { table, index: walk::index(page, 1) as u16 }, entry.with(Bits::LARGE));
        assert!(old.is_none(), "a large entry over {old:?}");
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! What the kernel's own records take of memory.
//!
//! Records are on the heap, which is not of the machine's memory. But in Linux they are in slabs: blocks of frames that
//! cannot be moved. A slab that finds no free block of its mobility group takes one from movable memory and boosts the
//! watermarks for it, so a program that reads many files has less memory, and more reclaim, than its pages alone would
//! have. So records are counted here, and as many frames are taken as their slabs would have.
//!
//! A slab is as large as Linux makes it for a record of this size on a machine with as many CPUs; if there is no block
//! of that order, it is as small as possible. Records are taken to be in as few slabs as possible, and a little
//! empty room stays ([`KEPT`]). A slab for which there is no memory at all is taken with a later record.
//!
//! Source: `calculate_order`, `allocate_slab` and `__slab_free` in mm/slub.c of Linux 6.12.

use crate::alloc::{AllocRequest, Allocator, Watermark};
use crate::frame::Mobility;
use crate::lock::Lock;
use crate::machine::Machine;
use crate::mmu::Mmu;
use crate::stat::Stat;
use crate::units::*;
use base::named_table;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec::Vec;

named_table! {
    /// A kind of record, with the name of its cache in /proc/slabinfo.
    Record {
        TreeNode "radix_tree_node" "64 places of a file's cache or of the swap cache";
        BufferHead "buffer_head" "a page of a file on a device that was written since it is cached";
        ZsHandle "zs_handle" "an object of compressed memory";
        Zspage "zspage" "frames that share objects of compressed memory";
        ZswapEntry "zswap_entry" "a page in zswap";
    }
}

impl Record {
    /// Bytes of a record on x86-64.
    const fn size(self) -> u64 {
        match self {
            Record::TreeNode => 576,
            Record::BufferHead => 104,
            Record::ZsHandle => 8,
            Record::Zspage | Record::ZswapEntry => 56,
        }
    }
}

/// Frames' worth of empty room that stays. In Linux this many slabs do (MIN_PARTIAL), of whatever order.
const KEPT: u64 = 5;
/// The largest order of a slab (slub_max_order).
const LARGEST: u8 = 3;

/// The order of slabs for records of `size` bytes on a machine with this many CPUs: the smallest with room for several
/// records for each doubling of the CPUs that leaves little over.
fn order_of_slabs(size: u64, cpus: usize) -> Order {
    let most = (PAGE_SIZE << LARGEST) / size;
    let least = (4 * (u64::from(cpus.ilog2()) + 2)).min(most);
    let smallest = (least * size).div_ceil(PAGE_SIZE).next_power_of_two().ilog2() as u8;
    let leaves = |order: u8, share: u64| {
        let bytes = PAGE_SIZE << order;
        bytes % size <= bytes / share
    };
    let found =
        [16, 8, 4, 2].into_iter().find_map(|share| (smallest..=LARGEST).find(|&order| leaves(order, share)));
    Order(found.unwrap_or(LARGEST))
}

/// The records of a kind.
#[derive(Default)]
struct SlabCache {
    /// Below 0 for a moment if another CPU tells of an end before this one tells of the beginning.
    records: i64,
    /// Records for which its slabs have room.
    room: u64,
    slabs: Vec<Pfn>,
}

/// The slabs of all records.
pub struct Slabs {
    orders: [Order; Record::COUNT],
    caches: [Lock<SlabCache>; Record::COUNT],
}

impl Slabs {
    /// No records, on a machine with this many CPUs.
    pub(crate) fn new(cpus: usize) -> Slabs {
        let mut orders = [Order::ZERO; Record::COUNT];
        for &record in Record::ALL {
            orders[record as usize] = order_of_slabs(record.size(), cpus);
        }
        Slabs { orders, caches: Default::default() }
    }

    /// The number of records of a kind has changed.
    #[inline]
    pub(crate) fn change<M: Machine>(&self, mmu: &Mmu<M>, alloc: &Allocator, record: Record, by: i64) {
        if by != 0 {
            self.change_slow(mmu, alloc, record, by);
        }
    }

    fn change_slow<M: Machine>(&self, mmu: &Mmu<M>, alloc: &Allocator, record: Record, by: i64) {
        let mut cache = self.caches[record as usize].lock();
        cache.records += by;
        let records = cache.records.max(0) as u64;
        let per_frame = PAGE_SIZE / record.size();
        while cache.room < records {
            let Some(slab) = take(mmu, alloc, self.orders[record as usize]) else { return };
            count(mmu, mmu.frames[slab].order(), 1);
            cache.room += records_of(mmu.frames[slab].order(), record);
            cache.slabs.push(slab);
        }
        while let Some(&slab) = cache.slabs.last()
            && let frame = &mmu.frames[slab]
            && let order = frame.order()
            && cache.room >= records + records_of(order, record) + KEPT * per_frame
        {
            cache.slabs.pop();
            cache.room -= records_of(order, record);
            count(mmu, order, -1);
            assert!(frame.put(1), "a slab has one reference");
            alloc.free(mmu, &[slab]);
        }
    }

    /// Frames of all slabs.
    #[cfg(test)]
    pub(crate) fn frames<M: Machine>(&self, mmu: &Mmu<M>) -> u64 {
        let frames = |cache: &Lock<SlabCache>| -> u64 {
            cache.lock().slabs.iter().map(|&slab| u64::from(mmu.frames[slab].pages())).sum()
        };
        self.caches.iter().map(frames).sum()
    }

    /// Check the number of records of a kind.
    pub(crate) fn check(&self, record: Record, found: u64) -> Result<(), String> {
        let counted = self.caches[record as usize].lock().records;
        if counted == found as i64 {
            Ok(())
        } else {
            Err(format!("{counted} {} are counted, {found} found", record.name()))
        }
    }
}

/// Records that a slab of this order has room for.
fn records_of(order: Order, record: Record) -> u64 {
    (u64::from(order.frames()) * PAGE_SIZE) / record.size()
}

fn count<M: Machine>(mmu: &Mmu<M>, order: Order, slabs: i64) {
    mmu.count(Stat::NrSlabReclaimable, slabs * i64::from(order.frames()));
}

/// Take a slab of the order, or of the smallest one.
fn take<M: Machine>(mmu: &Mmu<M>, alloc: &Allocator, order: Order) -> Option<Pfn> {
    let take = |order, mark| {
        let request = AllocRequest::of_kernel(Mobility::Reclaimable, order, mmu.node());
        alloc.take(mmu, &request, mark).ok()
    };
    // Nobody is asked to make room for a large one.
    let large = (order > Order::ZERO).then(|| take(order, Watermark::Min)).flatten();
    let slab =
        large.or_else(|| take(Order::ZERO, Watermark::Low)).or_else(|| take(Order::ZERO, Watermark::Min));
    Some(slab?.into_pfn())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knobs::Knobs;
    use crate::testing::TestMachine;

    #[test]
    fn slabs_have_linuxs_sizes() {
        let of = |record: Record, cpus| {
            let order = order_of_slabs(record.size(), cpus);
            (order.0, records_of(order, record))
        };
        // As /proc/slabinfo has them: objects for each slab, and pages.
        assert_eq!([2, 4, 64].map(|cpus| of(Record::TreeNode, cpus)), [(1, 14), (2, 28), (3, 56)]);
        assert_eq!([1, 4, 64].map(|cpus| of(Record::BufferHead, cpus)), [(0, 39); 3]);
    }

    #[test]
    fn records_take_slabs_and_give_them_back() {
        let mmu = Mmu::new(TestMachine::simple(2, 1024), Knobs::default());
        let alloc = Allocator::new(&mmu).unwrap();
        let slabs = Slabs::new(2);
        let change = |by| {
            slabs.change(&mmu, &alloc, Record::TreeNode, by);
            (slabs.frames(&mmu), mmu.stats.read(Stat::NrSlabReclaimable))
        };
        assert_eq!([change(14), change(1), change(140)], [(2, 2), (4, 4), (24, 24)]);
        assert_eq!(change(-155), (6, 6), "some stay although they are empty");
        slabs.check(Record::TreeNode, 0).unwrap();
        alloc.validate(&mmu).unwrap();
    }

    #[test]
    fn an_end_may_be_told_of_before_its_beginning() {
        let mmu = Mmu::new(TestMachine::simple(2, 1024), Knobs::default());
        let alloc = Allocator::new(&mmu).unwrap();
        let slabs = Slabs::new(2);
        slabs.change(&mmu, &alloc, Record::TreeNode, -1);
        slabs.change(&mmu, &alloc, Record::TreeNode, 1);
        assert_eq!((slabs.frames(&mmu), slabs.check(Record::TreeNode, 0)), (0, Ok(())));
    }

    #[test]
    fn a_slab_that_finds_no_memory_is_taken_later() {
        let mmu = Mmu::new(TestMachine::simple(1, 1024), Knobs::default());
        let alloc = Allocator::new(&mmu).unwrap();
        let slabs = Slabs::new(1);
        let taken: Vec<Pfn> = core::iter::from_fn(|| take(&mmu, &alloc, Order::ZERO)).collect();
        slabs.change(&mmu, &alloc, Record::BufferHead, 80);
        assert_eq!(slabs.frames(&mmu), 0);
        for pfn in taken {
            assert!(mmu.frames[pfn].put(1));
            alloc.free(&mmu, &[pfn]);
        }
        slabs.change(&mmu, &alloc, Record::BufferHead, 1);
        assert_eq!(slabs.frames(&mmu), 3);
    }
}

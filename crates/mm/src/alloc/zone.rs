//! A zone: a run of frames of one kind on one node, with its watermarks and its free blocks.

use super::buddy::FreeLists;
use super::compaction::ZoneCompaction;
use super::watermark::{PcpSizes, Reserve, Watermark, above};
use crate::frame::Mobility;
use crate::lock::{Lock, LockClass};
use crate::machine::{MemoryRange, ZoneKind};
use crate::primitive::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::units::*;
use std_alloc::boxed::Box;

pub(super) const KINDS: usize = 3;

/// Free memory fell to the high mark: CPUs' lists shrink.
pub(super) const BELOW_HIGH: u32 = 1;
/// Reclaim works on the zone: CPUs' lists stay short.
pub(super) const RECLAIM_ACTIVE: u32 = 2;

/// A zone. Its numbers may be read at any time; they change under the zone's lock.
pub struct Zone {
    id: ZoneId,
    node: NodeId,
    kind: ZoneKind,
    start: Pfn,
    frames: u32,
    free: AtomicU64,
    /// Bit n: some list holds a block of order n.
    orders: AtomicU32,
    pressure: AtomicU32,
    /// For each highest kind, the number of free pages above which an order-0 request needs no further check.
    bars: [AtomicU64; KINDS],
    marks: [AtomicU64; Watermark::COUNT],
    boost: AtomicU64,
    lowmem_reserve: [AtomicU64; KINDS],
    batch: AtomicU32,
    high_min: AtomicU32,
    high_max: AtomicU32,
    mobility: Box<[AtomicU16]>,
    /// Compaction's state of the zone.
    pub compaction: ZoneCompaction,
    pub(super) lists: Lock<FreeLists>,
}

impl Zone {
    /// The zone of a range, without free memory yet. All page blocks start as movable.
    pub(super) fn new(id: ZoneId, range: &MemoryRange) -> Zone {
        let blocks = range.frames.div_ceil(PAGEBLOCK_FRAMES);
        Zone {
            id,
            node: range.node,
            kind: range.kind,
            start: range.start,
            frames: range.frames,
            free: AtomicU64::new(0),
            orders: AtomicU32::new(0),
            pressure: AtomicU32::new(0),
            bars: Default::default(),
            marks: Default::default(),
            boost: AtomicU64::new(0),
            lowmem_reserve: Default::default(),
            batch: AtomicU32::new(1),
            high_min: AtomicU32::new(0),
            high_max: AtomicU32::new(0),
            compaction: ZoneCompaction::new(range.start, range.frames),
            mobility: (0..blocks).map(|_| AtomicU16::new(Mobility::Movable as u16)).collect(),
            lists: Lock::of(LockClass::Zone, FreeLists::new()),
        }
    }

    /// Its number.
    #[inline]
    pub fn id(&self) -> ZoneId {
        self.id
    }

    /// The node it belongs to.
    #[inline]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Kind of memory.
    #[inline]
    pub fn kind(&self) -> ZoneKind {
        self.kind
    }

    /// First frame.
    #[inline]
    pub fn start(&self) -> Pfn {
        self.start
    }

    /// The frame after the last.
    #[inline]
    pub fn end(&self) -> Pfn {
        self.start.add(self.frames)
    }

    /// Frames from first to last.
    #[inline]
    pub fn spanned(&self) -> u64 {
        self.frames as u64
    }

    /// Frames managed by the allocator. A zone has no holes, so all of them.
    #[inline]
    pub fn managed(&self) -> u64 {
        self.frames as u64
    }

    /// Free pages; those on CPUs' lists are not counted.
    #[inline]
    pub fn free_pages(&self) -> u64 {
        self.free.load(Relaxed)
    }

    /// Free blocks of exactly this order and mobility.
    pub fn free_blocks(&self, order: Order, mobility: Mobility) -> u64 {
        self.lists.lock().count(order, mobility)
    }

    /// A watermark in pages, boost included.
    #[inline]
    pub fn mark(&self, mark: Watermark) -> u64 {
        self.bare_mark(mark) + self.boost()
    }

    /// A watermark in pages without the boost.
    #[inline]
    pub fn bare_mark(&self, mark: Watermark) -> u64 {
        self.marks[mark as usize].load(Relaxed)
    }

    /// The boost of the watermarks because mobility groups were mixed, in pages.
    #[inline]
    pub fn boost(&self) -> u64 {
        self.boost.load(Relaxed)
    }

    /// Pages kept from requests that could also use zones up to `highest`.
    #[inline]
    pub fn lowmem_reserve(&self, highest: ZoneKind) -> u64 {
        self.lowmem_reserve[highest as usize].load(Relaxed)
    }

    #[inline]
    pub(crate) fn pcp_sizes(&self) -> PcpSizes {
        PcpSizes {
            batch: self.batch.load(Relaxed),
            high_min: self.high_min.load(Relaxed),
            high_max: self.high_max.load(Relaxed),
        }
    }

    /// Whether a request would find free memory above the mark, and a block that is large enough.
    pub(crate) fn watermark_ok(
        &self,
        order: Order,
        mark: Watermark,
        highest: ZoneKind,
        reserve: Reserve,
    ) -> bool {
        self.ok_above(order, self.mark(mark), highest, reserve)
    }

    /// Whether a request for one page would find that much free memory on top of the mark.
    pub(crate) fn watermark_ok_above(
        &self,
        more: u64,
        mark: Watermark,
        highest: ZoneKind,
        reserve: Reserve,
    ) -> bool {
        self.ok_above(Order::ZERO, self.mark(mark) + more, highest, reserve)
    }

    /// As [`Zone::watermark_ok`], but a boost does not hold back an order-0 request that may use the reserve, or at
    /// least what the boost asks for: at the min mark kswapd was woken long ago.
    pub(super) fn allows(&self, order: Order, mark: Watermark, highest: ZoneKind, reserve: Reserve) -> bool {
        self.watermark_ok(order, mark, highest, reserve)
            || (order == Order::ZERO
                && mark == Watermark::Min
                && matches!(reserve, Reserve::Boost | Reserve::High | Reserve::Atomic)
                && self.boost() != 0
                && self.ok_above(order, self.bare_mark(mark), highest, reserve))
    }

    fn ok_above(&self, order: Order, mark: u64, highest: ZoneKind, reserve: Reserve) -> bool {
        if reserve == Reserve::All {
            return true;
        }
        above(self.free_pages(), order, reserve.lower(mark), self.lowmem_reserve(highest))
            && (order == Order::ZERO || self.free_orders() >> order.0 != 0)
    }

    /// Bit n is set if a block of order n is free.
    pub(crate) fn free_orders(&self) -> u32 {
        self.orders.load(Relaxed)
    }

    /// Whether free memory is above the high mark for an order-0 request. One comparison.
    #[inline]
    pub(super) fn above_high(&self, highest: ZoneKind) -> bool {
        self.free_pages() > self.bars[highest as usize].load(Relaxed)
    }

    /// Mobility group of the page block that holds a frame of this zone.
    #[inline]
    pub fn mobility_of(&self, pfn: Pfn) -> Mobility {
        match self.mobility[((pfn.0 - self.start.0) / PAGEBLOCK_FRAMES) as usize].load(Relaxed) {
            0 => Mobility::Unmovable,
            1 => Mobility::Movable,
            _ => Mobility::Reclaimable,
        }
    }

    pub(crate) fn blocks_by_mobility(&self) -> [u64; Mobility::COUNT] {
        let mut counts = [0; Mobility::COUNT];
        for block in &self.mobility {
            counts[block.load(Relaxed) as usize] += 1;
        }
        counts
    }

    /// Move all page blocks that a block of `order` touches to a group. Under the zone's lock.
    pub(super) fn set_mobility(&self, pfn: Pfn, order: Order, mobility: Mobility) {
        let first = ((pfn.0 - self.start.0) / PAGEBLOCK_FRAMES) as usize;
        let count = order.frames().div_ceil(PAGEBLOCK_FRAMES) as usize;
        for block in &self.mobility[first..first + count] {
            block.store(mobility as u16, Relaxed);
        }
    }

    /// Publish the numbers for lock-free readers. Under the zone's lock.
    pub(super) fn publish(&self, free: u64, orders: u32) {
        self.free.store(free, Relaxed);
        self.orders.store(orders, Relaxed);
    }

    /// Set the watermarks and end a boost. Under the zone's lock.
    pub(super) fn set_marks(&self, marks: [u64; Watermark::COUNT]) {
        for (cell, value) in self.marks.iter().zip(marks) {
            cell.store(value, Relaxed);
        }
        self.set_boost(0);
    }

    /// Set the reserve that is kept from requests that could use higher zones. Under the zone's lock.
    pub(super) fn set_lowmem_reserve(&self, reserve: [u64; KINDS]) {
        for (cell, value) in self.lowmem_reserve.iter().zip(reserve) {
            cell.store(value, Relaxed);
        }
        self.set_boost(self.boost());
    }

    pub(super) fn set_pcp_sizes(&self, sizes: PcpSizes) {
        self.batch.store(sizes.batch, Relaxed);
        self.high_min.store(sizes.high_min, Relaxed);
        self.high_max.store(sizes.high_max, Relaxed);
    }

    /// Set the boost and the numbers that follow from it. Under the zone's lock.
    pub(super) fn set_boost(&self, boost: u64) {
        self.boost.store(boost, Relaxed);
        for (bar, reserve) in self.bars.iter().zip(&self.lowmem_reserve) {
            bar.store(self.mark(Watermark::High) + reserve.load(Relaxed), Relaxed);
        }
    }

    /// The current [`BELOW_HIGH`] and [`RECLAIM_ACTIVE`].
    #[inline]
    pub(super) fn pressure(&self) -> u32 {
        self.pressure.load(Relaxed)
    }

    pub(super) fn set_pressure(&self, bit: u32, on: bool) {
        if on {
            self.pressure.fetch_or(bit, Relaxed);
        } else {
            self.pressure.fetch_and(!bit, Relaxed);
        }
    }
}

//! How fragmented free memory is, which decides whether compaction helps.

use super::buddy::ORDERS;
use super::watermark::{Reserve, Watermark};
use super::zone::Zone;
use crate::frame::Mobility;
use crate::knobs::{Knob, Knobs};
use crate::machine::ZoneKind;
use crate::units::*;

/// Orders above this are not worth much reclaim.
pub(crate) const COSTLY_ORDER: Order = Order(3);

/// Free pages that compaction needs to make a block of `order`; also the target of a reclaim for it.
pub(crate) const fn compact_gap(order: Order) -> u64 {
    2 << order.0
}

/// Free blocks of a zone, by order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeBlocks(pub [u64; ORDERS]);

impl FreeBlocks {
    /// Free pages.
    pub fn pages(&self) -> u64 {
        self.0.iter().enumerate().map(|(order, count)| count << order).sum()
    }

    /// Blocks of `order` that could be allocated.
    pub(crate) fn suitable(&self, order: Order) -> u64 {
        let larger = self.0.iter().enumerate().skip(order.0 as usize);
        larger.map(|(at, count)| count << (at - order.0 as usize)).sum()
    }

    /// Whether a request for a block of `order` would fail for lack of memory (towards 0) or because of fragmentation
    /// (towards 1000). -1000: it would not fail. Other values below 0: less than half of the wanted memory is free.
    pub(crate) fn fragmentation_index(&self, order: Order) -> i64 {
        let blocks: u64 = self.0.iter().sum();
        if blocks == 0 {
            return 0;
        }
        if self.suitable(order) > 0 {
            return -1000;
        }
        let wanted = order.frames() as u64;
        1000 - (1000 + self.pages() * 1000 / wanted) as i64 / blocks as i64
    }

    /// Share of the free memory, in thousandths, that a request for a block of `order` cannot use.
    pub fn unusable_index(&self, order: Order) -> u64 {
        (self.useless(order) * 1000).checked_div(self.pages()).unwrap_or(1000)
    }

    /// The same in per cent, and 0 if nothing is free: the measure of proactive compaction.
    pub(crate) fn external_fragmentation(&self, order: Order) -> u64 {
        (self.useless(order) * 100).checked_div(self.pages()).unwrap_or(0)
    }

    /// Free pages in smaller blocks.
    fn useless(&self, order: Order) -> u64 {
        self.pages() - (self.suitable(order) << order.0)
    }
}

impl Zone {
    /// Its free blocks, by order.
    pub fn blocks(&self) -> FreeBlocks {
        let lists = self.lists.lock();
        let sum = |order| Mobility::ALL.map(|mobility| lists.count(order, mobility)).iter().sum();
        FreeBlocks(core::array::from_fn(|order| sum(Order(order as u8))))
    }

    /// Whether compaction would have enough room to move folios into if the zone had `free` free pages.
    pub(crate) fn compactable_with(&self, order: Order, highest: ZoneKind, free: u64) -> bool {
        let mark = if order > COSTLY_ORDER { Watermark::Low } else { Watermark::Min };
        let mark = self.mark(mark) + compact_gap(order);
        super::watermark::above(free, Order::ZERO, mark, self.lowmem_reserve(highest))
    }

    /// Whether compaction can make a block of `order`: enough memory is free and, for costly orders, a request would
    /// fail because of fragmentation rather than for lack of memory. `threshold` is `vm.extfrag_threshold`.
    pub(crate) fn compaction_suitable(&self, order: Order, highest: ZoneKind, threshold: u64) -> bool {
        if !self.compactable_with(order, highest, self.free_pages()) {
            return false;
        }
        let index = if order > COSTLY_ORDER { self.blocks().fragmentation_index(order) } else { -1000 };
        !(0..=threshold as i64).contains(&index)
    }

    /// Whether its free memory in whole page blocks, which alone counts for others, is above a watermark.
    pub(crate) fn whole_blocks_ok(&self, order: Order, mark: Watermark, highest: ZoneKind) -> bool {
        let whole = self.blocks().suitable(PAGEBLOCK_ORDER) << PAGEBLOCK_ORDER.0;
        super::watermark::above(whole, order, self.mark(mark), self.lowmem_reserve(highest))
    }

    /// Whether kcompactd has work here that it can do: there is no block of `order` (`vm.defrag_mode`: too little in
    /// whole page blocks), and compaction could make one.
    pub(crate) fn suits_kcompactd(&self, knobs: &Knobs, order: Order, highest: ZoneKind) -> bool {
        let threshold = knobs.get(Knob::ExtfragThreshold);
        if knobs.get(Knob::DefragMode) != 0 {
            return !self.whole_blocks_ok(order, Watermark::High, highest)
                && self.compaction_suitable(order, highest, threshold);
        }
        self.suits_allocation(order, Watermark::Min, highest, threshold) == Some(false)
    }

    /// Whether there is a block of `order` for a request that may go down to `mark` (`Some(true)`), or compaction
    /// could make one (`Some(false)`).
    pub(crate) fn suits_allocation(
        &self,
        order: Order,
        mark: Watermark,
        highest: ZoneKind,
        threshold: u64,
    ) -> Option<bool> {
        if self.watermark_ok(order, mark, highest, Reserve::None) {
            return Some(true);
        }
        self.compaction_suitable(order, highest, threshold).then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(blocks: &[(usize, u64)]) -> FreeBlocks {
        let mut all = [0; ORDERS];
        blocks.iter().for_each(|&(order, count)| all[order] = count);
        FreeBlocks(all)
    }

    /// The vectors of the reference.
    #[test]
    fn the_fragmentation_index_tells_fragmentation_from_lack_of_memory() {
        let vectors = [
            (free(&[(0, 1000)]), 998),
            (free(&[(0, 10)]), 899),
            (free(&[(8, 4)]), 250),
            (free(&[(8, 100)]), 490),
            (free(&[(3, 200), (5, 20)]), 976),
            (free(&[(8, 1)]), -500),
            (free(&[(9, 1), (0, 5)]), -1000),
            (free(&[]), 0),
        ];
        for (blocks, index) in vectors {
            assert_eq!(blocks.fragmentation_index(Order(9)), index, "{blocks:?}");
        }
    }

    #[test]
    fn unusable_memory_is_returned_in_thousandths_and_per_cent() {
        let half = free(&[(9, 1), (0, 512)]);
        assert_eq!((half.unusable_index(Order(9)), half.external_fragmentation(Order(9))), (500, 50));
        assert_eq!((half.unusable_index(Order(0)), half.external_fragmentation(Order(0))), (0, 0));
        assert_eq!(free(&[(10, 1)]).suitable(Order(9)), 2);
        assert_eq!(
            (free(&[]).unusable_index(Order(9)), free(&[]).external_fragmentation(Order(9))),
            (1000, 0)
        );
    }

    #[test]
    fn the_gap_is_twice_the_block() {
        assert_eq!((compact_gap(Order(0)), compact_gap(Order(9))), (2, 1024));
    }
}

//! Counters of large folios, one for each size, with the names of
//! /sys/kernel/mm/transparent_hugepage/hugepages-*/stats.
//!
//! They count what happens once for many pages, so all CPUs share the cells.

use crate::primitive::{AtomicU64, Ordering::Relaxed};
use crate::units::{Order, PAGE_SIZE, PAGEBLOCK_ORDER};
use base::named_table;
use std_alloc::format;
use std_alloc::string::String;

named_table! {
    /// A counter that there is for each size of folio.
    SizeStat {
        AnonFaultAlloc "anon_fault_alloc" "folios of anonymous memory that a fault made and mapped";
        AnonFaultFallback "anon_fault_fallback" "times a fault took a smaller folio for want of a block or of room in its group";
        AnonFaultFallbackCharge "anon_fault_fallback_charge" "of these, those for want of room in the group";
        NrAnon "nr_anon" "folios of anonymous memory there are now";
        NrAnonPartiallyMapped "nr_anon_partially_mapped" "of these, those that wait to be split because only a part is mapped";
        FileAlloc "file_alloc" "folios of files that memory had a block for";
        FileFallback "file_fallback" "folios of files that were made of smaller ones for want of a block";
        ShmemAlloc "shmem_alloc" "folios of shmem that memory had a block for";
        ShmemFallback "shmem_fallback" "folios of shmem that were made of smaller ones for want of a block";
        Swpout "swpout" "folios written to swap in one piece";
        SwpoutFallback "swpout_fallback" "folios that were split to be swapped out";
        Split "split" "folios split into smaller ones";
        SplitFailed "split_failed" "folios that could not be split because somebody used them";
        MovedWhole "moved_whole" "folios that were moved to other frames as they were";
        MovedSplit "moved_split" "folios that were split to be moved";
        SplitDeferred "split_deferred" "folios that were left partly mapped, and so to be split when memory is wanted";
    }
}

/// Sizes: orders 1 to 9.
const SIZES: usize = PAGEBLOCK_ORDER.0 as usize;

/// The counters of one machine.
#[derive(Default)]
pub struct SizeStats {
    cells: [[AtomicU64; SIZES]; SizeStat::COUNT],
}

impl SizeStats {
    /// Add to a counter of a size; single pages are not counted.
    #[inline]
    pub fn count(&self, stat: SizeStat, order: Order, by: u64) {
        if let Some(cell) = (order.0 as usize).checked_sub(1).and_then(|i| self.cells[stat as usize].get(i)) {
            cell.fetch_add(by, Relaxed);
        }
    }

    /// Folios of a size are no longer what a level counts.
    #[inline]
    pub(crate) fn drop_from(&self, level: SizeStat, order: Order, by: u64) {
        if let Some(cell) = (order.0 as usize).checked_sub(1).and_then(|i| self.cells[level as usize].get(i))
        {
            let before = cell.fetch_sub(by, Relaxed);
            assert!(before >= by, "{} of {order} falls below 0", level.name());
        }
    }

    /// The value of a counter for one size.
    pub fn read(&self, stat: SizeStat, order: Order) -> u64 {
        let cell = (order.0 as usize).checked_sub(1).and_then(|i| self.cells[stat as usize].get(i));
        cell.map_or(0, |cell| cell.load(Relaxed))
    }

    /// The counters that are not 0, with the size's directory: "hugepages-64kB".
    pub fn moved(&self) -> impl Iterator<Item = (String, SizeStat, u64)> + '_ {
        let sizes = move |stat| (1..=SIZES as u8).map(move |order| (stat, Order(order)));
        let all = SizeStat::ALL.iter().flat_map(move |&stat| sizes(stat));
        all.filter_map(|(stat, order)| {
            let value = self.read(stat, order);
            let size = order.frames() as u64 * PAGE_SIZE / 1024;
            (value > 0).then(|| (format!("hugepages-{size}kB"), stat, value))
        })
    }

    /// The sum over all sizes.
    pub fn sum(&self, stat: SizeStat) -> u64 {
        self.cells[stat as usize].iter().map(|cell| cell.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counted_apart() {
        let stats = SizeStats::default();
        stats.count(SizeStat::Split, Order(1), 2);
        stats.count(SizeStat::Split, Order(9), 3);
        stats.count(SizeStat::Split, Order(0), 7);
        assert_eq!([0, 1, 2, 9].map(|order| stats.read(SizeStat::Split, Order(order))), [0, 2, 0, 3]);
        let moved: std_alloc::vec::Vec<_> = stats.moved().collect();
        assert_eq!(
            moved,
            [("hugepages-8kB".into(), SizeStat::Split, 2), ("hugepages-2048kB".into(), SizeStat::Split, 3)]
        );
        assert_eq!((stats.sum(SizeStat::Split), stats.sum(SizeStat::SplitFailed)), (5, 0));
    }
}

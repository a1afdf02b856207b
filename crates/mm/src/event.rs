//! Trace events, with the names of Linux's tracepoints.

use crate::units::*;
use base::named_table;

named_table! {
    /// A trace event. The help text names its arguments in order.
    Event {
        MmPageAlloc "mm_page_alloc" "a block left the allocator: frame, order, zone, mobility";
        MmPageFree "mm_page_free" "a block came back: frame, order, zone";
        MmPagePcpuDrain "mm_page_pcpu_drain" "pages went from a CPU's list to the buddy: zone, pages";
        MmPageAllocExtfrag "mm_page_alloc_extfrag" "a block of another mobility was taken: frame, order, from, to";
        MmVmscanKswapdWake "mm_vmscan_kswapd_wake" "kswapd starts: node, order";
        MmVmscanKswapdSleep "mm_vmscan_kswapd_sleep" "kswapd goes to sleep: node";
        MmVmscanWakeupKswapd "mm_vmscan_wakeup_kswapd" "kswapd is wanted: node, zone, order";
        MmVmscanDirectReclaimBegin "mm_vmscan_direct_reclaim_begin" "an allocation reclaims for itself: order";
        MmVmscanDirectReclaimEnd "mm_vmscan_direct_reclaim_end" "it has done: pages reclaimed";
        MmVmscanMemcgReclaimBegin "mm_vmscan_memcg_reclaim_begin" "a group reclaims: group";
        MmVmscanMemcgReclaimEnd "mm_vmscan_memcg_reclaim_end" "it has done: pages reclaimed";
        MmVmscanLruIsolate "mm_vmscan_lru_isolate" "a batch was isolated: list, requested, scanned, taken";
        MmVmscanLruShrinkInactive "mm_vmscan_lru_shrink_inactive" "an inactive batch was shrunk: node, scanned, reclaimed, priority";
        MmVmscanLruShrinkActive "mm_vmscan_lru_shrink_active" "an active batch was shrunk: node, taken, deactivated, referenced";
        MmVmscanWriteFolio "mm_vmscan_write_folio" "reclaim writes a folio: frame, anonymous or file";
        MmVmscanThrottled "mm_vmscan_throttled" "a reclaimer sleeps: node, nanoseconds, reason";
        MmCompactionBegin "mm_compaction_begin" "a zone is compacted: zone, order (all ones: all), frames where the scanners begin: migrate, free";
        MmCompactionMigratepages "mm_compaction_migratepages" "a batch was moved: pages, moved, failed";
        MmCompactionEnd "mm_compaction_end" "it has done: zone, frames where the scanners are: migrate, free, outcome";
        MmCompactionWakeupKcompactd "mm_compaction_wakeup_kcompactd" "kcompactd is wanted: node, order, highest kind of zone";
        MmCompactionKcompactdWake "mm_compaction_kcompactd_wake" "kcompactd starts: node, order, highest kind of zone";
        MmMigratePages "mm_migrate_pages" "folios were to be moved: pages moved, pages that could not be, mode, reason";
        MarkVictim "mark_victim" "the out-of-memory decision chose a space: space";
        TlbStale "tlb_stale" "a run of entries was cleared or lost rights, CPUs may still hold it: space and (from bit 32) file + 1, first page, first frame and (bit 32) allowed stores and was dirty (bit 33) is flushed by the task that cleared it (bit 34) was never used and so spared by the policy abis (from bit 40) number of pages - 1, index of the first in the file";
        TlbHazard "tlb_hazard" "stale translations must be gone from here on: which (kind, and three numbers, as Concern has them)";
        TlbSettle "tlb_settle" "the memory manager pays what it knows to be owed: which (kind, and three numbers, as Concern has them)";
        TlbUnmapOwed "tlb_unmap_owed" "a batch of unmapped pages will flush for entries through which CPUs may still store, and its owner keeps their folios locked until then: batch, space, first frame, frames";
        TlbUnmapPaid "tlb_unmap_paid" "it has flushed for all that it owed: batch";
        TlbPaid "tlb_paid" "a debt was paid: kind (as Concern has it), nanoseconds that it took, age in nanoseconds of the oldest part that a CPU still owed, whether a round was sent";
        PteClearYoung "pte_clear_young" "entries forgot that pages were used: first frame, pages";
        TlbFlush "tlb_flush" "translations were dropped: reason, pages (-1 = all)";
    }
}

/// The stale translations that a `tlb_hazard` or `tlb_settle` is about: its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Concern {
    /// Those of `count` pages of a space.
    Pages {
        /// The space.
        space: SpaceId,
        /// First page.
        first: Vpn,
        /// Number of pages; [`u64::MAX`]: all from there on.
        count: u64,
    },
    /// Only those of these pages that the task that removed them flushes itself.
    FlushedAtOnce {
        /// The space.
        space: SpaceId,
        /// First page.
        first: Vpn,
        /// Number of pages; [`u64::MAX`]: all from there on.
        count: u64,
    },
    /// The same, and the entries are empty now, under a lock: a CPU that runs the space holds none of them.
    Emptied {
        /// The space.
        space: SpaceId,
        /// First page.
        first: Vpn,
        /// Number of pages.
        count: u64,
    },
    /// Those of `count` pages of a file, in every space.
    File {
        /// The file.
        file: FileId,
        /// First page.
        first: PageIndex,
        /// Number of pages; [`u64::MAX`]: all from there on.
        count: u64,
    },
    /// Those that point to these frames.
    Frames {
        /// First frame.
        first: Pfn,
        /// Number of frames.
        count: u32,
    },
}

impl Concern {
    /// All translations of a space.
    pub const fn space(space: SpaceId) -> Concern {
        Concern::Pages { space, first: Vpn(0), count: u64::MAX }
    }

    /// A file from a page on.
    pub const fn file_from(file: FileId, first: PageIndex) -> Concern {
        Concern::File { file, first, count: u64::MAX }
    }

    /// The event's arguments: the kind, then what it is about.
    pub const fn args(self) -> [u64; 4] {
        match self {
            Concern::Pages { space, first, count } => [0, space.0 as u64, first.0, count],
            Concern::File { file, first, count } => [1, file.0 as u64, first.0, count],
            Concern::Frames { first, count } => [2, first.0 as u64, count as u64, 0],
            Concern::FlushedAtOnce { space, first, count } => [3, space.0 as u64, first.0, count],
            Concern::Emptied { space, first, count } => [4, space.0 as u64, first.0, count],
        }
    }

    /// The concern that an event's arguments encode; `None` if they encode none.
    pub const fn of_args([kind, id, first, count]: [u64; 4]) -> Option<Concern> {
        Some(match kind {
            0 => Concern::Pages { space: SpaceId(id as u32), first: Vpn(first), count },
            1 => Concern::File { file: FileId(id as u32), first: PageIndex(first), count },
            2 => Concern::Frames { first: Pfn(id as u32), count: first as u32 },
            3 => Concern::FlushedAtOnce { space: SpaceId(id as u32), first: Vpn(first), count },
            4 => Concern::Emptied { space: SpaceId(id as u32), first: Vpn(first), count },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_concern_survives_its_event() {
        let (space, first, file) = (SpaceId(7), Vpn(4), FileId(3));
        for concern in [
            Concern::Pages { space, first, count: 2 },
            Concern::FlushedAtOnce { space, first, count: u64::MAX },
            Concern::Emptied { space, first, count: 512 },
            Concern::space(space),
            Concern::file_from(file, PageIndex(9)),
            Concern::Frames { first: Pfn(100), count: 8 },
        ] {
            assert_eq!(Concern::of_args(concern.args()), Some(concern));
        }
        assert_eq!(Concern::of_args([5, 0, 0, 0]), None);
    }
}

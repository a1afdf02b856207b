//! Trace events, with the names of Linux's tracepoints.

use crate::table_macro::named_table;

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
        MarkVictim "mark_victim" "the out-of-memory decision chose a space: space";
        TlbStale "tlb_stale" "an entry was cleared or lost rights, CPUs may still hold it: space and (from bit 32) file + 1, page, frame and (bit 32) was writable (bit 33) is flushed by who cleared it (bit 34) was never used and so spared by the policy abis, index in the file";
        TlbHazard "tlb_hazard" "stale translations must be gone from here on: kind (0 those of pages of a space, 1 of pages of a file, 2 to frames, 3 all, 4 as 0 but only those with bit 33), its id or first frame, first page or index, number";
        TlbSettle "tlb_settle" "the memory manager pays what it knows to be owed: kind (0 space, 1 file, 2 frames, 3 all, 4 pages of a space), its id or first frame, number of frames or first page, number of pages";
        TlbPaid "tlb_paid" "a debt was paid: kind (0 space, 1 file, 2 frames), nanoseconds that it took, age in nanoseconds of the oldest part that a CPU still owed, whether a round was sent";
        TlbFlush "tlb_flush" "translations were dropped: reason, pages (-1 = all)";
    }
}

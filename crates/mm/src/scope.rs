//! Scopes: on whose behalf work is done, for profiles.
//!
//! [`Machine::charge`](crate::machine::Machine::charge) says *what* is done; a scope says *as part of what*. A
//! function that a profile should show opens with `let _scope = platform.scope(Scope::TryToUnmapOne);`, and all work
//! charged until it returns is listed below that name. Scopes nest as calls do, so a machine builds the tree of calls
//! by remembering the current scope.
//!
//! Only functions that combine several kinds of work have a scope: a leaf needs none, because each kind of work has
//! its own name ([`Work`](crate::work::Work)). A scope belongs to the task that opened it: the task may sleep inside
//! and continue on another CPU. On a machine that keeps no profile both calls are empty and compile to nothing.

use base::named_table;

named_table! {
    /// A function of the memory manager, named after its counterpart in Linux if there is one.
    Scope {
        ExcPageFault "exc_page_fault" "serve a page fault";
        DoAnonymousPage "do_anonymous_page" "give a page of zeroes";
        DoReadFault "do_read_fault" "map a page of a file for reading";
        DoCowFault "do_cow_fault" "copy a page of a file for a private store";
        DoSharedFault "do_shared_fault" "make a shared page of a file writable";
        DoWpPage "do_wp_page" "serve a store that the entry forbids";
        DoSwapPage "do_swap_page" "map a page whose entry is in swap";
        FilemapMapPages "filemap_map_pages" "map cached pages around a fault";
        FilemapFault "filemap_fault" "find a page of a file, or read it";
        BalanceDirtyPages "balance_dirty_pages" "slow a writer down";
        DoMmap "do_mmap" "map a range";
        DoMunmap "do_munmap" "unmap a range";
        DoMprotect "do_mprotect" "change the rights of a range";
        DoMremap "do_mremap" "move or resize a range";
        DoMadvise "do_madvise" "follow advice about a range";
        DoMlock "do_mlock" "lock a range in memory, or unlock it";
        DoMsync "do_msync" "write a mapped range of files";
        DupMmap "dup_mmap" "copy a space (fork)";
        ExitMmap "exit_mmap" "tear a space down";
        FilemapRead "filemap_read" "read from a file";
        GenericPerformWrite "generic_perform_write" "write to a file";
        DoFsync "do_fsync" "write what is dirty of a file";
        TruncatePagecache "truncate_pagecache" "truncate a file";
        GenericFadvise "generic_fadvise" "follow advice about a file";
        UnmapPageRange "unmap_page_range" "clear the entries of a range";
        TlbFinishMmu "tlb_finish_mmu" "flush what was unmapped, then free it";
        TryToUnmapOne "try_to_unmap_one" "clear all entries of a folio";
        DoNumaPage "do_numa_page" "serve a fault at an entry that was marked to show which node uses its page";
        Kpromoted "kpromoted" "a round of promotion by the daemon";
        TaskNumaWork "task_numa_work" "mark entries of a space, to learn which nodes use their pages";
        MigratePages "migrate_pages" "move folios to other frames";
        TryToMigrateOne "try_to_migrate_one" "clear all entries of a folio that is being moved";
        MigrationEntryWait "migration_entry_wait" "sleep until a page has been moved";
        RemoveMigrationPtes "remove_migration_ptes" "map a folio again after it was moved";
        FolioReferenced "folio_referenced" "look for young entries of a folio";
        FolioMkclean "folio_mkclean" "write-protect all entries of a folio";
        FolioRemoveRmap "folio_remove_rmap" "uncount mappings of a folio, with their statistics";
        FlushTlbMmRange "flush_tlb_mm_range" "flush a range of a space on all CPUs";
        FlushTlbFunc "flush_tlb_func" "flush what a request names, on one CPU";
        TryToUnmapFlush "try_to_unmap_flush" "flush for a batch of unmapped pages";
        SettleDebts "settle_debts" "do flushes that were deferred (no equivalent in Linux)";
        SwitchMm "switch_mm_irqs_off" "switch to another space";
        GetPageFromFreelist "get_page_from_freelist" "take a block of free memory that the CPU's list does not have";
        FolioPut "__folio_put" "free a folio without references";
        OutOfMemory "out_of_memory" "choose a process to kill";
        TryToFreePages "try_to_free_pages" "reclaim before an allocation (direct)";
        TryToFreeMemCgroupPages "try_to_free_mem_cgroup_pages" "reclaim from one control group";
        TryToCompactPages "try_to_compact_pages" "compact before an allocation (direct)";
        CompactZone "compact_zone" "compact one zone";
        Kcompactd "kcompactd" "compact a node in the background";
        ReclaimPages "reclaim_pages" "reclaim chosen pages (MADV_PAGEOUT)";
        Kdamond "kdamond" "watch which memory is used, and page out what is not (DAMON)";
        BalancePgdat "balance_pgdat" "reclaim until a node is balanced (kswapd)";
        ShrinkNode "shrink_node" "reclaim from one node";
        ShrinkActiveList "shrink_active_list" "age the active list";
        ShrinkInactiveList "shrink_inactive_list" "reclaim from the inactive list";
        EvictFolios "evict_folios" "reclaim from the oldest generations of one group";
        AgeVec "try_to_inc_max_seq" "age one group: walk page tables, and begin a generation";
        IsolateLruFolios "isolate_lru_folios" "take folios off a list";
        MoveFoliosToLru "move_folios_to_lru" "put folios back on their lists";
        ShrinkFolioList "shrink_folio_list" "reclaim a batch of isolated folios";
        Pageout "pageout" "write one folio for reclaim";
        RemoveMapping "__remove_mapping" "take a folio out of its cache for reclaim";
        FreeUnrefFolios "free_unref_folios" "free a batch of folios";
        ReclaimThrottle "reclaim_throttle" "make a reclaimer wait";
        AddToSwap "add_to_swap" "give a folio a slot";
        SwapinReadahead "swapin_readahead" "read a folio from swap, with its neighbours";
        PageCacheRa "page_cache_ra_unbounded" "read a window of a file";
        FilemapAddFolio "filemap_add_folio" "take a folio and add it to a file's cache";
        ShrinkWorker "shrink_worker" "write old pages of a full zswap";
        ZramUpkeep "zram_upkeep" "mark, compress again and write to their backing device pages of zram devices";
        WbWriteback "wb_writeback" "write old or too many dirty pages (the flusher)";
        DoWritepages "do_writepages" "write dirty pages of one file";
        FolioWaitBit "folio_wait_bit" "wait for a folio's lock or write-back";
        BioEndio "bio_endio" "handle the end of a transfer";
    }
}

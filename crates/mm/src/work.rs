//! Kinds of work that the memory manager does, for [`Machine::charge`](crate::machine::Machine::charge).
//!
//! One unit of each is said in its help text. A simulated machine has a cost, with its source, for each name.

use crate::knobs::Compressor;
use base::named_table;

named_table! {
    /// A kind of work.
    Work {
        Syscall "syscall" "enter and leave the kernel by a system call";
        FaultEntry "fault_entry" "take a page fault: exception entry, exit and the fault handler's frame";
        VmaLookup "vma_lookup" "find the mapped range of an address, with its lock";
        VmaChange "vma_change" "insert, split, merge or remove one mapped range";
        TableLevel "table_level" "step down one level of a page table in software";
        TableAlloc "table_alloc" "set up one page-table page (without clearing it)";
        EntrySet "entry_set" "install or change one page-table entry";
        EntryClear "entry_clear" "clear one page-table entry and look at its bits";
        EntryScan "entry_scan" "look at one page-table entry that needs no change";
        AllocPcp "alloc_pcp" "take one page from the CPU's list";
        AllocBuddy "alloc_buddy" "take one block from the buddy lists, under the zone's lock";
        FreePcp "free_pcp" "give one page to the CPU's list";
        FreeBuddy "free_buddy" "give one block to the buddy lists, with its merges";
        ZeroPage "zero_page" "fill one page with zeroes";
        CopyPage "copy_page" "copy one page";
        CopyUser "copy_user" "copy up to one page between the page cache and a process";
        RmapAdd "rmap_add" "note one mapping of a page";
        RmapRemove "rmap_remove" "forget one mapping of a page";
        StatUpdate "stat_update" "add to the statistics of mapped pages, on all levels that keep them";
        RmapVma "rmap_vma" "visit one mapped range in a reverse-map walk";
        LruAdd "lru_add" "put one folio on a list";
        LruMove "lru_move" "isolate or move one folio between lists";
        GroupCharge "group_charge" "charge or uncharge one folio to its control group";
        CacheLookup "cache_lookup" "find one page in a file's tree";
        CacheInsert "cache_insert" "add one folio to a file's tree";
        CacheRemove "cache_remove" "take one folio out of a file's tree, leaving its shadow";
        SwapSlot "swap_slot" "allocate or free one slot of swap space";
        IoSubmit "io_submit" "build and submit one block request";
        IoComplete "io_complete" "handle the end of one block request";
        IoSync "io_sync" "have a device that answers at once serve one request";
        ZsObject "zs_object" "allocate, free or move one object of compressed memory";
        CompressLzoRle "compress_lzo_rle" "compress one page with lzo-rle";
        CompressLz4 "compress_lz4" "compress one page with lz4";
        CompressZstd "compress_zstd" "compress one page with zstd, level 3";
        DecompressLzoRle "decompress_lzo_rle" "decompress one page with lzo-rle";
        DecompressLz4 "decompress_lz4" "decompress one page with lz4";
        DecompressZstd "decompress_zstd" "decompress one page with zstd";
        ReclaimFolio "reclaim_folio" "decide about one folio in the shrink loop";
        ReclaimBatch "reclaim_batch" "set up and end one batch of the shrink loop";
        CompactScan "compact_scan" "look at one frame in search of something to move, or of a place to move it to";
        Switch "switch" "switch to another address space, without refilling the TLB";
        DaemonWake "daemon_wake" "wake a daemon";
    }
}

impl Work {
    /// Compressing a page.
    pub(crate) const fn compress(by: Compressor) -> Work {
        match by {
            Compressor::LzoRle => Work::CompressLzoRle,
            Compressor::Lz4 => Work::CompressLz4,
            Compressor::Zstd => Work::CompressZstd,
        }
    }

    /// Decompressing a page.
    pub(crate) const fn decompress(by: Compressor) -> Work {
        match by {
            Compressor::LzoRle => Work::DecompressLzoRle,
            Compressor::Lz4 => Work::DecompressLz4,
            Compressor::Zstd => Work::DecompressZstd,
        }
    }
}

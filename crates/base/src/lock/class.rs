//! Classes of locks: those of Linux's locks that CPUs wait for each other at.

use crate::named_table;

named_table! {
    /// The class of a lock, named after its counterpart in Linux.
    LockClass {
        Zone "zone_lock" "a zone's buddy lists (zone->lock)";
        Lru "lru_lock" "the lists of one group on one node (lruvec->lru_lock)";
        CachePages "i_pages_lock" "changes of a file's page tree (i_pages.xa_lock)";
        FileMappings "i_mmap_rwsem" "the mappings of a file; walks share it";
        AnonMappings "anon_vma_rwsem" "the mappings of a set of anonymous pages; walks share it";
        SwapArea "swap_info_lock" "the slots of a swap area (swap_info_struct->lock)";
        SplitQueue "split_queue_lock" "a node's queue of large folios that are to be split";
        PageTable "page_table_lock" "the entries of one page table (its ptl)";
        Mmap "mmap_lock" "a space's mapped ranges; faults take no part, as Linux's take the lock of their range";
        Inode "inode_rwsem" "a file's size (i_rwsem)";
    }
}

//! Flags of a frame, with the names that Linux gives them.

bitflags::bitflags! {
    /// State of a frame, or of the folio that it heads.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct FrameFlags: u32 {
        /// The folio is locked; its owner, content state and swap slot are stable for the holder.
        const LOCKED = 1 << 0;
        /// Somebody sleeps until LOCKED or WRITEBACK is cleared.
        const WAITERS = 1 << 1;
        /// Touched since the last look (file accesses; the second chance).
        const REFERENCED = 1 << 2;
        /// The content is what it should be.
        const UPTODATE = 1 << 3;
        /// The content is newer than its backing store.
        const DIRTY = 1 << 4;
        /// On a list vector's list.
        const LRU = 1 << 5;
        /// Belongs to an active list.
        const ACTIVE = 1 << 6;
        /// Was active before: part of the working set.
        const WORKINGSET = 1 << 7;
        /// Being written to its backing store.
        const WRITEBACK = 1 << 8;
        /// Reclaim wants it: free it as soon as its write ends. On a clean folio in the cache: read-ahead marker.
        const RECLAIM = 1 << 9;
        /// Backed by swap: anonymous or shmem. Cleared by MADV_FREE.
        const SWAPBACKED = 1 << 10;
        /// In the swap cache; `private` holds the slot.
        const SWAPCACHE = 1 << 11;
        /// On the unevictable list.
        const UNEVICTABLE = 1 << 12;
        /// Locked in memory by some mapping.
        const MLOCKED = 1 << 13;
        /// Free, head of a block on a buddy list; `private` holds the order.
        const BUDDY = 1 << 14;
        /// Free, on a CPU's list.
        const PCP = 1 << 15;
        /// A page-table page.
        const TABLE = 1 << 16;
        /// Head of a folio of order > 0.
        const HEAD = 1 << 17;
        /// Not the head of its folio; `private` holds the head.
        const TAIL = 1 << 18;
        /// Not ours to hand out (a hole, firmware, the zero page).
        const RESERVED = 1 << 19;
        /// An anonymous folio of several pages waits to be split, because only some of them are mapped.
        const PARTIALLY_MAPPED = 1 << 20;
        /// The next read-ahead starts when this folio is first used.
        const READAHEAD = 1 << 21;
        /// Anonymous and mapped by one process only: it may write without copying. Every page of a folio has its own.
        const EXCLUSIVE = 1 << 22;
    }
}

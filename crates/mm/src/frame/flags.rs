//! Flags of a frame, with the names that Linux gives them.

bitflags::bitflags! {
    /// State of a frame, or of the folio that it heads.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct FrameFlags: u32 {
        /// The folio is locked; its owner, content state and swap slot are stable for the holder.
        const LOCKED = 1 << 0;
        /// A task sleeps until LOCKED or WRITEBACK is cleared.
        const WAITERS = 1 << 1;
        /// Touched since the last look (file accesses; the second chance).
        const REFERENCED = 1 << 2;
        /// The content is valid.
        const UPTODATE = 1 << 3;
        /// The content is newer than the backing store.
        const DIRTY = 1 << 4;
        /// On a list of an LRU vector.
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
        /// In the swap cache; its private word holds the slot.
        const SWAPCACHE = 1 << 11;
        /// On the unevictable list.
        const UNEVICTABLE = 1 << 12;
        /// Locked in memory by a mapping.
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
        /// Not available to the allocator (a hole, firmware, the zero page).
        const RESERVED = 1 << 19;
        /// An anonymous folio of several pages that waits to be split because only some of them are mapped.
        const PARTIALLY_MAPPED = 1 << 20;
        /// The next read-ahead starts when this folio is first used.
        const READAHEAD = 1 << 21;
        /// Anonymous and mapped by one process only, which may write without copying. Each page of a folio has its own
        /// flag.
        const EXCLUSIVE = 1 << 22;
        /// The folio's generation, [`FrameFlags::generation`].
        const GENERATION = 7 << GENERATION_SHIFT;
        /// Uses through file descriptors beyond those that REFERENCED and WORKINGSET record, [`FrameFlags::uses`].
        const USES = 3 << USES_SHIFT;
        /// Free, head of a block that compaction holds; `private` holds the order.
        const HELD = 1 << 28;
        /// A folio of a file on a device that was written since it came to the cache: each of its pages has a buffer.
        const BUFFERS = 1 << 29;
        /// DAMON watches the folio, and no access has been seen since by anything else.
        const IDLE = 1 << 30;
        /// DAMON has seen an access, and taken the young bits that would tell reclaim.
        const YOUNG = 1 << 31;
    }
}

const GENERATION_SHIFT: u32 = 23;
const USES_SHIFT: u32 = 26;

/// A slot in a vector's window of generations: a generation's sequence number modulo the size of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LruGen(u8);

impl LruGen {
    /// Most generations that a vector has at a time.
    pub const COUNT: usize = 4;

    /// The slot of a sequence number.
    #[inline]
    pub const fn of(seq: u64) -> LruGen {
        LruGen((seq % LruGen::COUNT as u64) as u8)
    }

    /// The slot's number, less than [`LruGen::COUNT`].
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl FrameFlags {
    /// Largest value of [`FrameFlags::uses`].
    pub(crate) const MAX_USES: u32 = 3;

    /// The generation that the folio belongs to; `None` if it is not on a list of generations.
    #[inline]
    pub const fn generation(self) -> Option<LruGen> {
        match (self.bits() & FrameFlags::GENERATION.bits()) >> GENERATION_SHIFT {
            0 => None,
            number => Some(LruGen(number as u8 - 1)),
        }
    }

    #[inline]
    pub(crate) const fn with_generation(self, generation: Option<LruGen>) -> FrameFlags {
        let number = match generation {
            None => 0,
            Some(generation) => generation.0 as u32 + 1,
        };
        let others = self.bits() & !FrameFlags::GENERATION.bits();
        FrameFlags::from_bits_retain(others | number << GENERATION_SHIFT)
    }

    /// The counter of uses.
    #[inline]
    pub const fn uses(self) -> u32 {
        (self.bits() & FrameFlags::USES.bits()) >> USES_SHIFT
    }

    /// The same flags after one more use, up to [`FrameFlags::MAX_USES`].
    #[inline]
    pub(crate) const fn with_one_more_use(self) -> FrameFlags {
        if self.uses() == FrameFlags::MAX_USES {
            return self;
        }
        FrameFlags::from_bits_retain(self.bits() + (1 << USES_SHIFT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_and_uses_are_kept_beside_other_flags() {
        let mut flags = FrameFlags::EXCLUSIVE | FrameFlags::LOCKED;
        assert_eq!(flags.generation(), None);
        for seq in 0..9 {
            flags = flags.with_generation(Some(LruGen::of(seq)));
            assert_eq!(flags.generation(), Some(LruGen::of(seq)));
        }
        for uses in [1, 2, 3, 3] {
            flags = flags.with_one_more_use();
            assert_eq!(flags.uses(), uses);
        }
        let rest = flags.with_generation(None) - FrameFlags::USES;
        assert_eq!(rest, FrameFlags::EXCLUSIVE | FrameFlags::LOCKED);
    }
}

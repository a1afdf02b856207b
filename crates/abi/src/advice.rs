//! What programs tell the kernel about their use of memory and files.

use crate::numbered;

numbered! {
    /// `madvise` values.
    Advice {
        /// MADV_NORMAL: ordinary read-ahead and recency.
        Normal = 0,
        /// MADV_RANDOM: expect random use: no read-ahead, no recency.
        Random = 1,
        /// MADV_SEQUENTIAL: expect sequential use: more read-ahead, no recency.
        Sequential = 2,
        /// MADV_WILLNEED: read it in now.
        WillNeed = 3,
        /// MADV_DONTNEED: forget the content.
        DontNeed = 4,
        /// MADV_FREE: the content may be forgotten until it is written again.
        Free = 8,
        /// MADV_COLD: make it the first to be reclaimed.
        Cold = 20,
        /// MADV_PAGEOUT: reclaim it now.
        PageOut = 21,
        /// MADV_HUGEPAGE: anonymous memory may use the folio sizes whose knob is `madvise`.
        HugePage = 14,
        /// MADV_NOHUGEPAGE: anonymous memory uses single pages only.
        NoHugePage = 15,
        /// MADV_COLLAPSE: turn each aligned 2 MiB of the range into one folio that one entry maps.
        Collapse = 25,
    }
}

/// What becomes of a range's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forget {
    /// It stays.
    Not,
    /// It is forgotten now.
    Now,
    /// It may be forgotten at any time until it is written again.
    Perhaps,
}

impl Advice {
    /// What becomes of the content of private memory in the range.
    pub const fn forgets(self) -> Forget {
        match self {
            Advice::DontNeed => Forget::Now,
            Advice::Free => Forget::Perhaps,
            _ => Forget::Not,
        }
    }
}

numbered! {
    /// `posix_fadvise` values.
    FileAdvice {
        /// POSIX_FADV_NORMAL: ordinary read-ahead.
        Normal = 0,
        /// POSIX_FADV_RANDOM: no read-ahead.
        Random = 1,
        /// POSIX_FADV_SEQUENTIAL: twice the read-ahead.
        Sequential = 2,
        /// POSIX_FADV_WILLNEED: read it in now.
        WillNeed = 3,
        /// POSIX_FADV_DONTNEED: drop it from the cache.
        DontNeed = 4,
        /// POSIX_FADV_NOREUSE: used once: no recency.
        NoReuse = 5,
    }
}

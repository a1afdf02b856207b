//! Knobs that are a choice: the values of each, by name, with the words that users say.
//!
//! This is the one place that declares them: the table of knobs, profiles, checks and the soak take the words and the
//! numbers from here. It uses nothing, so that tools which do not know the memory manager can read it, too.

macro_rules! choices {
    ($($(#[$help:meta])* $name:ident { $($(#[$what:meta])* $variant:ident $word:literal,)* })*) => {$(
        $(#[$help])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$what])* $variant,)*
        }

        impl $name {
            /// All of them, by their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// What users call them.
            pub const WORDS: &'static [&'static str] = &[$($word,)*];

            /// The choice that a knob's value stands for.
            ///
            /// # Panics
            /// If it stands for none: no knob can be set to such a value.
            #[inline]
            pub const fn of(value: u64) -> $name {
                assert!(value < Self::ALL.len() as u64, "a knob has a value that stands for nothing");
                Self::ALL[value as usize]
            }

            /// The knob's value that stands for it.
            #[inline]
            pub const fn value(self) -> u64 {
                self as u64
            }
        }
    )*};
}

choices! {
    /// `tlb.unmap`: when translations of pages that reclaim unmaps are flushed.
    FlushPolicy {
        /// At every page.
        Eager "eager",
        /// At the end of the batch, everything on each CPU.
        Batch "batch",
        /// After a number of pages, page by page on each CPU.
        List "list",
        /// When a frame is used again, an address or a file changes, or the debt is old (LUF).
        Lazy "lazy",
        /// At every page, but not where no CPU has used it (ABIS).
        Abis "abis",
        /// At each CPU's next tick (LATR).
        Latr "latr",
    }
    /// `tier.policy`: what is hot, of slower tiers.
    TierPolicy {
        /// What faults soon after it was marked.
        Hint "hint",
        /// What MGLRU's walks have found young in two rounds in a row.
        Generations "generations",
        /// What the machine's samples of addresses say.
        Sampled "sampled",
    }
    /// `tier.migration`: how pages go up.
    TierMigration {
        /// While nobody can use them.
        Exclusive "exclusive",
        /// They are used meanwhile, and stay if they were written.
        Transactional "transactional",
    }
    /// `thp.defrag`: what a store does for a large folio that memory has no block for.
    ThpDefrag {
        /// Compact and reclaim.
        Always "always",
        /// Wake kswapd and kcompactd.
        Defer "defer",
        /// The one where MADV_HUGEPAGE asked for it, the other elsewhere.
        DeferMadvise "defer+madvise",
        /// Compact and reclaim there only.
        Madvise "madvise",
        /// Nothing.
        Never "never",
    }
    /// `compaction.folios`: what compaction does with large folios, each besides what those before it do.
    CompactionFolios {
        /// Leave them.
        Single "order0",
        /// Split them.
        Split "split",
        /// Move them whole, to free blocks of their size.
        Whole "whole",
        /// Split larger free blocks for them.
        FreeSplit "whole+free-split",
        /// Move the largest first.
        Sort "whole+free-split+sort",
        /// Merge what is left of free blocks.
        Merge "whole+free-split+sort+merge",
    }
    /// `lru_gen.form`: the Linux whose MGLRU it is.
    LruGenForm {
        /// As it came.
        V612 "6.12",
        /// With the rework of how uses are counted.
        V614 "6.14",
        /// With the loop of reclaim of 7.2 besides.
        V72 "7.2",
    }
    /// `alloc.placement`: which free block is taken.
    AllocPlacement {
        /// The smallest that is large enough.
        Smallest "smallest",
        /// One in the fullest page block.
        Densest "densest",
    }
}

/// The shape of a flush policy: all that the memory manager asks of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushShape {
    /// A page is flushed as it is unmapped.
    Now {
        /// But not if no CPU has used the entry.
        spares_unused: bool,
    },
    /// Pages are collected, and flushed together.
    Collect {
        /// One by one, as soon as there are enough; else everything at once, at the end.
        listed: bool,
    },
    /// Frames are freed with what they owe, and somebody pays later.
    Defer {
        /// Each CPU at its next tick; else who uses the frame, or changes the address or the file.
        at_ticks: bool,
    },
}

impl FlushPolicy {
    /// Its shape: here a policy is declared.
    #[inline]
    pub const fn shape(self) -> FlushShape {
        match self {
            FlushPolicy::Eager => FlushShape::Now { spares_unused: false },
            FlushPolicy::Abis => FlushShape::Now { spares_unused: true },
            FlushPolicy::Batch => FlushShape::Collect { listed: false },
            FlushPolicy::List => FlushShape::Collect { listed: true },
            FlushPolicy::Lazy => FlushShape::Defer { at_ticks: false },
            FlushPolicy::Latr => FlushShape::Defer { at_ticks: true },
        }
    }

    /// Are flushes put off for as long as they can be?
    pub const fn defers(self) -> bool {
        matches!(self.shape(), FlushShape::Defer { .. })
    }

    /// The number of policies, for those that go through their values.
    pub const COUNT: u64 = Self::ALL.len() as u64;
}

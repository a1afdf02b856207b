//! Knobs that are a choice: their values, with the words that users write.
//!
//! This file alone declares them. The table of knobs, profiles, checks and the soak take words and numbers from here.
//! It imports nothing, so that tools can include it without building the memory manager.

macro_rules! choices {
    ($($(#[$help:meta])* $name:ident { $($(#[$what:meta])* $variant:ident $word:literal,)* })*) => {$(
        $(#[$help])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$what])* $variant,)*
        }

        impl $name {
            /// All of them, by value.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// The words that users write.
            pub const WORDS: &'static [&'static str] = &[$($word,)*];

            /// The choice that a value of the knob selects.
            ///
            /// # Panics
            /// If the value selects none. No knob can be set to such a value.
            #[inline]
            pub const fn of(value: u64) -> $name {
                assert!(value < Self::ALL.len() as u64, "a knob's value must select a choice");
                Self::ALL[value as usize]
            }

            /// The knob's value that selects it.
            #[inline]
            pub const fn value(self) -> u64 {
                self as u64
            }

            /// The word for it.
            #[inline]
            pub const fn word(self) -> &'static str {
                Self::WORDS[self as usize]
            }
        }
    )*};
}

choices! {
    /// `tlb.unmap`: when to flush the translations of pages that reclaim unmaps.
    FlushPolicy {
        /// At every page.
        Eager "eager",
        /// At the end of the batch, everything on each CPU.
        Batch "batch",
        /// After a number of pages, page by page on each CPU.
        List "list",
        /// When a frame is reused, an address or a file changes, or the debt is too old (LUF).
        Lazy "lazy",
        /// At every page, unless no CPU has used it (ABIS).
        Abis "abis",
        /// At each CPU's next tick (LATR).
        Latr "latr",
    }
    /// `tier.policy`: what counts as hot in slower tiers.
    TierPolicy {
        /// A page that faults soon after it was marked.
        Hint "hint",
        /// A page that two MGLRU walks in a row found young.
        Generations "generations",
        /// A page that the machine's samples name often.
        Sampled "sampled",
    }
    /// `tier.migration`: how pages are promoted.
    TierMigration {
        /// Unmapped while they move.
        Exclusive "exclusive",
        /// Mapped and usable while they move; pages that are written stay.
        Transactional "transactional",
    }
    /// `thp.defrag`: what a store does if memory has no block for a large folio.
    ThpDefrag {
        /// Compact and reclaim.
        Always "always",
        /// Wake kswapd and kcompactd.
        Defer "defer",
        /// Compact and reclaim where MADV_HUGEPAGE asked for it; wake kswapd and kcompactd elsewhere.
        DeferMadvise "defer+madvise",
        /// Compact and reclaim where MADV_HUGEPAGE asked for it.
        Madvise "madvise",
        /// Nothing.
        Never "never",
    }
    /// `compaction.folios`: what compaction does with large folios. Each value includes those before it.
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
        /// Merge the remaining free blocks.
        Merge "whole+free-split+sort+merge",
    }
    /// `lru_gen.form`: the version of Linux whose MGLRU it is.
    LruGenForm {
        /// The first version.
        V612 "6.12",
        /// With the rework of how uses are counted.
        V614 "6.14",
        /// With the reclaim loop of 7.2, too, and its marks of uses.
        V72 "7.2",
        /// As the first version, but only refaults of the oldest generation are counted.
        V61 "6.1",
        /// As 7.2, and program text is of the working set from its first use on.
        V73 "7.3",
    }
    /// `file.read_ahead_form`: the version of Linux whose reading ahead of files it is.
    ReadAheadForm {
        /// Each page that is mapped around a fault is a hit, and the first window has larger folios at once.
        V612 "6.12",
        /// The page that faulted is a hit, if it was cached, and larger folios come with the second window.
        V72 "7.2",
    }
    /// `fault.form`: the version of Linux whose page faults they are.
    FaultForm {
        /// A load that swaps a page in may map it writable, and a fault counts once.
        V612 "6.12",
        /// Only a store maps it writable, and a fault that begins again after a read counts twice.
        V61 "6.1",
        /// As 6.12, but a fault on a large folio of a file maps it whole.
        V72 "7.2",
        /// The same, and a store that swaps in a page that others may share maps it read-only first.
        V73 "7.3",
    }
    /// `zswap.form`: the version of Linux whose zswap it is.
    ZswapForm {
        /// Folios of several pages, and pages that do not get smaller, go to their slots.
        V612 "6.12",
        /// They are kept, the latter as they are.
        V618 "6.18",
    }
    /// `zswap.compressor`, and zram's algorithm.
    Compressor {
        /// LZO with run lengths.
        LzoRle "lzo-rle",
        /// LZ4.
        Lz4 "lz4",
        /// zstd, level 3.
        Zstd "zstd",
    }
    /// `alloc.placement`: which free block to allocate from.
    AllocPlacement {
        /// The smallest that is large enough.
        Smallest "smallest",
        /// A block in the fullest page block.
        Densest "densest",
    }
}

impl FlushPolicy {
    /// Number of policies.
    pub const COUNT: u64 = Self::ALL.len() as u64;
}

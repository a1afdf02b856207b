//! Knobs: tunables with the names that sysctl and sysfs give them, declared once.

mod choice;
mod flush;

pub use choice::{
    AllocPlacement, CompactionFolios, Compressor, FaultForm, FlushPolicy, LruGenForm, ReadAheadForm,
    ThpDefrag, TierMigration, TierPolicy, ZswapForm,
};

use crate::policy::PolicyKind;
use crate::primitive::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::units::{Order, PAGEBLOCK_ORDER};

/// The help text of a knob. Knobs of one kind share a text that differs in one word.
macro_rules! help {
    ($help:literal) => {
        $help
    };
    (anon_size $size:literal) => {
        concat!(
            "may a store to anonymous memory get a folio of ",
            $size,
            ": never, where MADV_HUGEPAGE asked for it, or everywhere (but where MADV_NOHUGEPAGE forbids it)"
        )
    };
}

/// Whether a knob is read only when the machine starts.
macro_rules! at_start {
    () => {
        false
    };
    (start) => {
        true
    };
}

/// The words of a choice.
macro_rules! words {
    ([$($word:literal)*]) => {
        &[$($word,)*]
    };
    ([] $choice:ident) => {
        $choice::WORDS
    };
}

/// Smallest and largest value, and unit. A choice has as many values as words.
macro_rules! range {
    ($min:literal $max:literal $unit:literal) => {
        ($min, $max, $unit)
    };
    ($choice:ident) => {
        (0, $choice::WORDS.len() as u64 - 1, "")
    };
}

macro_rules! knobs {
    ($(
        $variant:ident $name:literal $default:literal $(, $min:literal..=$max:literal $unit:literal)?
        $([$($word:literal)*])? $({$choice:ident})? $(@$when:ident)? $($kind:ident)? $help:literal;
    )*) => {
        /// A tunable.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u16)]
        pub enum Knob {
            $(#[doc = help!($($kind)? $help)] $variant,)*
        }

        impl Knob {
            /// All knobs, in table order.
            pub const ALL: &'static [Knob] = &[$(Knob::$variant,)*];
            const INFO: &'static [KnobInfo] = &[$(KnobInfo {
                name: $name,
                default: $default,
                min: range!($($min $max $unit)? $($choice)?).0,
                max: range!($($min $max $unit)? $($choice)?).1,
                unit: range!($($min $max $unit)? $($choice)?).2,
                help: help!($($kind)? $help),
                words: words!([$($($word)*)?] $($choice)?),
                at_start: at_start!($($when)?),
            },)*];
        }
    };
}

/// Bits of `kernel.numa_balancing`.
pub mod numa_balancing {
    /// Move pages to the node that uses them.
    pub(crate) const NORMAL: u64 = 1;
    /// Promote hot pages of slower tiers.
    pub(crate) const TIERING: u64 = 2;
}

/// The description of a knob.
#[derive(Clone, Copy, Debug)]
pub struct KnobInfo {
    /// Name in sysctl or sysfs.
    pub name: &'static str,
    /// Value at start.
    pub default: u64,
    /// Smallest allowed value.
    pub min: u64,
    /// Largest allowed value.
    pub max: u64,
    /// Unit of the value; empty for a plain number.
    pub unit: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// If the knob is a choice, the names of its values from `min` on; empty for a number.
    pub words: &'static [&'static str],
    /// Whether the knob is read only when the machine starts and cannot change later.
    pub at_start: bool,
}

impl KnobInfo {
    /// The value that has this name, if the knob is a choice.
    pub fn value_of(&self, word: &str) -> Option<u64> {
        let at = self.words.iter().position(|&name| name == word)?;
        Some(self.min + at as u64)
    }
}

knobs! {
    Swappiness "vm.swappiness" 60, 0..=200 ""
        "relative cost of swapping against dropping file pages: 100 = equal, 0 = avoid swap";
    ReclaimPolicy "reclaim.policy" 0 {PolicyKind}
        "which pages are replaced: active and inactive lists, generations (MGLRU; bit 0 of lru_gen.enabled follows), or one of the \
         policies that propose (docs/policies.md)";
    LruGenEnabled "lru_gen.enabled" 6, 0..=7 ""
        "parts of MGLRU: 1 = generations (reclaim.policy follows), 2 = walks of page tables, 4 = entries that lead to tables \
         tell which were used";
    LruGenMinTtlMs "lru_gen.min_ttl_ms" 0, 0..=3600000 "ms"
        "protect pages used within this time: kill a process rather than evict them; 0 = off";
    LruGenBloom "lru_gen.bloom" 1, 0..=1 ""
        "MGLRU: walks look only at tables that were dense at the last look (1), or at all tables (0); not in Linux";
    LruGenLookAround "lru_gen.look_around" 1, 0..=1 ""
        "MGLRU: eviction that finds a used entry looks at the entries around it (1), or at no other (0); not in Linux";
    LruGenTiers "lru_gen.tiers" 1, 0..=1 ""
        "MGLRU: uses through file descriptors divide a generation into tiers (1), or all of it is one (0); not in Linux";
    LruGenPid "lru_gen.pid" 1, 0..=1 ""
        "MGLRU: refaults choose the type and the tiers to evict (1), or files go first and no tier is spared (0); not in Linux";
    LruGenMemcgLru "lru_gen.memcg_lru" 1, 0..=1 ""
        "MGLRU: reclaim of a node takes from one group after the other until it has enough (1), or from all of them (0); not in Linux";
    LruGenForm "lru_gen.form" 0 {LruGenForm}
        "MGLRU: how uses are counted and where folios go, as in Linux 6.12 or as it was reworked for 6.14; with 7.2's loop of \
         reclaim and its marks besides; in 7.3 the first use of program text counts, too; 6.1 is 6.12 that counts \
         refaults of the oldest generation alone (docs/mglru.md)";
    DemotionEnabled "numa.demotion_enabled" 0, 0..=1 ""
        "reclaim moves cold pages to a slower tier of memory, if there is one, before it drops or swaps them";
    NumaBalancing "kernel.numa_balancing" 0, 0..=3 ""
        "learn by faults where pages are used: 1 = move them to the node that uses them, 2 = promote hot pages of slow \
         tiers; both together = 3";
    NumaScanDelayMs "numa_balancing.scan_delay_ms" 1000, 0..=100000 "ms"
        "age of a space at which its first pages are marked";
    NumaScanPeriodMinMs "numa_balancing.scan_period_min_ms" 1000, 1..=60000 "ms"
        "the shortest time between two marks of a part of a space";
    NumaScanPeriodMaxMs "numa_balancing.scan_period_max_ms" 60000, 1..=600000 "ms"
        "the longest time, and how often the threshold of promotion is adjusted";
    NumaScanSizeMb "numa_balancing.scan_size_mb" 256, 1..=65536 "MiB"
        "how much of a space is marked at a time";
    NumaHotThresholdMs "numa_balancing.hot_threshold_ms" 1000, 1..=60000 "ms"
        "a page that is used within this time after it was marked is hot";
    NumaPromoteRateLimit "kernel.numa_balancing_promote_rate_limit_MBps" 65536, 1..=1048576 "MB/s"
        "how much may be promoted to a node";
    TierPolicy "tier.policy" 0 {TierPolicy} @start
        "what counts as hot in slower tiers: what kernel.numa_balancing=2 learns by faults, what MGLRU's walks have found young in two rounds in \
         a row, or what the machine's samples of addresses say; not in Linux";
    TierMigration "tier.migration" 0 {TierMigration} @start
        "pages are promoted while they are unmapped, or stay in use while a daemon copies them, and remain where they are if they were written \
         meanwhile; not in Linux";
    TierBalance "tier.balance" 0, 0..=1 ""
        "hot pages go to the tier that answers faster under its load (1), if tier.policy samples and the machine reports \
         latencies; not in Linux";
    TierPeriodMs "tier.period_ms" 500, 1..=60000 "ms"
        "how long a round of generations, of promotion by samples, or of balancing is";
    TierSamplePeriod "tier.sample_period" 199, 1..=1000000 "reads"
        "one read of memory in this many is sampled";
    TierAdaptSamples "tier.adapt_samples" 100000, 1..=1000000000 ""
        "samples after which the threshold follows the size of the fast tiers";
    TierCoolSamples "tier.cool_samples" 2000000, 1..=1000000000 ""
        "samples after which all counts are halved";
    MinFreeKbytes "vm.min_free_kbytes" 0, 0..=262144 "KiB"
        "memory kept free for allocations that cannot wait; 0 = by the size of memory";
    WatermarkScaleFactor "vm.watermark_scale_factor" 10, 1..=3000 "1/10000"
        "distance between the watermarks as a share of a zone";
    WatermarkBoostFactor "vm.watermark_boost_factor" 15000, 0..=100000 "1/10000"
        "how far watermarks rise after mobility groups were mixed, as a share of the high mark";
    LowmemReserveRatio "vm.lowmem_reserve_ratio" 256, 0..=10000 ""
        "a zone keeps 1/ratio of the memory of higher zones from allocations that could use those; 0 = none";
    PercpuPagelistHighFraction "vm.percpu_pagelist_high_fraction" 0, 0..=1000 ""
        "CPUs' lists may hold 1/n of a zone together; 0 = by the low watermark";
    MemcgFlushMs "memcg.flush_ms" 2000, 0..=60000 "ms"
        "how often statistics of control groups are added up; until then some decisions of the classic lists follow the older sizes; 0 = they \
         follow the sizes as they are, as in Linux without groups (cgroup_disable=memory)";
    MemcgChargeBatch "memcg.charge_batch" 64, 1..=1024 "pages"
        "pages that a CPU charges to a control group at once, for this charge and later ones; 1 = none in advance; constant in Linux";
    LruBatch "lru.batch" 31, 1..=255 "pages"
        "folios that a CPU collects before it moves them between lists under one hold of the lock, in simulated time; constant in Linux: 31, and 15 \
         before 6.10";
    PageCluster "vm.page-cluster" 3, 0..=10 "log2 pages"
        "pages read ahead from swap around a fault";
    SwapVmaRaEnabled "swap.vma_ra_enabled" 1, 0..=1 ""
        "read ahead from swap the neighbours of a page in the address space (1; Linux does so if no swap device is rotational), or those of its slot (0)";
    ZswapEnabled "zswap.enabled" 0, 0..=1 "" @start
        "keep pages compressed in memory instead of writing them to swap, as long as there is room for them (1)";
    ZswapCompressor "zswap.compressor" 0 {Compressor}
        "how zswap compresses a page";
    ZswapMaxPoolPercent "zswap.max_pool_percent" 20, 0..=100 "%"
        "share of memory that zswap may take";
    ZswapAcceptThresholdPercent "zswap.accept_threshold_percent" 90, 0..=100 "%"
        "share of this to which zswap must shrink, after it was full, before it takes pages again";
    ZswapShrinkerEnabled "zswap.shrinker_enabled" 0, 0..=1 ""
        "have reclaim write old pages of zswap to swap although there is room for them; those of groups only, as in Linux (1)";
    ZswapForm "zswap.form" 0 {ZswapForm}
        "the version of Linux whose zswap it is: in 6.12 folios of several pages, and pages that do not get smaller, go to \
         their slots; in 6.18 zswap keeps the pages of the former, and the latter as they are";
    DirtyRatio "vm.dirty_ratio" 20, 1..=100 "%"
        "share of available memory that may be dirty before writers must wait";
    DirtyBackgroundRatio "vm.dirty_background_ratio" 10, 0..=100 "%"
        "share of available memory that may be dirty before the flusher starts";
    DirtyExpireCentisecs "vm.dirty_expire_centisecs" 3000, 0..=360000 "cs"
        "age at which a dirty page is written";
    DirtyWritebackCentisecs "vm.dirty_writeback_centisecs" 500, 0..=360000 "cs"
        "interval of the flusher; 0 = only on request";
    ReadAheadKb "queue.read_ahead_kb" 128, 0..=2048 "KiB"
        "largest read-ahead window of a file";
    FaultForm "fault.form" 0 {FaultForm}
        "the version of Linux whose page faults they are: in 6.12 a load that swaps in a page of this process alone maps it \
         writable; in 6.1 only a store does, and pgfault counts a fault that begins again after a read twice; in 7.2 a \
         fault on a large folio of a file maps it whole; in 7.3 a store that swaps in a page that others may share maps \
         it read-only first";
    ReadAheadForm "file.read_ahead_form" 0 {ReadAheadForm}
        "the version of Linux whose reading ahead of files it is: in 6.12 each page that is mapped around a fault is a hit, and \
         reading around faults stops when misses outnumber hits; in 7.2 only the page that faulted is one, and \
         program text is read forward and counts neither";
    FileMaxOrder "file.max_order" 0, 0..=9 "log2 pages"
        "largest folio of a file's page cache, made by read-ahead and write; 0 = single pages, as file systems without \
         large folios have";
    ShmemMaxOrder "shmem.max_order" 0, 0..=9 "log2 pages"
        "largest folio of shmem: the largest that fits into the file and overlaps no other; 0 = single pages";
    ThpFilePmd "thp.file_pmd" 0, 0..=1 ""
        "an aligned 2 MiB folio of a file or of shmem is mapped by one entry where the range has room for it (1), or page by \
         page (0)";
    ThpKhugepaged "thp.khugepaged" 0, 0..=1 "" @start
        "a daemon collapses pages where a 2 MiB entry fits: files and shmem, and anonymous memory as \
         hugepages-2048kB.enabled says; looked at when the machine starts";
    KhugepagedPagesToScan "khugepaged.pages_to_scan" 4096, 1..=1048576 "pages"
        "pages of address space that khugepaged looks at before it sleeps";
    KhugepagedScanSleepMillisecs "khugepaged.scan_sleep_millisecs" 10000, 0..=3600000 "ms"
        "time for which it sleeps then";
    KhugepagedAllocSleepMillisecs "khugepaged.alloc_sleep_millisecs" 60000, 0..=3600000 "ms"
        "time for which khugepaged sleeps when memory has no block of 2 MiB for it";
    KhugepagedMaxPtesNone "khugepaged.max_ptes_none" 511, 0..=511 "pages"
        "most pages of 2 MiB that may be missing from memory when they are collapsed: they are read, or are zeroes";
    KhugepagedMaxPtesSwap "khugepaged.max_ptes_swap" 64, 0..=511 "pages"
        "most pages of 2 MiB that khugepaged brings back from swap to collapse them";
    KhugepagedMaxPtesShared "khugepaged.max_ptes_shared" 256, 0..=511 "pages"
        "most pages of 2 MiB of anonymous memory that other processes map, too, and that khugepaged still copies";
    DamonReclaimEnabled "damon_reclaim.enabled" 0, 0..=1 "" @start
        "a daemon watches which memory is used, and pages out what was not used for damon_reclaim.min_age, while free memory is \
         between its watermarks; looked at when the machine starts";
    DamonReclaimMinAge "damon_reclaim.min_age" 120000000, 0..=86400000000_u64 "us"
        "time for which a region must not have been used to be paged out";
    DamonReclaimQuotaMs "damon_reclaim.quota_ms" 10, 0..=3600000 "ms"
        "time that damon_reclaim may page out in each quota_reset_interval_ms; 0 = any";
    DamonReclaimQuotaSz "damon_reclaim.quota_sz" 134217728, 0..=1099511627776_u64 "bytes"
        "memory that it may try to page out in each quota_reset_interval_ms; 0 = any";
    DamonReclaimQuotaResetIntervalMs "damon_reclaim.quota_reset_interval_ms" 1000, 1..=3600000 "ms"
        "length of a window of the quota";
    DamonReclaimWmarksInterval "damon_reclaim.wmarks_interval" 5000000, 1..=3600000000_u64 "us"
        "time between two looks at free memory while damon_reclaim does nothing";
    DamonReclaimWmarksHigh "damon_reclaim.wmarks_high" 500, 0..=1000 "per mille"
        "free memory above which damon_reclaim does nothing";
    DamonReclaimWmarksMid "damon_reclaim.wmarks_mid" 400, 0..=1000 "per mille"
        "free memory below which damon_reclaim begins";
    DamonReclaimWmarksLow "damon_reclaim.wmarks_low" 200, 0..=1000 "per mille"
        "free memory below which damon_reclaim does nothing, because reclaim has better means";
    DamonReclaimSampleInterval "damon_reclaim.sample_interval" 5000, 1..=60000000 "us"
        "time for which a page of each region is watched";
    DamonReclaimAggrInterval "damon_reclaim.aggr_interval" 100000, 1..=600000000 "us"
        "time after which regions are joined, paged out and cut";
    DamonReclaimMinNrRegions "damon_reclaim.min_nr_regions" 10, 3..=1000000 ""
        "a region has at most this part of memory";
    DamonReclaimMaxNrRegions "damon_reclaim.max_nr_regions" 1000, 3..=1000000 ""
        "most regions: what watching costs";
    DamonReclaimSkipAnon "damon_reclaim.skip_anon" 0, 0..=1 ""
        "damon_reclaim leaves anonymous pages alone (1)";
    HugepagesEnabled16 "hugepages-16kB.enabled" 0, 0..=2 "" ["never" "madvise" "always"]
        anon_size "16 KiB";
    HugepagesEnabled32 "hugepages-32kB.enabled" 0, 0..=2 "" ["never" "madvise" "always"]
        anon_size "32 KiB";
    HugepagesEnabled64 "hugepages-64kB.enabled" 0, 0..=2 "" ["never" "madvise" "always"]
        anon_size "64 KiB";
    HugepagesEnabled128 "hugepages-128kB.enabled" 0, 0..=2 "" ["never" "madvise" "always"]
        anon_size "128 KiB";
    HugepagesEnabled256 "hugepages-256kB.enabled" 0, 0..=2 "" ["never" "madvise" "always"]
        anon_size "256 KiB";
    HugepagesEnabled512 "hugepages-512kB.enabled" 0, 0..=2 "" ["never" "madvise" "always"]
        anon_size "512 KiB";
    HugepagesEnabled1024 "hugepages-1024kB.enabled" 0, 0..=2 "" ["never" "madvise" "always"]
        anon_size "1024 KiB";
    HugepagesEnabled2048 "hugepages-2048kB.enabled" 0, 0..=2 "" ["never" "madvise" "always"]
        anon_size "2048 KiB";
    ThpDefrag "thp.defrag" 3 {ThpDefrag}
        "what a store does if memory has no block for a large anonymous folio: compact and reclaim (always), \
         wake kswapd and kcompactd (defer), the one where MADV_HUGEPAGE asked for it and the other elsewhere (defer+madvise), \
         the one there only (madvise), or nothing (never)";
    CompactionFolios "compaction.folios" 3 {CompactionFolios}
        "what compaction does with large folios: leave them, split them, move them whole to free blocks of their size, split \
         larger free blocks for them, move the largest first, merge what is left of free blocks";
    CompactMemory "vm.compact_memory" 0, 0..=1 ""
        "1: compact all memory now; reads as 0";
    CompactionProactiveness "vm.compaction_proactiveness" 20, 0..=100 "%"
        "how aggressively kcompactd compacts fragmented free memory without a request, if large folios are used; 0 = never";
    ExtfragThreshold "vm.extfrag_threshold" 500, 0..=1000 ""
        "fragmentation index up to which a failed allocation of a large block is attributed to lack of memory, so that reclaim \
         helps and compaction does not";
    AllocPlacement "alloc.placement" 0 {AllocPlacement} @start
        "which free block is taken: the smallest that is large enough, the last one given back first; or one in the fullest page \
         block, so that others run empty";
    DefragMode "vm.defrag_mode" 0, 0..=1 ""
        "1: mix mobility groups within 2 MiB only after reclaim and compaction have failed, and have kswapd and kcompactd keep whole \
         page blocks free up to the high mark (Linux 6.15)";
    InitOnAlloc "init_on_alloc" 0, 0..=1 ""
        "1: clear each page that is handed out, also where it is overwritten at once; a kernel's configuration has it on or off by \
         default (CONFIG_INIT_ON_ALLOC_DEFAULT_ON; Debian's: on)";
    CompactUnevictableAllowed "vm.compact_unevictable_allowed" 1, 0..=1 ""
        "compaction may move pages that are locked in memory (1)";
    FaultAroundBytes "fault_around_bytes" 65536, 4096..=2097152 "bytes"
        "range of cached file pages mapped by one read fault";
    RmapBatch "rmap.batch" 1, 0..=1 ""
        "a run of entries that map a folio's pages is changed, counted and flushed in one step (1), or entry by entry (0)";
    TlbUnmap "tlb.unmap" 1 {FlushPolicy} @start
        "when translations of pages that reclaim unmaps are flushed: at once, a batch at a time, a batch page by page, \
         when the page is used again (LUF), at once where they were used (ABIS), at each CPU's next tick (LATR)";
    TlbUnmapPages "tlb.unmap_pages" 32, 1..=512 "pages"
        "pages that the policy 'list' flushes in one round";
    TlbAgeLimitMs "tlb.age_limit_ms" 100, 0..=60000 "ms"
        "longest time that a flush is deferred; 0 = no limit";
    TlbLazyMaxOrder "tlb.lazy_max_order" 10, 0..=10 "log2 pages"
        "largest folio whose flush is deferred, if the policy defers; 0 = single pages only, as in the LUF series";
    TlbPayAll "tlb.pay_all" 1, 0..=1 ""
        "a round that must be sent anyway goes to all CPUs that owe a flush (1), or only to those that it needs (0)";
    TlbSinglePageFlushCeiling "tlb_single_page_flush_ceiling" 33, 0..=512 "pages"
        "a CPU that must drop more pages than this drops everything";
    TimeContention "time.contention" 1, 0..=1 "" @start
        "simulated CPUs wait for each other at locks (1), or never (0); booted ones always do";
}

impl Knob {
    /// The knob's description.
    pub fn info(self) -> &'static KnobInfo {
        &Self::INFO[self as usize]
    }

    /// Find a knob by its name.
    pub fn from_name(name: &str) -> Option<Knob> {
        Self::ALL.iter().copied().find(|knob| knob.info().name == name)
    }
}

macro_rules! chosen {
    ($($method:ident $knob:ident $choice:ident;)*) => {
        impl Knobs {
            $(
                #[doc = concat!("What the knob [`Knob::", stringify!($knob), "`] chooses.")]
                #[inline]
                pub fn $method(&self) -> $choice {
                    $choice::of(self.get(Knob::$knob))
                }
            )*
        }
    };
}

chosen! {
    reclaim_policy ReclaimPolicy PolicyKind;
    flush_policy TlbUnmap FlushPolicy;
    tier_policy TierPolicy TierPolicy;
    tier_migration TierMigration TierMigration;
    defrag ThpDefrag ThpDefrag;
    compaction_folios CompactionFolios CompactionFolios;
    fault_form FaultForm FaultForm;
    lru_gen_form LruGenForm LruGenForm;
    placement AllocPlacement AllocPlacement;
    read_ahead_form ReadAheadForm ReadAheadForm;
    zswap_compressor ZswapCompressor Compressor;
    zswap_form ZswapForm ZswapForm;
}

/// Why a knob was not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KnobError {
    /// There is no knob with that name.
    Unknown,
    /// The value is outside the knob's range.
    Range {
        /// Smallest allowed value.
        min: u64,
        /// Largest allowed value.
        max: u64,
    },
}

/// The knobs for the sizes of anonymous folios, smallest size first.
const ANON_SIZES: [(Knob, Order); 8] = [
    (Knob::HugepagesEnabled16, Order(2)),
    (Knob::HugepagesEnabled32, Order(3)),
    (Knob::HugepagesEnabled64, Order(4)),
    (Knob::HugepagesEnabled128, Order(5)),
    (Knob::HugepagesEnabled256, Order(6)),
    (Knob::HugepagesEnabled512, Order(7)),
    (Knob::HugepagesEnabled1024, Order(8)),
    (Knob::HugepagesEnabled2048, Order(9)),
];

/// The folio sizes that a fault on anonymous memory may use: one bit for each order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnonSizes {
    always: u16,
    madvise: u16,
}

impl AnonSizes {
    /// Whether no size is enabled.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.always | self.madvise == 0
    }

    /// The enabled orders, largest first. `asked`: MADV_HUGEPAGE asked for them.
    pub fn orders(self, asked: bool) -> impl Iterator<Item = Order> {
        let enabled = if asked { self.always | self.madvise } else { self.always };
        (0..=PAGEBLOCK_ORDER.0).rev().map(Order).filter(move |order| enabled >> order.0 & 1 == 1)
    }
}

/// The values of all knobs.
pub struct Knobs {
    values: [AtomicU64; Knob::ALL.len()],
    /// The knobs for the sizes of anonymous folios, combined for faults: `always` in the low half, `madvise` above.
    anon_sizes: AtomicU32,
}

impl Default for Knobs {
    fn default() -> Self {
        let values = core::array::from_fn(|i| AtomicU64::new(Knob::INFO[i].default));
        let knobs = Knobs { values, anon_sizes: AtomicU32::new(0) };
        knobs.note_anon_sizes();
        knobs
    }
}

impl Knobs {
    /// The value of a knob.
    #[inline]
    pub fn get(&self, knob: Knob) -> u64 {
        self.values[knob as usize].load(Relaxed)
    }

    /// Set a knob.
    pub fn set(&self, knob: Knob, value: u64) -> Result<(), KnobError> {
        let KnobInfo { min, max, .. } = *knob.info();
        if !(min..=max).contains(&value) {
            return Err(KnobError::Range { min, max });
        }
        self.values[knob as usize].store(value, Relaxed);
        self.note_anon_sizes();
        Ok(())
    }

    /// The sizes that anonymous folios may have.
    #[inline]
    pub fn anon_sizes(&self) -> AnonSizes {
        let both = self.anon_sizes.load(Relaxed);
        AnonSizes { always: both as u16, madvise: (both >> 16) as u16 }
    }

    /// Whether anything would use blocks larger than single pages.
    pub fn wants_blocks(&self) -> bool {
        let files = [Knob::FileMaxOrder, Knob::ShmemMaxOrder, Knob::ThpKhugepaged];
        !self.anon_sizes().is_empty() || files.iter().any(|&knob| self.get(knob) > 0)
    }

    fn note_anon_sizes(&self) {
        let both = ANON_SIZES.iter().fold(0, |both, &(knob, order)| match self.get(knob) {
            0 => both,
            1 => both | 1 << (16 + order.0),
            _ => both | 1 << order.0,
        });
        self.anon_sizes.store(both, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_ranges() {
        let knobs = Knobs::default();
        for &knob in Knob::ALL {
            assert_eq!(Knob::from_name(knob.info().name), Some(knob));
            assert_eq!(knobs.set(knob, knob.info().default), Ok(()));
        }
        assert_eq!(knobs.set(Knob::Swappiness, 201), Err(KnobError::Range { min: 0, max: 200 }));
    }

    #[test]
    fn knobs_read_only_at_start_are_marked() {
        let at_start = Knob::ALL.iter().filter(|knob| knob.info().at_start);
        assert!(at_start.eq([
            &Knob::TierPolicy,
            &Knob::TierMigration,
            &Knob::ZswapEnabled,
            &Knob::ThpKhugepaged,
            &Knob::DamonReclaimEnabled,
            &Knob::AllocPlacement,
            &Knob::TlbUnmap,
            &Knob::TimeContention
        ]));
    }

    #[test]
    fn sizes_of_anonymous_folios_are_enabled_one_by_one() {
        let knobs = Knobs::default();
        assert!(knobs.anon_sizes().is_empty());
        knobs.set(Knob::HugepagesEnabled16, 2).unwrap();
        knobs.set(Knob::HugepagesEnabled2048, 1).unwrap();
        let orders =
            |asked| knobs.anon_sizes().orders(asked).map(|order| order.0).collect::<std_alloc::vec::Vec<_>>();
        assert_eq!((orders(false), orders(true)), (std_alloc::vec![2], std_alloc::vec![9, 2]));
        assert!(ANON_SIZES.iter().all(|(knob, order)| {
            knob.info().name == std_alloc::format!("hugepages-{}kB.enabled", order.frames() * 4)
        }));
    }
}

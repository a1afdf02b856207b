//! Counters, with the names of /proc/vmstat. One row in the table is one counter: help, output and documents come from
//! it. The row also says whether the counter is a level, which goes up and down, and whether less or more of it is
//! better.
//!
//! Every CPU counts in cells of its own; a read sums them.

use crate::primitive::{AtomicI64, Ordering::Relaxed};
use crate::units::CpuId;
use base::named_table;
use std_alloc::boxed::Box;

/// What more of a counter means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterKind {
    /// It goes up and down. All others only grow.
    Level,
    /// Less of it is better: waste, waiting, and work for want of memory.
    Less,
    /// More of it is better.
    More,
    /// Neither is better.
    Neutral,
}

macro_rules! kind {
    () => {
        CounterKind::Neutral
    };
    (level) => {
        CounterKind::Level
    };
    (less) => {
        CounterKind::Less
    };
    (more) => {
        CounterKind::More
    };
}

macro_rules! counters {
    ($($variant:ident $name:literal $($kind:ident)? $help:literal;)*) => {
        named_table! {
            /// A counter.
            Stat {
                $($variant $name $help;)*
            }
        }

        impl Stat {
            /// What more of it means.
            pub const fn kind(self) -> CounterKind {
                match self { $(Stat::$variant => kind!($($kind)?),)* }
            }
        }
    };
}

counters! {
    NrFreePages "nr_free_pages" level "free pages, those on CPUs' lists not counted";
    NrInactiveAnon "nr_inactive_anon" level "pages on inactive lists, anonymous and shmem";
    NrActiveAnon "nr_active_anon" level "pages on active lists, anonymous and shmem";
    NrInactiveFile "nr_inactive_file" level "pages on inactive lists, file";
    NrActiveFile "nr_active_file" level "pages on active lists, file";
    NrUnevictable "nr_unevictable" level "pages on unevictable lists";
    NrMlock "nr_mlock" level "pages locked in memory";
    NrIsolatedAnon "nr_isolated_anon" level "anonymous pages that reclaim holds";
    NrIsolatedFile "nr_isolated_file" level "file pages that reclaim holds";
    NrAnonPages "nr_anon_pages" level "mapped anonymous pages";
    NrMapped "nr_mapped" level "mapped file pages";
    NrAnonTransparentHugepages "nr_anon_transparent_hugepages" level "anonymous folios mapped by 2 MiB entries";
    NrShmemPmdmapped "nr_shmem_pmdmapped" level "shmem folios mapped by 2 MiB entries";
    NrFilePmdmapped "nr_file_pmdmapped" level "file folios mapped by 2 MiB entries";
    NrFilePages "nr_file_pages" level "pages in page caches and the swap cache";
    NrShmem "nr_shmem" level "pages of shmem";
    NrDirty "nr_dirty" level "dirty file pages";
    NrWriteback "nr_writeback" level "pages being written";
    NrDirtied "nr_dirtied" "pages that became dirty";
    NrWritten "nr_written" less "pages written by write-back";
    NrSwapcached "nr_swapcached" level "pages in the swap cache";
    NrPageTablePages "nr_page_table_pages" level "pages that hold page tables";
    NrZspages "nr_zspages" level "pages of compressed memory";
    NrSlabReclaimable "nr_slab_reclaimable" level "pages of slabs of records that can be dropped";
    DamonTriedRegions "nr_reclaim_tried_regions" "regions that damon_reclaim has tried to page out";
    DamonTriedBytes "bytes_reclaim_tried_regions" "their bytes";
    DamonReclaimedRegions "nr_reclaimed_regions" "regions of which it has paged something out";
    DamonReclaimedBytes "bytes_reclaimed_regions" "bytes that it has paged out";
    DamonQuotaExceeds "nr_quota_exceeds" "windows in which it has used its quota up";
    PgpgIn "pgpgin" less "kilobytes read from devices";
    PgpgOut "pgpgout" less "kilobytes written to devices";
    PswpIn "pswpin" less "pages read from swap";
    PswpOut "pswpout" less "pages written to swap";
    SwpoutZero "swpout_zero" "pages of zeroes that were swapped out, for which nothing is written";
    SwpinZero "swpin_zero" "such pages that came back";
    Zswpin "zswpin" "pages that came back from zswap";
    Zswpout "zswpout" "pages that went to zswap";
    Zswpwb "zswpwb" less "pages that zswap has written to swap";
    SwapRa "swap_ra" "pages read ahead from swap";
    SwapRaHit "swap_ra_hit" more "pages read ahead from swap that were then used";
    PgallocDma32 "pgalloc_dma32" "pages allocated from DMA32 zones";
    PgallocNormal "pgalloc_normal" "pages allocated from Normal zones";
    PgallocMovable "pgalloc_movable" "pages allocated from Movable zones";
    AllocstallDma32 "allocstall_dma32" less "direct reclaims for a DMA32 allocation";
    AllocstallNormal "allocstall_normal" less "direct reclaims for a Normal allocation";
    AllocstallMovable "allocstall_movable" less "direct reclaims for a Movable allocation";
    PgskipDma32 "pgskip_dma32" less "pages skipped because their zone was not wanted, DMA32";
    PgskipNormal "pgskip_normal" less "pages skipped because their zone was not wanted, Normal";
    PgskipMovable "pgskip_movable" less "pages skipped because their zone was not wanted, Movable";
    Pgfree "pgfree" "pages freed";
    Pgactivate "pgactivate" "pages moved to an active list";
    Pgdeactivate "pgdeactivate" "pages moved to an inactive list";
    Pglazyfree "pglazyfree" "pages marked by MADV_FREE";
    Pglazyfreed "pglazyfreed" "such pages freed by reclaim";
    Pgfault "pgfault" less "page faults";
    Pgmajfault "pgmajfault" less "page faults whose page had to be read from a device";
    Pgrefill "pgrefill" less "pages scanned on active lists";
    Pgreuse "pgreuse" more "write faults that could keep the page";
    PgstealKswapd "pgsteal_kswapd" "pages reclaimed by kswapd";
    PgstealDirect "pgsteal_direct" "pages reclaimed directly";
    PgstealAnon "pgsteal_anon" "pages reclaimed from anonymous lists";
    PgstealFile "pgsteal_file" "pages reclaimed from file lists";
    PgscanKswapd "pgscan_kswapd" less "pages scanned by kswapd";
    PgscanDirect "pgscan_direct" less "pages scanned directly";
    PgscanAnon "pgscan_anon" less "pages scanned on anonymous lists";
    PgscanFile "pgscan_file" less "pages scanned on file lists";
    PgscanDirectThrottle "pgscan_direct_throttle" less "reclaimers put to sleep because reserves were low";
    Pgrotated "pgrotated" "pages moved to the tail when their write ended";
    Pageoutrun "pageoutrun" less "rounds of kswapd";
    KswapdLowWmarkHitQuickly "kswapd_low_wmark_hit_quickly" less "kswapd was wanted again in its nap";
    KswapdHighWmarkHitQuickly "kswapd_high_wmark_hit_quickly" less "the node was unbalanced again after kswapd's nap";
    NrVmscanWrite "nr_vmscan_write" less "pages written by reclaim";
    NrVmscanImmediateReclaim "nr_vmscan_immediate_reclaim" less "pages marked to be freed when their write ends";
    WorkingsetNodes "workingset_nodes" level "tree nodes that hold only shadows";
    WorkingsetRefaultAnon "workingset_refault_anon" less "anonymous pages that came back after eviction";
    WorkingsetRefaultFile "workingset_refault_file" less "file pages that came back after eviction";
    WorkingsetActivateAnon "workingset_activate_anon" "such pages activated at once, anonymous";
    WorkingsetActivateFile "workingset_activate_file" "such pages activated at once, file";
    WorkingsetRestoreAnon "workingset_restore_anon" "such pages that had been active before, anonymous";
    WorkingsetRestoreFile "workingset_restore_file" "such pages that had been active before, file";
    WorkingsetNodereclaim "workingset_nodereclaim" "tree nodes of shadows freed";
    PolicyTaken "policy_taken" "folios that a policy that proposes let reclaim have";
    PolicyMoved "policy_moved" "folios that it moved instead when it was asked";
    PolicyWrong "policy_wrong" less "answers of a policy that proposes which named no list, or an empty one";
    PolicyFallback "policy_fallback" less "times that its proposals led to no eviction, and folios were taken in order";
    CompactMigrateScanned "compact_migrate_scanned" less "pages that compaction looked at in search of something to move";
    CompactFreeScanned "compact_free_scanned" less "pages that compaction looked at in search of a place to move it to";
    CompactIsolated "compact_isolated" "pages that compaction isolated, to be moved or to be moved to";
    CompactStall "compact_stall" less "allocations that compacted for themselves";
    CompactFail "compact_fail" less "of these, those after which there was no block";
    CompactSuccess "compact_success" more "of these, those after which there was one";
    CompactDaemonWake "compact_daemon_wake" "rounds of kcompactd that others asked for";
    CompactDaemonMigrateScanned "compact_daemon_migrate_scanned" less "of the pages looked at to be moved, those by kcompactd";
    CompactDaemonFreeScanned "compact_daemon_free_scanned" less "of the pages looked at as a place, those by kcompactd";
    ThpFaultAlloc "thp_fault_alloc" more "anonymous folios of 2 MiB mapped by one entry at a fault";
    ThpFaultFallback "thp_fault_fallback" less "faults that would have made one, had memory had a block";
    ThpCollapseAlloc "thp_collapse_alloc" "folios of 2 MiB made to collapse smaller ones into";
    ThpCollapseAllocFailed "thp_collapse_alloc_failed" less "times that memory had no block for one";
    ThpScanExceedNonePte "thp_scan_exceed_none_pte" "2 MiB that khugepaged left alone for khugepaged.max_ptes_none";
    ThpScanExceedSwapPte "thp_scan_exceed_swap_pte" "2 MiB that it left alone for khugepaged.max_ptes_swap";
    ThpScanExceedSharePte "thp_scan_exceed_share_pte" "2 MiB that it left alone for khugepaged.max_ptes_shared";
    KhugepagedPagesCollapsed "khugepaged.pages_collapsed" "2 MiB that khugepaged has collapsed";
    KhugepagedFullScans "khugepaged.full_scans" "times that khugepaged has been through all spaces";
    ThpFileMapped "thp_file_mapped" "folios of files and shmem that were mapped by a 2 MiB entry";
    ThpSplitPmd "thp_split_pmd" less "2 MiB entries that were split into page entries or, of files, dropped to that end";
    PgmigrateSuccess "pgmigrate_success" "pages moved to other frames";
    PgmigrateFail "pgmigrate_fail" less "pages that could not be moved";
    ThpMigrationSuccess "thp_migration_success" "folios of 2 MiB that were moved whole";
    ThpMigrationFail "thp_migration_fail" less "folios of 2 MiB that could not be moved whole";
    ThpMigrationSplit "thp_migration_split" less "folios of 2 MiB that were split to be moved";
    PgdemoteKswapd "pgdemote_kswapd" "pages that kswapd moved to a slower tier";
    PgdemoteDirect "pgdemote_direct" "pages that other reclaim moved to a slower tier";
    PgpromoteSuccess "pgpromote_success" "pages promoted from a slower tier";
    PgpromoteCandidate "pgpromote_candidate" "pages of slower tiers that were hot enough";
    NumaPteUpdates "numa_pte_updates" "page-table entries that were marked to fault, to learn which nodes use their pages";
    NumaHintFaults "numa_hint_faults" less "faults at such entries";
    NumaHintFaultsLocal "numa_hint_faults_local" more "those by a CPU of the page's node";
    NumaPagesMigrated "numa_pages_migrated" "pages moved after such faults";
    TierSamples "tier_samples" "sampled reads of memory that were looked at (tier.policy = sampled)";
    TierSamplesLost "tier_samples_lost" "samples that were lost because the buffer was full";
    TierKept "tier_kept" "pages that reclaim would have moved to a slower tier, and that were too hot for it";
    TierMoveAborted "tier_move_aborted" "pages written while they were copied, so that they stayed (tier.migration = transactional)";
    TierBalanced "tier_balanced" "hot pages moved to a slower tier that answers faster (tier.balance)";
    OomKill "oom_kill" less "spaces chosen by the out-of-memory decision";
    UnevictablePgsCulled "unevictable_pgs_culled" "pages moved to the unevictable list";
    UnevictablePgsRescued "unevictable_pgs_rescued" "pages moved back from it";
    UnevictablePgsMlocked "unevictable_pgs_mlocked" "pages locked by mlock";
    UnevictablePgsMunlocked "unevictable_pgs_munlocked" "pages unlocked";
    NrTlbRemoteFlush "nr_tlb_remote_flush" less "flush rounds for other CPUs, also where all of them are lazy and get no request";
    NrTlbRemoteFlushReceived "nr_tlb_remote_flush_received" less "flush requests received by CPUs";
    NrTlbLocalFlushAll "nr_tlb_local_flush_all" less "full flushes that CPUs did for themselves";
    NrTlbLocalFlushOne "nr_tlb_local_flush_one" less "single pages that CPUs flushed for themselves";
    TlbDeferred "tlb_deferred" "entries that reclaim cleared and whose flush was deferred until their frame, address or file changes";
    TlbFlushSpared "tlb_flush_spared" "entries cleared without a flush because no CPU ever used them";
    TlbSettleFrame "tlb_settle_frame" less "rounds sent because a frame was about to be used again";
    TlbSettleSpace "tlb_settle_space" less "rounds sent because an address was about to change its meaning";
    TlbSettleFile "tlb_settle_file" less "rounds sent because a file was about to change its content";
    TlbSettleFree "tlb_settle_free" "debts that were paid already, or that needed no other CPU";
    TlbSettleTick "tlb_settle_tick" less "ticks at which a CPU flushed what it owed";
    TlbPendingTaken "tlb_pending_taken" "blocks with a debt that were taken, and settled before their use";
    NumaHit "numa_hit" more "pages allocated on the node that was wanted";
    NumaMiss "numa_miss" less "pages allocated on another node than wanted";
    NumaForeign "numa_foreign" less "pages wanted on this node, allocated elsewhere";
    NumaInterleave "numa_interleave" "pages that a policy of taking turns wanted from a node, and got there";
    NumaLocal "numa_local" more "pages allocated on the CPU's node";
    NumaOther "numa_other" less "pages allocated on another node than the CPU's";
}

impl Stat {
    /// Whether it goes up and down; others only grow.
    pub const fn is_level(self) -> bool {
        matches!(self.kind(), CounterKind::Level)
    }
}

mod groups;
mod sizes;

pub use groups::GroupStat;
pub use sizes::{SizeStat, SizeStats};

/// The counters of one machine.
pub struct Stats {
    cells: Box<[Cells]>,
}

type Cells = [AtomicI64; STRIDE];

/// The cells of one CPU, for code that counts several things at once.
#[derive(Clone, Copy)]
pub struct CpuStats<'a>(&'a Cells);

impl CpuStats<'_> {
    /// Add to a counter.
    #[inline]
    pub fn add(self, stat: Stat, by: i64) {
        self.0[stat as usize].fetch_add(by, Relaxed);
    }
}

/// Cells of one CPU, rounded up to whole cache lines.
const STRIDE: usize = Stat::COUNT.next_multiple_of(8);

impl Stats {
    /// All zero, for `cpus` CPUs.
    pub fn new(cpus: usize) -> Stats {
        let cells = || core::array::from_fn(|_| AtomicI64::new(0));
        Stats { cells: (0..cpus).map(|_| cells()).collect() }
    }

    /// Add to a counter on behalf of `cpu`.
    #[inline]
    pub fn add(&self, cpu: CpuId, stat: Stat, by: i64) {
        self.cpu(cpu).add(stat, by);
    }

    /// The cells of one CPU.
    #[inline]
    pub fn cpu(&self, cpu: CpuId) -> CpuStats<'_> {
        CpuStats(&self.cells[cpu.index()])
    }

    /// The sum over all CPUs.
    pub fn read(&self, stat: Stat) -> i64 {
        self.cells.iter().map(|cells| cells[stat as usize].load(Relaxed)).sum()
    }

    /// The value of one CPU's cell.
    #[cfg(test)]
    pub(crate) fn read_cpu(&self, cpu: CpuId, stat: Stat) -> i64 {
        self.cells[cpu.index()][stat as usize].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for &stat in Stat::ALL {
            assert_eq!(Stat::from_name(stat.name()), Some(stat));
        }
    }

    #[test]
    fn a_read_sums_all_cpus() {
        let stats = Stats::new(3);
        stats.add(CpuId(0), Stat::Pgfault, 2);
        stats.add(CpuId(2), Stat::Pgfault, 5);
        assert_eq!((stats.read(Stat::Pgfault), stats.read_cpu(CpuId(2), Stat::Pgfault)), (7, 5));
    }
}

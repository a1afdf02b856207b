//! Counters, with the names of /proc/vmstat. One row in the table is one counter: help, output and documents come from
//! it.
//!
//! Events (`pg...`) only grow; levels (`nr_...`) go up and down. Every CPU counts in cells of its own; a read sums
//! them.

use crate::primitive::{AtomicI64, Ordering::Relaxed};
use crate::table_macro::named_table;
use crate::units::CpuId;
use std_alloc::boxed::Box;

/// What a counter counts, and whether more of it is better. The columns of results, and whether a change is an
/// improvement, follow from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatKind {
    /// A number that goes up and down.
    Level,
    /// Events that are neither good nor bad.
    Event,
    /// Events of which more are better.
    Good,
    /// Events of which fewer are better: waste, waiting, and work for lack of memory.
    Bad,
}

/// Which direction of a number is good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

/// A table of counters: variant, name, kind, help.
macro_rules! stats {
    ($(#[$doc:meta])* $name:ident { $($variant:ident $text:literal $kind:ident $help:literal;)* }) => {
        named_table! { $(#[$doc])* $name { $($variant $text $help;)* } }

        impl $name {
            /// What it counts.
            pub const fn kind(self) -> StatKind {
                match self { $($name::$variant => StatKind::$kind,)* }
            }
        }
    };
}

stats! {
    /// A counter.
    Stat {
        NrFreePages "nr_free_pages" Level "free pages, those on CPUs' lists not counted";
        NrInactiveAnon "nr_inactive_anon" Level "pages on inactive lists, anonymous and shmem";
        NrActiveAnon "nr_active_anon" Level "pages on active lists, anonymous and shmem";
        NrInactiveFile "nr_inactive_file" Level "pages on inactive lists, file";
        NrActiveFile "nr_active_file" Level "pages on active lists, file";
        NrUnevictable "nr_unevictable" Level "pages on unevictable lists";
        NrMlock "nr_mlock" Level "pages locked in memory";
        NrIsolatedAnon "nr_isolated_anon" Level "anonymous pages that reclaim holds";
        NrIsolatedFile "nr_isolated_file" Level "file pages that reclaim holds";
        NrAnonPages "nr_anon_pages" Level "mapped anonymous pages";
        NrMapped "nr_mapped" Level "mapped file pages";
        NrAnonTransparentHugepages "nr_anon_transparent_hugepages" Level "anonymous folios mapped by 2 MiB entries";
        NrShmemPmdmapped "nr_shmem_pmdmapped" Level "shmem folios mapped by 2 MiB entries";
        NrFilePmdmapped "nr_file_pmdmapped" Level "file folios mapped by 2 MiB entries";
        NrFilePages "nr_file_pages" Level "pages in page caches and the swap cache";
        NrShmem "nr_shmem" Level "pages of shmem";
        NrDirty "nr_dirty" Level "dirty file pages";
        NrWriteback "nr_writeback" Level "pages being written";
        NrDirtied "nr_dirtied" Event "pages that became dirty";
        NrWritten "nr_written" Bad "pages written by write-back";
        NrSwapcached "nr_swapcached" Level "pages in the swap cache";
        NrPageTablePages "nr_page_table_pages" Level "pages that hold page tables";
        PgpgIn "pgpgin" Bad "kilobytes read from devices";
        PgpgOut "pgpgout" Bad "kilobytes written to devices";
        PswpIn "pswpin" Bad "pages read from swap";
        PswpOut "pswpout" Bad "pages written to swap";
        SwapRa "swap_ra" Event "pages read ahead from swap";
        SwapRaHit "swap_ra_hit" Good "pages read ahead from swap that were then used";
        PgallocDma32 "pgalloc_dma32" Event "pages allocated from DMA32 zones";
        PgallocNormal "pgalloc_normal" Event "pages allocated from Normal zones";
        PgallocMovable "pgalloc_movable" Event "pages allocated from Movable zones";
        AllocstallDma32 "allocstall_dma32" Bad "direct reclaims for a DMA32 allocation";
        AllocstallNormal "allocstall_normal" Bad "direct reclaims for a Normal allocation";
        AllocstallMovable "allocstall_movable" Bad "direct reclaims for a Movable allocation";
        PgskipDma32 "pgskip_dma32" Bad "pages skipped because their zone was not wanted, DMA32";
        PgskipNormal "pgskip_normal" Bad "pages skipped because their zone was not wanted, Normal";
        PgskipMovable "pgskip_movable" Bad "pages skipped because their zone was not wanted, Movable";
        Pgfree "pgfree" Event "pages freed";
        Pgactivate "pgactivate" Event "pages moved to an active list";
        Pgdeactivate "pgdeactivate" Event "pages moved to an inactive list";
        Pglazyfree "pglazyfree" Event "pages marked by MADV_FREE";
        Pglazyfreed "pglazyfreed" Event "such pages freed by reclaim";
        Pgfault "pgfault" Bad "page faults";
        Pgmajfault "pgmajfault" Bad "page faults whose page had to be read from a device";
        Pgrefill "pgrefill" Bad "pages scanned on active lists";
        Pgreuse "pgreuse" Good "write faults that could keep the page";
        PgstealKswapd "pgsteal_kswapd" Bad "pages reclaimed by kswapd";
        PgstealDirect "pgsteal_direct" Bad "pages reclaimed directly";
        PgstealAnon "pgsteal_anon" Event "pages reclaimed from anonymous lists";
        PgstealFile "pgsteal_file" Event "pages reclaimed from file lists";
        PgscanKswapd "pgscan_kswapd" Bad "pages scanned by kswapd";
        PgscanDirect "pgscan_direct" Bad "pages scanned directly";
        PgscanAnon "pgscan_anon" Bad "pages scanned on anonymous lists";
        PgscanFile "pgscan_file" Bad "pages scanned on file lists";
        PgscanDirectThrottle "pgscan_direct_throttle" Bad "reclaimers put to sleep because reserves were low";
        Pgrotated "pgrotated" Event "pages moved to the tail when their write ended";
        Pageoutrun "pageoutrun" Bad "rounds of kswapd";
        KswapdLowWmarkHitQuickly "kswapd_low_wmark_hit_quickly" Bad "kswapd was wanted again in its nap";
        KswapdHighWmarkHitQuickly "kswapd_high_wmark_hit_quickly" Bad "the node was unbalanced again after kswapd's nap";
        NrVmscanWrite "nr_vmscan_write" Bad "pages written by reclaim";
        NrVmscanImmediateReclaim "nr_vmscan_immediate_reclaim" Bad "pages marked to be freed when their write ends";
        WorkingsetNodes "workingset_nodes" Level "tree nodes that hold only shadows";
        WorkingsetRefaultAnon "workingset_refault_anon" Bad "anonymous pages that came back after eviction";
        WorkingsetRefaultFile "workingset_refault_file" Bad "file pages that came back after eviction";
        WorkingsetActivateAnon "workingset_activate_anon" Event "such pages activated at once, anonymous";
        WorkingsetActivateFile "workingset_activate_file" Event "such pages activated at once, file";
        WorkingsetRestoreAnon "workingset_restore_anon" Event "such pages that had been active before, anonymous";
        WorkingsetRestoreFile "workingset_restore_file" Event "such pages that had been active before, file";
        WorkingsetNodereclaim "workingset_nodereclaim" Event "tree nodes of shadows freed";
        PolicyWrong "policy_wrong" Bad "answers of a policy that proposes which named no list, or an empty one";
        PolicyFallback "policy_fallback" Bad "times that its proposals led to no eviction, and folios were taken in order";
        DropPagecache "drop_pagecache" Event "times the page cache was dropped by request";
        CompactMigrateScanned "compact_migrate_scanned" Bad "pages that compaction looked at in search of something to move";
        CompactFreeScanned "compact_free_scanned" Bad "pages that compaction looked at in search of a place to move it to";
        CompactIsolated "compact_isolated" Event "pages that compaction isolated, to be moved or to be moved to";
        CompactStall "compact_stall" Bad "allocations that compacted for themselves";
        CompactFail "compact_fail" Bad "of these, those after which there was no block";
        CompactSuccess "compact_success" Good "of these, those after which there was one";
        CompactDaemonWake "compact_daemon_wake" Event "rounds of kcompactd that others asked for";
        CompactDaemonMigrateScanned "compact_daemon_migrate_scanned" Bad "of the pages looked at to be moved, those by kcompactd";
        CompactDaemonFreeScanned "compact_daemon_free_scanned" Bad "of the pages looked at as a place, those by kcompactd";
        ThpFaultAlloc "thp_fault_alloc" Good "anonymous folios of 2 MiB mapped by one entry at a fault";
        ThpFaultFallback "thp_fault_fallback" Bad "faults that would have made one, had memory had a block";
        ThpCollapseAlloc "thp_collapse_alloc" Event "folios of 2 MiB made to collapse smaller ones into";
        ThpCollapseAllocFailed "thp_collapse_alloc_failed" Bad "times that memory had no block for one";
        ThpScanExceedNonePte "thp_scan_exceed_none_pte" Event "2 MiB that khugepaged left alone for khugepaged.max_ptes_none";
        ThpScanExceedSwapPte "thp_scan_exceed_swap_pte" Event "2 MiB that it left alone for khugepaged.max_ptes_swap";
        ThpScanExceedSharePte "thp_scan_exceed_share_pte" Event "2 MiB that it left alone for khugepaged.max_ptes_shared";
        KhugepagedPagesCollapsed "khugepaged.pages_collapsed" Event "2 MiB that khugepaged has collapsed";
        KhugepagedFullScans "khugepaged.full_scans" Event "times that khugepaged has been through all spaces";
        ThpFileMapped "thp_file_mapped" Event "folios of files and shmem that were mapped by a 2 MiB entry";
        ThpSplitPmd "thp_split_pmd" Bad "2 MiB entries that were split into page entries or, of files, dropped to that end";
        PgmigrateSuccess "pgmigrate_success" Event "pages moved to other frames";
        PgmigrateFail "pgmigrate_fail" Bad "pages that could not be moved";
        ThpMigrationSuccess "thp_migration_success" Event "folios of 2 MiB that were moved whole";
        ThpMigrationFail "thp_migration_fail" Bad "folios of 2 MiB that could not be moved whole";
        ThpMigrationSplit "thp_migration_split" Bad "folios of 2 MiB that were split to be moved";
        PgdemoteKswapd "pgdemote_kswapd" Event "pages that kswapd moved to a slower tier";
        PgdemoteDirect "pgdemote_direct" Event "pages that other reclaim moved to a slower tier";
        PgpromoteSuccess "pgpromote_success" Event "pages promoted from a slower tier";
        PgpromoteCandidate "pgpromote_candidate" Event "pages of slower tiers that were hot enough";
        NumaPteUpdates "numa_pte_updates" Event "page-table entries that were marked to fault, to learn who uses their pages";
        NumaHintFaults "numa_hint_faults" Bad "faults at such entries";
        NumaHintFaultsLocal "numa_hint_faults_local" Good "those by a CPU of the page's node";
        NumaPagesMigrated "numa_pages_migrated" Event "pages moved after such faults";
        TierSamples "tier_samples" Event "sampled reads of memory that were looked at (tier.policy = sampled)";
        TierSamplesLost "tier_samples_lost" Event "samples that were lost because nobody had taken those before them";
        TierKept "tier_kept" Event "pages that reclaim would have moved to a slower tier, and that were too hot for it";
        TierMoveAborted "tier_move_aborted" Event "pages written while they were copied, so that they stayed (tier.migration = transactional)";
        TierBalanced "tier_balanced" Event "hot pages moved to a slower tier that answers faster (tier.balance)";
        OomKill "oom_kill" Bad "spaces chosen by the out-of-memory decision";
        UnevictablePgsCulled "unevictable_pgs_culled" Event "pages moved to the unevictable list";
        UnevictablePgsRescued "unevictable_pgs_rescued" Event "pages moved back from it";
        UnevictablePgsMlocked "unevictable_pgs_mlocked" Event "pages locked by mlock";
        UnevictablePgsMunlocked "unevictable_pgs_munlocked" Event "pages unlocked";
        NrTlbRemoteFlush "nr_tlb_remote_flush" Bad "flush rounds sent to other CPUs";
        NrTlbRemoteFlushReceived "nr_tlb_remote_flush_received" Bad "flush requests received by CPUs";
        NrTlbLocalFlushAll "nr_tlb_local_flush_all" Bad "full flushes done by CPUs";
        NrTlbLocalFlushOne "nr_tlb_local_flush_one" Bad "single pages flushed by CPUs";
        TlbDeferred "tlb_deferred" Event "entries that reclaim cleared and whose flush was deferred until their frame, address or file changes";
        TlbFlushSpared "tlb_flush_spared" Event "entries cleared without a flush because no CPU ever used them";
        TlbSettleFrame "tlb_settle_frame" Bad "rounds sent because a frame was about to be used again";
        TlbSettleSpace "tlb_settle_space" Bad "rounds sent because an address was about to change its meaning";
        TlbSettleFile "tlb_settle_file" Bad "rounds sent because a file was about to change its content";
        TlbSettleFree "tlb_settle_free" Event "debts that turned out to be paid, or were paid without asking another CPU";
        TlbSettleTick "tlb_settle_tick" Bad "ticks at which a CPU paid what it owed";
        TlbPendingTaken "tlb_pending_taken" Event "owing blocks that were taken, with a payment before their use";
        NumaHit "numa_hit" Good "pages allocated on the node that was wanted";
        NumaMiss "numa_miss" Bad "pages allocated on another node than wanted";
        NumaForeign "numa_foreign" Bad "pages wanted on this node, allocated elsewhere";
        NumaInterleave "numa_interleave" Event "pages that a policy of taking turns wanted from a node, and got there";
        NumaLocal "numa_local" Good "pages allocated on the CPU's node";
        NumaOther "numa_other" Bad "pages allocated on another node than the CPU's";
    }
}

impl Stat {
    /// Whether it goes up and down; the others only grow.
    pub const fn is_level(self) -> bool {
        matches!(self.kind(), StatKind::Level)
    }

    /// Which direction is good, if one is.
    pub const fn better(self) -> Option<Better> {
        match self.kind() {
            StatKind::Level | StatKind::Event => None,
            StatKind::Good => Some(Better::Higher),
            StatKind::Bad => Some(Better::Lower),
        }
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
    pub fn read_cpu(&self, cpu: CpuId, stat: Stat) -> i64 {
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

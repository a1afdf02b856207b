//! Levels and counters, under the numbers that Perfetto has for the names of `/proc/meminfo` and `/proc/vmstat`
//! (`sys_stats_counters.proto`). Only what has changed is written again.

use super::message::Message;
use machine_sim::{Levels, ProcessPages};
use mm::stat::Stat;
use mm::units::PAGE_SIZE;
use std::collections::BTreeMap;

/// KiB of a page.
const KIB: u64 = PAGE_SIZE / 1024;

/// What was written last.
#[derive(Default)]
pub(super) struct Written {
    memory: BTreeMap<u64, u64>,
    counters: BTreeMap<u64, u64>,
    processes: BTreeMap<u32, ProcessPages>,
}

impl Written {
    /// Write the levels of memory and the counters that have changed: a `SysStats`.
    pub(super) fn system(&mut self, levels: &Levels<'_>, packet: &mut Message) {
        const SYS_STATS: u32 = 7;
        let counters = VMSTAT.iter().map(|&(stat, key)| (key, (levels.stat)(stat).max(0) as u64));
        packet.message(SYS_STATS, |stats| {
            changed(&mut self.memory, meminfo(levels), |key, value| write_value(stats, 1, key, value));
            changed(&mut self.counters, counters, |key, value| write_value(stats, 2, key, value));
        });
    }

    /// Write the pages of processes that have changed: a `ProcessStats`. `pid`: the number of a process in the trace.
    pub(super) fn processes(
        &mut self,
        pages: &[ProcessPages],
        pid: impl Fn(u32) -> u64,
        packet: &mut Message,
    ) {
        const PROCESS_STATS: u32 = 9;
        packet.message(PROCESS_STATS, |stats| {
            for &pages in pages {
                let ProcessPages { process, anon, file, shmem, swap } = pages;
                if self.processes.insert(process, pages) == Some(pages) {
                    continue;
                }
                stats.message(1, |fields| {
                    let resident = anon + file + shmem;
                    let of = [(3, resident), (4, anon), (5, file), (6, shmem), (7, swap)];
                    fields.number(1, pid(process));
                    of.iter().for_each(|&(field, pages)| fields.number(field, pages * KIB));
                });
            }
        });
    }
}

fn changed(
    before: &mut BTreeMap<u64, u64>,
    now: impl IntoIterator<Item = (u64, u64)>,
    mut write: impl FnMut(u64, u64),
) {
    for (key, value) in now {
        if before.insert(key, value) != Some(value) {
            write(key, value);
        }
    }
}

fn write_value(stats: &mut Message, field: u32, key: u64, value: u64) {
    stats.message(field, |pair| {
        pair.number(1, key);
        pair.number(2, value);
    });
}

/// Keys of `MeminfoCounters`, and values in KiB.
fn meminfo(levels: &Levels<'_>) -> Vec<(u64, u64)> {
    let stat = |stat| (levels.stat)(stat).max(0) as u64;
    let (total, free) = levels.swap;
    let pages = [
        (1, levels.memory),
        (2, stat(Stat::NrFreePages)),
        (5, stat(Stat::NrFilePages).saturating_sub(stat(Stat::NrSwapcached))),
        (6, stat(Stat::NrSwapcached)),
        (9, stat(Stat::NrActiveAnon)),
        (10, stat(Stat::NrInactiveAnon)),
        (11, stat(Stat::NrActiveFile)),
        (12, stat(Stat::NrInactiveFile)),
        (13, stat(Stat::NrUnevictable)),
        (14, stat(Stat::NrMlock)),
        (15, total),
        (16, free),
        (17, stat(Stat::NrDirty)),
        (18, stat(Stat::NrWriteback)),
        (19, stat(Stat::NrAnonPages)),
        (20, stat(Stat::NrMapped)),
        (21, stat(Stat::NrShmem)),
        (23, stat(Stat::NrSlabReclaimable)),
        (26, stat(Stat::NrPageTablePages)),
    ];
    pages.iter().map(|&(key, pages)| (key, pages * KIB)).collect()
}

/// Counters that both know: those of ours whose names `VmstatCounters` has.
#[rustfmt::skip]
pub(super) const VMSTAT: &[(Stat, u64)] = &[
    (Stat::NrFreePages, 1), (Stat::NrInactiveAnon, 3), (Stat::NrActiveAnon, 4),
    (Stat::NrInactiveFile, 5), (Stat::NrActiveFile, 6), (Stat::NrUnevictable, 7),
    (Stat::NrMlock, 8), (Stat::NrIsolatedAnon, 24), (Stat::NrIsolatedFile, 25),
    (Stat::NrAnonPages, 9), (Stat::NrMapped, 10), (Stat::NrAnonTransparentHugepages, 33),
    (Stat::NrShmemPmdmapped, 107), (Stat::NrFilePmdmapped, 137), (Stat::NrFilePages, 11),
    (Stat::NrShmem, 26), (Stat::NrDirty, 12), (Stat::NrWriteback, 13),
    (Stat::NrDirtied, 27), (Stat::NrWritten, 28), (Stat::NrSwapcached, 142),
    (Stat::NrPageTablePages, 16), (Stat::NrZspages, 93), (Stat::NrSlabReclaimable, 14),
    (Stat::PgpgIn, 38), (Stat::PgpgOut, 39), (Stat::PswpIn, 41),
    (Stat::PswpOut, 42), (Stat::SwapRa, 126), (Stat::SwapRaHit, 127),
    (Stat::PgallocDma32, 145), (Stat::PgallocNormal, 44), (Stat::PgallocMovable, 45),
    (Stat::AllocstallDma32, 130), (Stat::AllocstallNormal, 98), (Stat::AllocstallMovable, 97),
    (Stat::PgskipDma32, 152), (Stat::PgskipNormal, 123), (Stat::PgskipMovable, 122),
    (Stat::Pgfree, 46), (Stat::Pgactivate, 47), (Stat::Pgdeactivate, 48),
    (Stat::Pglazyfree, 116), (Stat::Pglazyfreed, 117), (Stat::Pgfault, 49),
    (Stat::Pgmajfault, 50), (Stat::Pgrefill, 118), (Stat::Pgreuse, 148),
    (Stat::PgstealKswapd, 125), (Stat::PgstealDirect, 124), (Stat::PgstealAnon, 153),
    (Stat::PgstealFile, 154), (Stat::PgscanKswapd, 120), (Stat::PgscanDirect, 119),
    (Stat::PgscanAnon, 149), (Stat::PgscanFile, 150), (Stat::PgscanDirectThrottle, 66),
    (Stat::Pgrotated, 74), (Stat::Pageoutrun, 72), (Stat::KswapdLowWmarkHitQuickly, 70),
    (Stat::KswapdHighWmarkHitQuickly, 71), (Stat::NrVmscanWrite, 21), (Stat::NrVmscanImmediateReclaim, 22),
    (Stat::WorkingsetNodes, 184), (Stat::WorkingsetRefaultAnon, 185), (Stat::WorkingsetRefaultFile, 186),
    (Stat::WorkingsetActivateAnon, 182), (Stat::WorkingsetActivateFile, 183), (Stat::WorkingsetRestoreAnon, 187),
    (Stat::WorkingsetRestoreFile, 188), (Stat::WorkingsetNodereclaim, 32), (Stat::CompactMigrateScanned, 79),
    (Stat::CompactFreeScanned, 80), (Stat::CompactIsolated, 81), (Stat::CompactStall, 82),
    (Stat::CompactFail, 83), (Stat::CompactSuccess, 84), (Stat::CompactDaemonWake, 85),
    (Stat::CompactDaemonMigrateScanned, 100), (Stat::CompactDaemonFreeScanned, 99), (Stat::ThpFaultAlloc, 158),
    (Stat::ThpFaultFallback, 159), (Stat::ThpCollapseAlloc, 155), (Stat::ThpCollapseAllocFailed, 156),
    (Stat::ThpScanExceedNonePte, 168), (Stat::ThpScanExceedSwapPte, 170), (Stat::ThpScanExceedSharePte, 169),
    (Stat::ThpFileMapped, 164), (Stat::ThpSplitPmd, 173), (Stat::PgmigrateSuccess, 77),
    (Stat::PgmigrateFail, 78), (Stat::ThpMigrationSuccess, 167), (Stat::ThpMigrationFail, 165),
    (Stat::ThpMigrationSplit, 166), (Stat::PgdemoteKswapd, 147), (Stat::PgdemoteDirect, 146),
    (Stat::OomKill, 115), (Stat::UnevictablePgsCulled, 86), (Stat::UnevictablePgsRescued, 88),
    (Stat::UnevictablePgsMlocked, 89), (Stat::UnevictablePgsMunlocked, 90),
];

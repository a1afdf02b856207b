//! The counts that are compared.

use mm::stat::Stat;

/// A count of the table.
#[derive(Clone, Copy)]
pub struct Count<'a> {
    /// Its name.
    pub metric: &'static str,
    /// Its unit; empty for a count.
    pub unit: &'static str,
    /// The counters that it is the sum of.
    pub of: &'a [Stat],
    /// Why it is a matter of timing, if it is.
    pub timing: Option<&'static str>,
}

/// KiB that were read or written.
pub const KIB: &str = "KiB";

/// Which of two tasks does the work that both would do.
const WHO: &str = "whether kswapd or the task itself reclaims depends on when kswapd gets a CPU";

const fn total(metric: &'static str, of: &'static [Stat]) -> Count<'static> {
    Count { metric, unit: "", of, timing: None }
}

const fn kib(of: &'static [Stat; 1]) -> Count<'static> {
    Count { metric: of[0].name(), unit: KIB, of, timing: None }
}

const fn who(of: &'static [Stat; 1]) -> Count<'static> {
    Count { metric: of[0].name(), unit: "", of, timing: Some(WHO) }
}

/// Of every machine; parts before their total, which repeats their sum ([`super::copies`]).
const COUNTS: &[Count<'static>] = &[
    total("pgfault", &[Stat::Pgfault]),
    total("pgmajfault", &[Stat::Pgmajfault]),
    total("pgreuse", &[Stat::Pgreuse]),
    total("pgscan_anon", &[Stat::PgscanAnon]),
    total("pgscan_file", &[Stat::PgscanFile]),
    total("pgscan", &[Stat::PgscanKswapd, Stat::PgscanDirect]),
    total("pgsteal_anon", &[Stat::PgstealAnon]),
    total("pgsteal_file", &[Stat::PgstealFile]),
    total("pgsteal", &[Stat::PgstealKswapd, Stat::PgstealDirect]),
    total("pgactivate", &[Stat::Pgactivate]),
    total("pgdeactivate", &[Stat::Pgdeactivate]),
    total("workingset_refault_anon", &[Stat::WorkingsetRefaultAnon]),
    total("workingset_refault_file", &[Stat::WorkingsetRefaultFile]),
    total("pswpin", &[Stat::PswpIn]),
    total("pswpout", &[Stat::PswpOut]),
    kib(&[Stat::PgpgIn]),
    kib(&[Stat::PgpgOut]),
    total("nr_tlb_remote_flush", &[Stat::NrTlbRemoteFlush]),
    total("nr_tlb_remote_flush_received", &[Stat::NrTlbRemoteFlushReceived]),
    who(&[Stat::PgscanKswapd]),
    who(&[Stat::PgscanDirect]),
    who(&[Stat::PgstealKswapd]),
    who(&[Stat::PgstealDirect]),
];

/// Of machines with two nodes.
const NODE_COUNTS: &[Count<'static>] = &[
    total("pgdemote", &[Stat::PgdemoteKswapd, Stat::PgdemoteDirect]),
    total("pgpromote_candidate", &[Stat::PgpromoteCandidate]),
    total("pgpromote_success", &[Stat::PgpromoteSuccess]),
    total("numa_pte_updates", &[Stat::NumaPteUpdates]),
    total("numa_hint_faults_local", &[Stat::NumaHintFaultsLocal]),
    total("numa_hint_faults", &[Stat::NumaHintFaults]),
    total("numa_pages_migrated", &[Stat::NumaPagesMigrated]),
    total("pgmigrate_success", &[Stat::PgmigrateSuccess]),
    total("numa_local", &[Stat::NumaLocal]),
    total("numa_other", &[Stat::NumaOther]),
    total("numa_miss", &[Stat::NumaMiss]),
    total("numa_foreign", &[Stat::NumaForeign]),
    total("numa_hit", &[Stat::NumaHit]),
    who(&[Stat::PgdemoteKswapd]),
    who(&[Stat::PgdemoteDirect]),
];

/// Beginnings of counters that are a matter of timing, among those that are shown on request.
const TIMED: &[(&str, &str)] = &[
    ("allocstall", WHO),
    ("pageoutrun", WHO),
    ("kswapd_", WHO),
    ("pgrotated", "whether a write ends before or after reclaim looks at its page depends on the disk"),
    ("nr_vmscan", WHO),
    ("throttle", "how long a writer waits depends on the disk"),
];

/// All counts for machines with this many nodes, in the table's order.
pub fn counts(nodes: usize) -> impl Iterator<Item = &'static Count<'static>> {
    COUNTS.iter().chain(if nodes > 1 { NODE_COUNTS } else { &[] })
}

/// The count of a single counter that has no row of its own.
pub fn other(stat: &Stat) -> Count<'_> {
    let timed = TIMED.iter().find(|(word, _)| stat.name().contains(word));
    Count {
        metric: stat.name(),
        unit: "",
        of: std::slice::from_ref(stat),
        timing: timed.map(|(_, why)| *why),
    }
}

//! The counts that are compared.

use crate::record::RunRecord;
use mm::stat::Stat;

/// A count of the table.
#[derive(Clone, Copy)]
pub struct Count<'a> {
    /// Its name.
    pub metric: &'a str,
    /// Its unit; empty for a count.
    pub unit: &'static str,
    /// What it is.
    pub of: Source<'a>,
    /// Why it is a matter of timing, if it is.
    pub timing: Option<&'static str>,
}

impl Count<'static> {
    /// The same, to be listed with others that do not live as long.
    fn short<'a>(&self) -> Count<'a> {
        *self
    }
}

/// What a count is.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// The sum of these counters.
    Counters(&'a [Stat]),
    /// What the machine measured, divided by this.
    Measured(&'a str, f64),
}

impl Source<'_> {
    /// Its value in a run.
    pub fn value(&self, run: &RunRecord) -> f64 {
        match self {
            Source::Counters(stats) => stats.iter().map(|&stat| run.counter(stat)).sum(),
            Source::Measured(name, unit) => run.metric(name) / unit,
        }
    }

    /// The counters.
    pub fn counters(&self) -> &[Stat] {
        match self {
            Source::Counters(stats) => stats,
            Source::Measured(..) => &[],
        }
    }
}

/// KiB that were read or written.
pub const KIB: &str = "KiB";

/// Which of two tasks does the work that both would do.
const WHO: &str = "whether kswapd or the task itself reclaims depends on when kswapd gets a CPU";

const fn total(metric: &'static str, of: &'static [Stat]) -> Count<'static> {
    Count { metric, unit: "", of: Source::Counters(of), timing: None }
}

const fn kib(of: &'static [Stat; 1]) -> Count<'static> {
    Count { metric: of[0].name(), unit: KIB, of: Source::Counters(of), timing: None }
}

const fn who(of: &'static [Stat; 1]) -> Count<'static> {
    Count { timing: Some(WHO), ..total(of[0].name(), of) }
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
    total("zswpin", &[Stat::Zswpin]),
    total("zswpout", &[Stat::Zswpout]),
    total("zswpwb", &[Stat::Zswpwb]),
    total("swpin_zero", &[Stat::SwpinZero]),
    total("swpout_zero", &[Stat::SwpoutZero]),
    kib(&[Stat::PgpgIn]),
    kib(&[Stat::PgpgOut]),
    total("nr_tlb_remote_flush", &[Stat::NrTlbRemoteFlush]),
    total("nr_tlb_remote_flush_received", &[Stat::NrTlbRemoteFlushReceived]),
    who(&[Stat::PgscanKswapd]),
    who(&[Stat::PgscanDirect]),
    who(&[Stat::PgstealKswapd]),
    who(&[Stat::PgstealDirect]),
    who(&[Stat::Pageoutrun]),
    Count {
        timing: Some(WHO),
        ..total("allocstall", &[Stat::AllocstallDma32, Stat::AllocstallNormal, Stat::AllocstallMovable])
    },
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
    ("kswapd_", WHO),
    ("pgrotated", "whether a write ends before or after reclaim looks at its page depends on the disk"),
    ("nr_vmscan", WHO),
    ("throttle", "how long a writer waits depends on the disk"),
];

/// All counts for machines with this many nodes, in the table's order.
pub fn counts<'a>(nodes: usize) -> impl Iterator<Item = Count<'a>> {
    let all = COUNTS.iter().chain(if nodes > 1 { NODE_COUNTS } else { &[] });
    all.map(Count::short)
}

/// Ends of the names of what compressed swap holds, with their units and what these are in the unit of the measure.
const HELD: [(&str, &str, f64); 9] = [
    ("orig_data_size", KIB, 1024.0),
    ("compr_data_size", KIB, 1024.0),
    ("mem_used_total", KIB, 1024.0),
    ("mem_used_max", KIB, 1024.0),
    ("same_pages", "", 1.0),
    ("huge_pages", "", 1.0),
    ("pool_total_size", KIB, 1024.0),
    ("stored_pages", "", 1.0),
    ("reject_compress_poor", "", 1.0),
];

/// The count of what compressed swap holds, if this is the name of such a measure.
pub fn held(name: &str) -> Option<Count<'_>> {
    let (of_swap, end) = name.split_once('_')?;
    let &(_, unit, divisor) = HELD.iter().find(|(known, ..)| *known == end)?;
    let is_swap = of_swap == "zswap" || of_swap.starts_with("zram");
    let of = Source::Measured(name, divisor);
    is_swap.then_some(Count { metric: name, unit, of, timing: None })
}

/// The count of a single counter that has no row of its own.
pub fn other(stat: &Stat) -> Count<'_> {
    let timed = TIMED.iter().find(|(word, _)| stat.name().contains(word));
    Count {
        metric: stat.name(),
        unit: "",
        of: Source::Counters(std::slice::from_ref(stat)),
        timing: timed.map(|(_, why)| *why),
    }
}

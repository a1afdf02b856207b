//! The rows of a result table, in their order: what each is called, and where its number comes from.

use crate::record::{Better, BoundRecord, RunRecord};
use mm::stat::{CounterKind, Stat};

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name: a promise to users' scripts.
    pub name: String,
    /// Unit of the value; empty for a plain count.
    pub unit: String,
    /// Which direction is good; `None`: neither.
    pub better: Option<Better>,
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    /// Simulated time from start to end.
    RunTime,
    /// A counter.
    Counter(Stat),
    /// Page faults that needed no device.
    MinorFaults,
    /// Something that the machine measures, found by the row's name.
    Machine,
    /// A count of the machine's under another name.
    MachineCount(&'static str),
    /// Nanoseconds of the machine's, as seconds.
    MachineNanos(&'static str),
    /// The least that any safe policy needs.
    Bound(Flushes, Level),
    /// What the run needed, by the least.
    BoundRatio(Flushes, Level),
    /// Refaults.
    Refaults(Least),
    /// The run's refaults, by those.
    RefaultsRatio(Least),
}

/// Whose refaults.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Least {
    /// The run's.
    Own,
    /// The fewest.
    Optimum,
    /// The fewest of who looks at young bits.
    Young,
}

/// What flushes are counted by.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flushes {
    Rounds,
    Receptions,
}

/// Which deadlines the bound takes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Level {
    L1,
    L2,
}

/// A row that every table has.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// One line of help.
    pub help: &'static str,
    source: Source,
}

const fn counter(stat: Stat, unit: &'static str) -> Row {
    Row { name: stat.name(), unit, help: stat.help(), source: Source::Counter(stat) }
}

/// The rows of every table. Of all of them, less is better.
pub const ROWS: &[Row] = &[
    Row { name: "run_time", unit: "s", help: "simulated time from start to end", source: Source::RunTime },
    Row {
        name: "pgfault_minor",
        unit: "",
        help: "page faults that needed no device (pgfault - pgmajfault)",
        source: Source::MinorFaults,
    },
    counter(Stat::Pgmajfault, ""),
    counter(Stat::PgscanKswapd, "pages"),
    counter(Stat::PgscanDirect, "pages"),
    counter(Stat::PgstealKswapd, "pages"),
    counter(Stat::PgstealDirect, "pages"),
    counter(Stat::WorkingsetRefaultAnon, "pages"),
    counter(Stat::WorkingsetRefaultFile, "pages"),
    counter(Stat::PswpIn, "pages"),
    counter(Stat::PswpOut, "pages"),
    counter(Stat::PgpgIn, "KiB"),
    counter(Stat::PgpgOut, "KiB"),
    Row {
        name: "tlb_misses",
        unit: "",
        help: "accesses that found no translation in any TLB and walked the page table",
        source: Source::MachineCount("stlb_misses"),
    },
    counter(Stat::NrTlbRemoteFlush, ""),
    counter(Stat::NrTlbRemoteFlushReceived, ""),
    Row {
        name: "kswapd_cpu_time",
        unit: "s",
        help: "CPU time of the kswapd daemons",
        source: Source::MachineNanos("cpu_kswapd"),
    },
];

/// The rows that `--bound` adds. Of all of them, less is better.
pub const BOUND_ROWS: &[Row] = &[
    Row {
        name: "tlb_rounds_bound_l1",
        unit: "",
        help: "flush rounds that any safe policy needs (with --bound; docs/bound.md)",
        source: Source::Bound(Flushes::Rounds, Level::L1),
    },
    Row {
        name: "tlb_rounds_bound_l2",
        unit: "",
        help: "flush rounds needed if what is due is paid where the memory manager looks (with --bound)",
        source: Source::Bound(Flushes::Rounds, Level::L2),
    },
    Row {
        name: "tlb_receptions_bound_l1",
        unit: "",
        help: "receptions that any safe policy needs (with --bound)",
        source: Source::Bound(Flushes::Receptions, Level::L1),
    },
    Row {
        name: "tlb_receptions_bound_l2",
        unit: "",
        help: "receptions needed if what is due is paid where the memory manager looks (with --bound)",
        source: Source::Bound(Flushes::Receptions, Level::L2),
    },
    Row {
        name: "tlb_rounds_ratio_l1",
        unit: "",
        help: "rounds of the run, by their bound L1; a bound of 0 counts as 1 (with --bound)",
        source: Source::BoundRatio(Flushes::Rounds, Level::L1),
    },
    Row {
        name: "tlb_rounds_ratio_l2",
        unit: "",
        help: "rounds of the run, by their bound L2 (with --bound)",
        source: Source::BoundRatio(Flushes::Rounds, Level::L2),
    },
    Row {
        name: "tlb_receptions_ratio_l1",
        unit: "",
        help: "receptions of the run, by their bound L1 (with --bound)",
        source: Source::BoundRatio(Flushes::Receptions, Level::L1),
    },
    Row {
        name: "tlb_receptions_ratio_l2",
        unit: "",
        help: "receptions of the run, by their bound L2 (with --bound)",
        source: Source::BoundRatio(Flushes::Receptions, Level::L2),
    },
];

/// The rows that `--optimum` adds. Of all of them, less is better.
pub const OPTIMUM_ROWS: &[Row] = &[
    Row {
        name: "refaults",
        unit: "pages",
        help: "uses of pages that were read again since their last use (with --optimum; docs/optimum.md)",
        source: Source::Refaults(Least::Own),
    },
    Row {
        name: "refaults_optimum",
        unit: "pages",
        help: "the fewest refaults that there can be, whatever is evicted when: Belady's MIN (with --optimum)",
        source: Source::Refaults(Least::Optimum),
    },
    Row {
        name: "refaults_optimum_young",
        unit: "pages",
        help: "the fewest refaults if a page stays from a use until its young bit is looked at (with --optimum)",
        source: Source::Refaults(Least::Young),
    },
    Row {
        name: "refaults_ratio_optimum",
        unit: "",
        help: "refaults of the run, by refaults_optimum; 0 of these count as 1 (with --optimum)",
        source: Source::RefaultsRatio(Least::Optimum),
    },
    Row {
        name: "refaults_ratio_young",
        unit: "",
        help: "refaults of the run, by refaults_optimum_young (with --optimum)",
        source: Source::RefaultsRatio(Least::Young),
    },
];

const fn compaction(name: &'static str, unit: &'static str, help: &'static str) -> Row {
    Row { name, unit, help, source: Source::MachineCount(name) }
}

/// The rows that `--moves` adds.
pub const MOVES_ROWS: &[Row] = &[
    compaction(
        "compaction_moved",
        "pages",
        "pages moved by compactions that made the wanted block (with --moves; docs/compaction.md)",
    ),
    compaction(
        "compaction_moved_least",
        "pages",
        "the fewest that must be moved for these blocks (with --moves)",
    ),
    compaction("compaction_moved_in_vain", "pages", "pages moved by other compactions (with --moves)"),
    compaction(
        "compaction_pieces_before",
        "%",
        "free memory of no use for the wanted block before a compaction, on average (with --moves)",
    ),
    compaction("compaction_pieces_after", "%", "the same after it (with --moves)"),
];

/// The rows that `--placement` adds.
pub const PLACEMENT_ROWS: &[Row] = &[
    placement(
        "placement_cost",
        "s",
        "what reads of slow memory took longer, and copies between tiers (with --placement; docs/tiers.md)",
    ),
    placement(
        "placement_cost_least",
        "s",
        "the least that this can be for the same reads, whatever is moved when (with --placement)",
    ),
    Row {
        name: "placement_back",
        unit: "pages",
        help: "pages that went up after they had gone down (with --placement)",
        source: Source::MachineCount("placement_back"),
    },
];

const fn placement(name: &'static str, unit: &'static str, help: &'static str) -> Row {
    Row { name, unit, help, source: Source::MachineNanos(name) }
}

/// Rows of runs in which all of a zone was compacted, with `--moves`.
const WHOLE_ROWS: &[Row] = &[
    compaction("compaction_whole_before", "", "free blocks of 2 MiB before all of a zone was compacted"),
    compaction("compaction_whole_after", "", "the same after it"),
    compaction("compaction_whole_possible", "", "the most that there could be"),
    compaction("compaction_whole_moved", "pages", "pages that were moved for that"),
    compaction("compaction_whole_least", "pages", "the fewest for as many as there could be"),
];

/// The rows for these runs: those of every table that their machine can measure (an emulator has no TLB misses), those
/// of the bound and of the optimum if they were asked for, then, if `all`, what else the machine measured and every
/// other counter that moved in any run.
pub fn rows_of(runs: &[RunRecord], all: bool) -> Vec<Metric> {
    let measured = |row: &&Row| match row.source {
        Source::MachineCount(name) | Source::MachineNanos(name) => {
            runs.is_empty() || runs.iter().any(|run| run.metrics.iter().any(|m| m.name == name))
        }
        _ => true,
    };
    let bounded = runs.iter().any(|run| run.bound.is_some());
    let bound = if bounded { BOUND_ROWS } else { &[] };
    let optimum = if runs.iter().any(|run| run.optimum.is_some()) { OPTIMUM_ROWS } else { &[] };
    let besides = [MOVES_ROWS, PLACEMENT_ROWS, WHOLE_ROWS].into_iter().filter(|_| !runs.is_empty());
    let mut metrics: Vec<Metric> = ROWS
        .iter()
        .chain(bound)
        .chain(optimum)
        .chain(besides.flatten())
        .filter(measured)
        .map(|row| Metric {
            name: row.name.to_owned(),
            unit: row.unit.to_owned(),
            better: Some(better_of(row, runs)),
            source: row.source,
        })
        .collect();
    if !all {
        return metrics;
    }
    for measured in runs.iter().flat_map(|run| &run.metrics) {
        if !metrics.iter().any(|metric| metric.name == measured.name) {
            metrics.push(Metric {
                name: measured.name.clone(),
                unit: measured.unit.clone(),
                better: Some(measured.better),
                source: Source::Machine,
            });
        }
    }
    for &stat in Stat::ALL {
        let moved = runs.iter().any(|run| run.counters.get(stat.name()).is_some_and(|&value| value != 0));
        if moved && !metrics.iter().any(|metric| metric.name == stat.name()) {
            metrics.push(Metric {
                name: stat.name().to_owned(),
                unit: String::new(),
                better: better(stat),
                source: Source::Counter(stat),
            });
        }
    }
    metrics
}

/// Which direction of a row is good: less, but where the machine says something else.
fn better_of(row: &Row, runs: &[RunRecord]) -> Better {
    let Source::MachineCount(name) = row.source else { return Better::Lower };
    let mut measured = runs.iter().flat_map(|run| &run.metrics);
    measured.find(|metric| metric.name == name).map_or(Better::Lower, |metric| metric.better)
}

/// Which direction of a counter is good, if one is.
fn better(stat: Stat) -> Option<Better> {
    match stat.kind() {
        CounterKind::Less => Some(Better::Lower),
        CounterKind::More => Some(Better::Higher),
        CounterKind::Level | CounterKind::Neutral => None,
    }
}

impl Metric {
    /// Its value in one run; 0 if the run did not measure it.
    pub fn value(&self, run: &RunRecord) -> f64 {
        let counter = |stat: Stat| run.counters.get(stat.name()).copied().unwrap_or(0) as f64;
        let measured = |name: &str| run.metrics.iter().find(|m| m.name == name).map_or(0.0, |m| m.value);
        match self.source {
            Source::RunTime => run.nanos as f64 / 1e9,
            Source::Counter(stat) => counter(stat),
            Source::MinorFaults => counter(Stat::Pgfault) - counter(Stat::Pgmajfault),
            Source::Machine => measured(&self.name),
            Source::MachineCount(name) => measured(name),
            Source::MachineNanos(name) => measured(name) / 1e9,
            Source::Bound(flushes, level) => run.bound.as_ref().map_or(0.0, |b| least(b, flushes, level)),
            Source::BoundRatio(flushes, level) => run.bound.as_ref().map_or(0.0, |b| {
                let own = if flushes == Flushes::Rounds { b.rounds } else { b.receptions } as f64;
                by(own, least(b, flushes, level))
            }),
            Source::Refaults(whose) => refaults(run, whose),
            Source::RefaultsRatio(whose) => by(refaults(run, Least::Own), refaults(run, whose)),
        }
    }
}

/// A number by the least that it can be. None where none are needed is as good as can be.
fn by(own: f64, least: f64) -> f64 {
    if least == 0.0 { own.max(1.0) } else { own / least }
}

fn refaults(run: &RunRecord, whose: Least) -> f64 {
    run.optimum.map_or(0.0, |optimum| match whose {
        Least::Own => optimum.refaults as f64,
        Least::Optimum => optimum.optimum as f64,
        Least::Young => optimum.young as f64,
    })
}

fn least(bound: &BoundRecord, flushes: Flushes, level: Level) -> f64 {
    let level = if level == Level::L1 { &bound.l1 } else { &bound.l2 };
    (if flushes == Flushes::Rounds { level.rounds } else { level.receptions }) as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::{LevelRecord, Measured, OracleRecord, WorkDone};

    /// A run with a few counters.
    pub(crate) fn run(profile: &str, seed: u64, nanos: u64, counters: &[(Stat, i64)]) -> RunRecord {
        RunRecord {
            profile: profile.to_owned(),
            seed,
            nanos,
            work: WorkDone { accesses: 1000, progress: 10, tasks: 2 },
            counters: counters.iter().map(|(stat, value)| (stat.name().to_owned(), *value)).collect(),
            metrics: vec![
                Measured {
                    name: "stlb_misses".into(),
                    value: 77.0,
                    unit: String::new(),
                    better: Better::Lower,
                },
                Measured { name: "cpu_kswapd".into(), value: 0.0, unit: "ns".into(), better: Better::Lower },
                Measured {
                    name: "throughput".into(),
                    value: 5.0,
                    unit: "1/s".into(),
                    better: Better::Higher,
                },
            ],
            costs: Default::default(),
            oracle: OracleRecord { checked: 4, violations: 0 },
            covered: Default::default(),
            bound: None,
            optimum: None,
            profile_tree: None,
            lru_gen: Vec::new(),
            fragmented: None,
            groups: Vec::new(),
            warnings: vec![],
        }
    }

    #[test]
    fn rows_come_in_the_promised_order() {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(
            names,
            [
                "run_time",
                "pgfault_minor",
                "pgmajfault",
                "pgscan_kswapd",
                "pgscan_direct",
                "pgsteal_kswapd",
                "pgsteal_direct",
                "workingset_refault_anon",
                "workingset_refault_file",
                "pswpin",
                "pswpout",
                "pgpgin",
                "pgpgout",
                "tlb_misses",
                "nr_tlb_remote_flush",
                "nr_tlb_remote_flush_received",
                "kswapd_cpu_time",
            ]
        );
    }

    #[test]
    fn the_bound_has_rows_where_it_was_asked_for() {
        let mut run = run("classic", 1, 1, &[]);
        let level = |rounds, receptions| LevelRecord { rounds, receptions, ..LevelRecord::default() };
        run.bound = Some(BoundRecord {
            rounds: 30,
            receptions: 60,
            l1: level(10, 0),
            l2: level(20, 40),
            ..BoundRecord::default()
        });
        let rows = rows_of(std::slice::from_ref(&run), false);
        let values: Vec<f64> = rows[ROWS.len()..].iter().map(|row| row.value(&run)).collect();
        assert_eq!(values, [10.0, 20.0, 0.0, 40.0, 3.0, 1.5, 60.0, 1.5]);
        run.bound = Some(BoundRecord::default());
        assert_eq!(rows[ROWS.len() + 4].value(&run), 1.0, "none where none are needed is as good as can be");
    }

    #[test]
    fn values_come_from_their_sources() {
        let run = run(
            "classic",
            1,
            1_500_000_000,
            &[(Stat::Pgfault, 10), (Stat::Pgmajfault, 3), (Stat::Pgfree, 9)],
        );
        let few = rows_of(std::slice::from_ref(&run), false);
        assert_eq!(few.len(), ROWS.len());
        let metrics = rows_of(std::slice::from_ref(&run), true);
        let value = |name: &str| metrics.iter().find(|m| m.name == name).map(|m| m.value(&run));
        assert_eq!(value("run_time"), Some(1.5));
        assert_eq!(value("pgfault_minor"), Some(7.0));
        assert_eq!(value("tlb_misses"), Some(77.0));
        assert_eq!(value("throughput"), Some(5.0));
        assert_eq!(value("pgfree"), Some(9.0));
        assert_eq!(value("pgrefill"), None, "what did not move is left out");
        assert_eq!(metrics.iter().filter(|m| m.name == "pgmajfault").count(), 1);
    }

    #[test]
    fn what_the_machine_cannot_measure_has_no_row() {
        let mut run = run("classic", 1, 1, &[]);
        run.metrics.clear();
        let names: Vec<String> = rows_of(&[run], false).into_iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len() - 2);
        assert!(!names.iter().any(|name| name == "tlb_misses" || name == "kswapd_cpu_time"));
    }
}

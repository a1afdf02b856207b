//! The rows of a result table, in order: the name of each, and the source of its number.

use crate::record::{Better, BoundRecord, Measured, RunRecord};
use Flushes::*;
use Level::*;
use Source::*;
use mm::stat::{CounterKind, Stat};

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name: a promise to users' scripts.
    pub name: String,
    /// Unit of the value; empty for a plain count.
    pub unit: String,
    /// Which direction is good, if one is.
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
    /// Refaults of both types, as the memory manager counts them.
    RefaultsCounted,
    /// A metric of the machine with the row's name.
    Machine,
    /// A count of the machine with another name.
    MachineCount(&'static str),
    /// Nanoseconds of the machine, as seconds.
    MachineNanos(&'static str),
    /// The least that any safe policy needs.
    Bound(Flushes, Level),
    /// What the run needed, divided by the least.
    BoundRatio(Flushes, Level),
    /// Refaults.
    Refaults(Least),
    /// The run's refaults, divided by these.
    RefaultsRatio(Least),
}

/// Whose refaults.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Least {
    /// The run's.
    Own,
    /// The fewest.
    Optimum,
    /// The fewest of a policy that checks young bits.
    Young,
}

/// How flushes are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flushes {
    Rounds,
    Receptions,
}

/// Which deadlines the bound uses.
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

const fn row(name: &'static str, unit: &'static str, help: &'static str, source: Source) -> Row {
    Row { name, unit, help, source }
}

const fn counter(stat: Stat, unit: &'static str) -> Row {
    row(stat.name(), unit, stat.help(), Counter(stat))
}

/// The rows of every table. Of all of them, less is better.
pub const ROWS: &[Row] = &[
    row("run_time", "s", "simulated time from start to end", RunTime),
    row("pgfault_minor", "", "page faults that needed no device (pgfault - pgmajfault)", MinorFaults),
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
    row(
        "tlb_misses",
        "",
        "accesses that found no translation in any TLB and walked the page table",
        MachineCount("stlb_misses"),
    ),
    counter(Stat::NrTlbRemoteFlush, ""),
    counter(Stat::NrTlbRemoteFlushReceived, ""),
    row("kswapd_cpu_time", "s", "CPU time of the kswapd daemons", MachineNanos("cpu_kswapd")),
];

/// The rows that `--bound` adds. Of all of them, less is better.
pub const BOUND_ROWS: &[Row] = &[
    row(
        "tlb_rounds_bound_l1",
        "",
        "flush rounds that any safe policy needs (with --bound; docs/bound.md)",
        Bound(Rounds, L1),
    ),
    row(
        "tlb_rounds_bound_l2",
        "",
        "flush rounds needed if what is due is paid where the memory manager looks (with --bound)",
        Bound(Rounds, L2),
    ),
    row(
        "tlb_receptions_bound_l1",
        "",
        "receptions that any safe policy needs (with --bound)",
        Bound(Receptions, L1),
    ),
    row(
        "tlb_receptions_bound_l2",
        "",
        "receptions needed if what is due is paid where the memory manager looks (with --bound)",
        Bound(Receptions, L2),
    ),
    row(
        "tlb_rounds_ratio_l1",
        "",
        "rounds of the run, by their bound L1; a bound of 0 counts as 1 (with --bound)",
        BoundRatio(Rounds, L1),
    ),
    row(
        "tlb_rounds_ratio_l2",
        "",
        "rounds of the run, by their bound L2 (with --bound)",
        BoundRatio(Rounds, L2),
    ),
    row(
        "tlb_receptions_ratio_l1",
        "",
        "receptions of the run, by their bound L1 (with --bound)",
        BoundRatio(Receptions, L1),
    ),
    row(
        "tlb_receptions_ratio_l2",
        "",
        "receptions of the run, by their bound L2 (with --bound)",
        BoundRatio(Receptions, L2),
    ),
];

/// The rows that `--optimum` adds. Of all of them, less is better.
pub const OPTIMUM_ROWS: &[Row] = &[
    row(
        "refaults",
        "pages",
        "uses of pages that were read again since their last use (with --optimum; docs/optimum.md)",
        Refaults(Least::Own),
    ),
    row(
        "refaults_optimum",
        "pages",
        "the fewest refaults that there can be, whatever is evicted when: Belady's MIN (with --optimum)",
        Refaults(Least::Optimum),
    ),
    row(
        "refaults_optimum_young",
        "pages",
        "the fewest refaults if a page stays from a use until its young bit is looked at (with --optimum)",
        Refaults(Least::Young),
    ),
    row(
        "refaults_ratio_optimum",
        "",
        "refaults of the run, by refaults_optimum; 0 of these count as 1 (with --optimum)",
        RefaultsRatio(Least::Optimum),
    ),
    row(
        "refaults_ratio_young",
        "",
        "refaults of the run, by refaults_optimum_young (with --optimum)",
        RefaultsRatio(Least::Young),
    ),
];

const fn compaction(name: &'static str, unit: &'static str, help: &'static str) -> Row {
    row(name, unit, help, MachineCount(name))
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
    row(
        "placement_back",
        "pages",
        "pages that went up after they had gone down (with --placement)",
        MachineCount("placement_back"),
    ),
];

const fn placement(name: &'static str, unit: &'static str, help: &'static str) -> Row {
    row(name, unit, help, MachineNanos(name))
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
    let none = if runs.is_empty() { ROWS } else { &[] };
    let measured = |row: &&Row| runs.iter().any(|run| row.measured_by(run));
    let rows = none.iter().chain(all_rows().filter(measured));
    let mut metrics: Vec<Metric> = rows.map(|row| row.metric(runs)).collect();
    if !all {
        return metrics;
    }
    for measured in runs.iter().flat_map(|run| &run.metrics) {
        if !metrics.iter().any(|metric| metric.name == measured.name) {
            metrics.push(Metric::of_machine(measured));
        }
    }
    for &stat in Stat::ALL {
        let moved = runs.iter().any(|run| run.counters.get(stat.name()).is_some_and(|&value| value != 0));
        if moved && !metrics.iter().any(|metric| metric.name == stat.name()) {
            metrics.push(Metric::of_counter(stat));
        }
    }
    metrics
}

/// A metric of a run by the name that `pagefold list` has for it; `refaults` are those that were counted where the run
/// has no optimum. `None`: the run did not measure it.
pub fn find(run: &RunRecord, name: &str) -> Option<Metric> {
    if let Some(row) = all_rows().find(|row| row.name == name && row.measured_by(run)) {
        return Some(row.metric(std::slice::from_ref(run)));
    }
    if name == "refaults" {
        return Some(row("refaults", "pages", "", RefaultsCounted).metric(&[]));
    }
    let machine = run.metrics.iter().find(|measured| measured.name == name).map(Metric::of_machine);
    machine.or_else(|| {
        let stat = Stat::ALL.iter().find(|stat| stat.name() == name && run.counters.contains_key(name));
        stat.map(|&stat| Metric::of_counter(stat))
    })
}

/// All rows that a table may have.
fn all_rows() -> impl Iterator<Item = &'static Row> {
    [ROWS, BOUND_ROWS, OPTIMUM_ROWS, MOVES_ROWS, PLACEMENT_ROWS, WHOLE_ROWS].into_iter().flatten()
}

impl Row {
    fn measured_by(&self, run: &RunRecord) -> bool {
        match self.source {
            MachineCount(name) | MachineNanos(name) => run.metrics.iter().any(|one| one.name == name),
            Bound(..) | BoundRatio(..) => run.bound.is_some(),
            Refaults(_) | RefaultsRatio(_) => run.optimum.is_some(),
            _ => true,
        }
    }

    fn metric(&self, runs: &[RunRecord]) -> Metric {
        Metric {
            name: self.name.to_owned(),
            unit: self.unit.to_owned(),
            better: Some(better_of(self, runs)),
            source: self.source,
        }
    }
}

/// Which direction of a row is good: that of its counter or of the machine's metric, else less.
fn better_of(row: &Row, runs: &[RunRecord]) -> Better {
    let better = match row.source {
        Counter(stat) => better(stat),
        MachineCount(name) => {
            let mut measured = runs.iter().flat_map(|run| &run.metrics);
            measured.find(|metric| metric.name == name).map(|metric| metric.better)
        }
        _ => None,
    };
    better.unwrap_or(Better::Lower)
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
    fn of_machine(measured: &Measured) -> Metric {
        Metric {
            name: measured.name.clone(),
            unit: measured.unit.clone(),
            better: Some(measured.better),
            source: Machine,
        }
    }

    fn of_counter(stat: Stat) -> Metric {
        Metric {
            name: stat.name().to_owned(),
            unit: String::new(),
            better: better(stat),
            source: Counter(stat),
        }
    }

    /// Its value in one run; 0 if the run did not measure it.
    pub fn value(&self, run: &RunRecord) -> f64 {
        match self.source {
            RunTime => run.nanos as f64 / 1e9,
            Counter(stat) => run.counter(stat),
            MinorFaults => run.counter(Stat::Pgfault) - run.counter(Stat::Pgmajfault),
            Machine => run.metric(&self.name),
            MachineCount(name) => run.metric(name),
            MachineNanos(name) => run.metric(name) / 1e9,
            Bound(flushes, level) => run.bound.as_ref().map_or(0.0, |b| least(b, flushes, level)),
            BoundRatio(flushes, level) => run.bound.as_ref().map_or(0.0, |b| {
                let own = if flushes == Rounds { b.rounds } else { b.receptions } as f64;
                by(own, least(b, flushes, level))
            }),
            RefaultsCounted => {
                run.counter(Stat::WorkingsetRefaultAnon) + run.counter(Stat::WorkingsetRefaultFile)
            }
            Refaults(whose) => refaults(run, whose),
            RefaultsRatio(whose) => by(refaults(run, Least::Own), refaults(run, whose)),
        }
    }
}

/// A number divided by its lower bound. 0 where the bound is 0 is as good as possible.
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
    let level = if level == L1 { &bound.l1 } else { &bound.l2 };
    (if flushes == Rounds { level.rounds } else { level.receptions }) as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::{LevelRecord, Measured, OracleRecord, WorkDone};

    /// A number that the machine measured.
    pub(crate) fn measured(name: &str, value: f64, unit: &str, better: Better) -> Measured {
        Measured { name: name.into(), value, unit: unit.into(), better }
    }

    /// A run with a few counters.
    pub(crate) fn run(profile: &str, seed: u64, nanos: u64, counters: &[(Stat, i64)]) -> RunRecord {
        RunRecord {
            profile: profile.to_owned(),
            seed,
            nanos,
            work: WorkDone { accesses: 1000, progress: 10, tasks: 2 },
            counters: counters.iter().map(|(stat, value)| (stat.name().to_owned(), *value)).collect(),
            metrics: vec![
                measured("stlb_misses", 77.0, "", Better::Lower),
                measured("cpu_kswapd", 0.0, "ns", Better::Lower),
                measured("throughput", 5.0, "1/s", Better::Higher),
            ],
            costs: Default::default(),
            oracle: OracleRecord { checked: 4, violations: 0 },
            covered: Default::default(),
            bound: None,
            optimum: None,
            profile_tree: None,
            task_time: None,
            locks: Vec::new(),
            lines: Vec::new(),
            lru_gen: Vec::new(),
            fragmented: None,
            groups: Vec::new(),
            proc_files: Default::default(),
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

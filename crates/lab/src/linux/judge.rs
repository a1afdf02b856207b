//! Our counts compared with Linux's, by kind.
//!
//! - *exact*: nothing was reclaimed and no page was transferred, so the count follows from the program alone. A few may
//!   differ, because the kernel itself does some work.
//! - *total*: the total of something. It must be within a tenth of Linux's, or within the spread of Linux's runs if
//!   that is wider; if Linux's count is near 0, a small difference does not matter.
//! - *timing*: which task did it, or how often a task was woken. Shown, but not judged.

use super::twin::Speed;
use crate::boot::beside::Agreement;
use crate::grid::Grid;
use crate::human;
use crate::record::{RunRecord, WorkDone};
use crate::statistics::{Interval, interval, mean};
use crate::summary::Setup;
use crate::table::heading;
use mm::stat::Stat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How far a total may be off, in per cent.
pub const TOLERANCE: f64 = 10.0;
/// Counts below which a share says nothing.
const FEW: f64 = 100.0;
/// What the kernel's own work may add to a count that has to be the same.
const OWN_WORK: f64 = 8.0;

/// One count of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What is counted.
    pub metric: String,
    /// Its unit; empty for a count.
    pub unit: String,
    /// What it is judged by.
    pub agreement: Agreement,
    /// Mean over Linux's runs.
    pub linux: f64,
    /// Its interval; `null` with one run.
    pub linux_ci: Option<Interval>,
    /// From Linux's smallest to its largest, in per cent of the mean; `null` with one run, or if the mean is 0.
    pub linux_spread_pct: Option<f64>,
    /// Mean over the simulated runs.
    pub simulated: f64,
    /// Mean over the booted machine's runs; `null` if it did not run.
    pub booted: Option<f64>,
    /// Simulated against Linux in per cent of Linux's; `null` if that is 0 and the simulated is not.
    pub error_pct: Option<f64>,
    /// Whether it is far from Linux's, by its kind; `null`: not judged.
    pub missed: Option<bool>,
}

/// The conditions that both ran under, as they were found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Version of the kernel.
    pub kernel: String,
    /// CPUs of the guest.
    pub cpus: u32,
    /// Pages that the program was left with.
    pub pages: u64,
    /// The same, node by node.
    #[serde(default)]
    pub pages_by_node: Vec<u64>,
    /// Pages that the kernel came to use for itself, on average, and that it was given in addition.
    pub kernel_pages: f64,
    /// Pages that were locked away.
    pub hidden_pages: f64,
    /// Pages that the guest's zones have, by which Linux sets the limits of CPUs' lists.
    pub managed_pages: f64,
    /// Bytes of swap space.
    pub swap: u64,
    /// The guest's speed, which the simulated machine has, too.
    #[serde(flatten)]
    pub speed: Speed,
    /// Whether the guest's time counted instructions.
    #[serde(default)]
    pub icount: bool,
    /// More words for the kernel.
    pub append: String,
    /// What was written into the kernel's files.
    pub settings: Vec<String>,
}

/// The comparison; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// What was run.
    #[serde(flatten)]
    pub setup: Setup,
    /// The conditions that both share.
    pub conditions: Conditions,
    /// Count by count.
    pub rows: Vec<Row>,
    /// Both sides' work, summed over the runs.
    pub work: Work,
    /// Whether both did the same work with every seed.
    pub same_work: bool,
    /// Seconds by both sides' own clocks, on average.
    #[serde(default)]
    pub seconds: Seconds,
    /// Seconds that it took on this computer.
    pub host_seconds: f64,
    /// What a reader of the numbers should know.
    pub warnings: Vec<String>,
}

/// How long a run took by the clock of its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// The simulator's.
    pub simulated: f64,
    /// Linux's.
    pub linux: f64,
}

/// Both sides' work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The simulator's.
    pub simulated: WorkDone,
    /// Linux's.
    pub linux: WorkDone,
}

/// A count of the table: its name, its unit, the counters that it is the sum of, and whether it is a matter of timing.
struct Count<'a> {
    metric: &'static str,
    unit: &'static str,
    of: &'a [Stat],
    timing: bool,
}

const fn total(metric: &'static str, of: &'static [Stat]) -> Count<'static> {
    Count { metric, unit: "", of, timing: false }
}

const fn timing(of: &'static [Stat; 1]) -> Count<'static> {
    Count { metric: of[0].name(), unit: "", of, timing: true }
}

/// Of machines with two nodes.
const NODE_COUNTS: &[Count<'static>] = &[
    total("pgdemote", &[Stat::PgdemoteKswapd, Stat::PgdemoteDirect]),
    total("pgpromote_candidate", &[Stat::PgpromoteCandidate]),
    total("pgpromote_success", &[Stat::PgpromoteSuccess]),
    total("numa_pte_updates", &[Stat::NumaPteUpdates]),
    total("numa_hint_faults", &[Stat::NumaHintFaults]),
    total("numa_hint_faults_local", &[Stat::NumaHintFaultsLocal]),
    total("numa_pages_migrated", &[Stat::NumaPagesMigrated]),
    total("pgmigrate_success", &[Stat::PgmigrateSuccess]),
    total("numa_hit", &[Stat::NumaHit]),
    total("numa_miss", &[Stat::NumaMiss]),
    total("numa_foreign", &[Stat::NumaForeign]),
    total("numa_local", &[Stat::NumaLocal]),
    total("numa_other", &[Stat::NumaOther]),
    timing(&[Stat::PgdemoteKswapd]),
    timing(&[Stat::PgdemoteDirect]),
];

const COUNTS: &[Count<'static>] = &[
    total("pgfault", &[Stat::Pgfault]),
    total("pgmajfault", &[Stat::Pgmajfault]),
    total("pgreuse", &[Stat::Pgreuse]),
    total("pgscan", &[Stat::PgscanKswapd, Stat::PgscanDirect]),
    total("pgscan_anon", &[Stat::PgscanAnon]),
    total("pgscan_file", &[Stat::PgscanFile]),
    total("pgsteal", &[Stat::PgstealKswapd, Stat::PgstealDirect]),
    total("pgsteal_anon", &[Stat::PgstealAnon]),
    total("pgsteal_file", &[Stat::PgstealFile]),
    total("pgactivate", &[Stat::Pgactivate]),
    total("pgdeactivate", &[Stat::Pgdeactivate]),
    total("workingset_refault_anon", &[Stat::WorkingsetRefaultAnon]),
    total("workingset_refault_file", &[Stat::WorkingsetRefaultFile]),
    total("pswpin", &[Stat::PswpIn]),
    total("pswpout", &[Stat::PswpOut]),
    Count { metric: "pgpgin", unit: "KiB", of: &[Stat::PgpgIn], timing: false },
    Count { metric: "pgpgout", unit: "KiB", of: &[Stat::PgpgOut], timing: false },
    timing(&[Stat::PgscanKswapd]),
    timing(&[Stat::PgscanDirect]),
    timing(&[Stat::PgstealKswapd]),
    timing(&[Stat::PgstealDirect]),
    timing(&[Stat::NrTlbRemoteFlushReceived]),
];

/// Counters that matter of timing among those that are shown on request.
const TIMED: &[&str] =
    &["allocstall", "pageoutrun", "kswapd_", "pgrotated", "nr_vmscan", "throttle", "swap_ra"];

fn counter(run: &RunRecord, of: &[Stat]) -> f64 {
    of.iter().map(|&stat| run.counter(stat)).sum()
}

/// Mean seconds of a run.
fn seconds(runs: &[RunRecord]) -> f64 {
    mean(&runs.iter().map(|run| run.nanos as f64 / 1e9).collect::<Vec<f64>>())
}

/// Whether only the program did anything.
fn calm(run: &RunRecord) -> bool {
    let others = [Stat::PgpgIn, Stat::PgpgOut, Stat::PgscanKswapd, Stat::PgscanDirect];
    // Swapping has its header read and the file system its own blocks: a few requests are nothing.
    others.iter().all(|&stat| run.counter(stat) <= FEW)
}

impl Row {
    fn of(
        count: &Count<'_>,
        calm: bool,
        linux: &[RunRecord],
        simulated: &[RunRecord],
        booted: &[RunRecord],
    ) -> Row {
        let values = |runs: &[RunRecord]| runs.iter().map(|run| counter(run, count.of)).collect::<Vec<f64>>();
        let (on_linux, here) = (values(linux), mean(&values(simulated)));
        let reference = mean(&on_linux);
        let agreement = match (count.timing, calm) {
            (true, _) => Agreement::Timing,
            (false, true) => Agreement::Exact,
            (false, false) => Agreement::Total,
        };
        let range = |pick: fn(f64, f64) -> f64, from: f64| on_linux.iter().copied().fold(from, pick);
        let spread = range(f64::max, f64::MIN) - range(f64::min, f64::MAX);
        let off = (here - reference).abs();
        let missed = match agreement {
            Agreement::Timing => None,
            Agreement::Exact => Some(off > OWN_WORK.max(reference / 1000.0)),
            Agreement::Total if reference.max(here) < FEW => None,
            Agreement::Total => Some(off > (reference * TOLERANCE / 100.0).max(spread)),
        };
        let share = |part: f64| (reference != 0.0).then(|| part / reference * 100.0);
        Row {
            metric: count.metric.to_owned(),
            unit: count.unit.to_owned(),
            agreement,
            linux: reference,
            linux_ci: interval(&on_linux),
            linux_spread_pct: share(spread).filter(|_| on_linux.len() > 1),
            simulated: here,
            booted: (!booted.is_empty()).then(|| mean(&values(booted))),
            error_pct: if here == reference { Some(0.0) } else { share(here - reference) },
            missed,
        }
    }
}

impl Beside {
    /// Compare runs, all in the order of seeds: Linux's, the simulated machine's, and the booted one's, if it ran.
    /// `all` adds every counter that moved.
    pub fn of(
        setup: Setup,
        conditions: Conditions,
        [linux, simulated, booted]: [&[RunRecord]; 3],
        all: bool,
    ) -> Beside {
        let calm = linux.iter().chain(simulated).all(calm);
        let known = |stat: Stat| linux.iter().all(|run| run.counters.contains_key(stat.name()));
        let moved = |stat: Stat| linux.iter().chain(simulated).any(|run| run.counter(stat) != 0.0);
        let of_nodes = if conditions.pages_by_node.len() > 1 { NODE_COUNTS } else { &[] };
        let counts = || COUNTS.iter().chain(of_nodes);
        let shown = |stat: Stat| counts().any(|count| count.of == [stat]);
        let others = Stat::ALL
            .iter()
            .copied()
            .filter(|stat| all && !stat.is_level() && known(*stat) && moved(*stat) && !shown(*stat));
        let others: Vec<(Stat, bool)> =
            others.map(|stat| (stat, TIMED.iter().any(|word| stat.name().contains(word)))).collect();
        let mut rows: Vec<Row> = counts()
            .filter(|count| count.of.iter().all(|stat| known(*stat)))
            .map(|count| Row::of(count, calm, linux, simulated, booted))
            .collect();
        rows.extend(others.iter().map(|(stat, timing)| {
            let of = std::slice::from_ref(stat);
            let count = Count { metric: stat.name(), unit: "", of, timing: *timing };
            Row::of(&count, calm, linux, simulated, booted)
        }));
        let warnings: BTreeSet<String> =
            linux.iter().chain(simulated).flat_map(|run| run.warnings.clone()).collect();
        Beside {
            rows,
            work: Work { simulated: WorkDone::of(simulated), linux: WorkDone::of(linux) },
            same_work: simulated.iter().zip(linux).all(|(one, other)| one.work == other.work),
            seconds: Seconds { simulated: seconds(simulated), linux: seconds(linux) },
            host_seconds: 0.0,
            warnings: warnings.into_iter().collect(),
            conditions,
            setup,
        }
    }

    /// Rows that are judged, and those of them that miss.
    pub fn judged(&self) -> (usize, usize) {
        let judged = || self.rows.iter().filter_map(|row| row.missed);
        (judged().count(), judged().filter(|missed| *missed).count())
    }

    /// The row of a metric.
    pub fn row(&self, metric: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.metric == metric)
    }
}

/// The comparison as text.
pub fn render(result: &Beside, width: usize) -> String {
    let booted = result.rows.iter().any(|row| row.booted.is_some());
    let repeated = result.setup.runs > 1;
    let mut headings = vec!["count", "linux"];
    headings.extend(repeated.then_some("spread"));
    headings.push("simulated");
    headings.extend(booted.then_some("booted"));
    headings.extend(["error", "agreement"]);
    let last = headings.len() - 1;
    let mut grid = Grid::new(headings);
    for row in &result.rows {
        let percent = |value: Option<f64>| value.map_or("n/a".to_owned(), human::percent);
        let mut cells = vec![row.metric.clone(), human::number(row.linux, &row.unit)];
        cells.extend(
            repeated.then(|| row.linux_spread_pct.map_or("n/a".into(), |spread| format!("{spread:.1}%"))),
        );
        cells.push(human::number(row.simulated, &row.unit));
        cells.extend(row.booted.map(|value| human::number(value, &row.unit)));
        cells.push(percent(row.error_pct));
        let word = match row.agreement {
            Agreement::Exact => "exact",
            Agreement::Total => "total",
            Agreement::Timing => "timing",
        };
        cells.push(match row.missed {
            Some(true) => format!("{word}: MISSED"),
            None if row.agreement == Agreement::Total => "total: too few".to_owned(),
            _ => word.to_owned(),
        });
        grid.row(cells);
    }
    let (judged, missed) = result.judged();
    let mut text = format!(
        "{}profile  {}\n{}\n{}\n",
        heading(&result.setup),
        result.setup.profiles.join(", "),
        conditions(&result.conditions),
        grid.render(|column| column == 0 || column == last, width)
    );
    let Seconds { simulated, linux } = result.seconds;
    text.push_str(&format!(
        "{judged} counts judged, {missed} missed; {linux:.1} s by the guest's clock, {simulated:.1} s by the simulated one\n"
    ));
    if result.same_work {
        text.push_str(&format!("work done: the same on both ({})\n", result.work.simulated.to_text()));
    } else {
        let Work { simulated, linux } = result.work;
        text.push_str(&format!("work done: simulated {}; Linux {}\n", simulated.to_text(), linux.to_text()));
        text.push_str("WARNING: the machines did not do the same work\n");
    }
    text.extend(result.warnings.iter().map(|warning| format!("note: {warning}\n")));
    text.push_str(
        "error: simulated against Linux; exact = the program alone decides, total = within a tenth or Linux's own spread, timing = \
         not judged\n",
    );
    text
}

/// The conditions that both share, in lines.
fn conditions(found: &Conditions) -> String {
    let Conditions {
        kernel,
        cpus,
        pages,
        pages_by_node,
        kernel_pages,
        hidden_pages,
        managed_pages,
        swap,
        speed: Speed { fault_nanos, access_nanos, read_micros, .. },
        ..
    } = found;
    let mut text = format!(
        "linux    {kernel}, {}, {} free pages for the program and {kernel_pages:.0} for the kernel, {managed_pages:.0} managed, {hidden_pages:.0} locked \
         away, \
         {} of swap\n{}",
        human::plural(u64::from(*cpus), "CPU", "CPUs"),
        human::grouped(*pages),
        human::bytes(*swap as f64),
        match &pages_by_node[..] {
            [fast, slow] => format!(
                "nodes    {} pages on the first, {} on the second\n",
                human::grouped(*fast),
                human::grouped(*slow)
            ),
            _ => String::new(),
        }
    );
    text.push_str(&format!(
        "speed    {fault_nanos:.0} ns for a fault on new memory, {access_nanos:.1} ns in user mode for an access, {read_micros:.0} us \
         for a disk's read; the twin is as slow{}\n",
        if found.icount { "; a nanosecond for each instruction" } else { "" }
    ));
    let short = |line: &String| {
        let (file, value) = line.split_once(' ').unwrap_or((line, ""));
        let mut parts = file.rsplit('/');
        let name = parts.next().unwrap_or(file);
        let folder = parts.next().filter(|_| name == "enabled").map(|folder| format!("{folder}/"));
        format!("{}{name}={value}", folder.unwrap_or_default())
    };
    let settings: Vec<String> = found.settings.iter().map(short).collect();
    text.push_str(&format!("settings {}\n", settings.join(" ")));
    if !found.append.is_empty() {
        text.push_str(&format!("kernel   {}\n", found.append));
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::grid::tests::words;
    use crate::metrics::tests::run;
    use crate::summary::tests::setup;

    fn conditions_of() -> Conditions {
        Conditions {
            kernel: "6.12".into(),
            cpus: 1,
            pages: 8192,
            pages_by_node: vec![8192],
            kernel_pages: 30.0,
            hidden_pages: 2_000.0,
            managed_pages: 30_000.0,
            swap: 64 << 20,
            speed: Speed { fault_nanos: 9000.0, read_micros: 200.0, ..Speed::default() },
            icount: false,
            append: String::new(),
            settings: vec!["/sys/kernel/mm/lru_gen/enabled 7".into(), "/proc/sys/vm/swappiness 60".into()],
        }
    }

    pub(in super::super) fn beside(linux: &[&[(Stat, i64)]], simulated: &[(Stat, i64)]) -> Beside {
        // A guest says every counter that the kernel has.
        let all = |counters: &[(Stat, i64)]| {
            let mut run = run("classic", 1, 1, counters);
            Stat::ALL.iter().for_each(|stat| _ = run.counters.entry(stat.name().to_owned()).or_insert(0));
            run
        };
        let runs: Vec<RunRecord> = linux.iter().map(|counters| all(counters)).collect();
        let here: Vec<RunRecord> = linux.iter().map(|_| all(simulated)).collect();
        let setup = Setup { runs: linux.len() as u32, ..setup(&["classic"]) };
        Beside::of(setup, conditions_of(), [&runs, &here, &[]], true)
    }

    fn judged(result: &Beside, metric: &str) -> (Agreement, Option<bool>) {
        let row = result.row(metric).unwrap();
        (row.agreement, row.missed)
    }

    #[test]
    fn without_reclaim_counts_are_the_same_but_for_the_kernels_own() {
        let result = beside(&[&[(Stat::Pgfault, 5000)]], &[(Stat::Pgfault, 5006)]);
        assert_eq!(judged(&result, "pgfault"), (Agreement::Exact, Some(false)));
        let result = beside(&[&[(Stat::Pgfault, 5000)]], &[(Stat::Pgfault, 5020)]);
        assert_eq!(judged(&result, "pgfault"), (Agreement::Exact, Some(true)));
    }

    #[test]
    fn totals_are_judged_by_a_tenth_or_by_linuxs_own_spread() {
        let of = |scanned: i64| [(Stat::PgscanKswapd, scanned), (Stat::PgscanDirect, 1000)];
        let counts = [of(9_000), of(9_200), of(13_000)];
        let narrow: [&[(Stat, i64)]; 2] = [&counts[0], &counts[1]];
        let wide: [&[(Stat, i64)]; 2] = [&counts[0], &counts[2]];
        let far = of(10_900);
        let judge = |linux: &[&[(Stat, i64)]]| judged(&beside(linux, &far), "pgscan");
        assert_eq!(judge(&narrow), (Agreement::Total, Some(true)));
        assert_eq!(judge(&wide), (Agreement::Total, Some(false)));
        let result = beside(&narrow, &far);
        assert_eq!(judged(&result, "pgscan_direct"), (Agreement::Timing, None));
        assert_eq!(judged(&result, "pgmajfault"), (Agreement::Total, None), "too few");
        assert_eq!(result.judged(), (1, 1));
        assert_eq!(result.row("pgscan").unwrap().error_pct.unwrap().round(), 18.0);
    }

    #[test]
    fn the_table_has_the_conditions() {
        let text = render(
            &beside(&[&[(Stat::Pgfault, 5000)], &[(Stat::Pgfault, 5000)]], &[(Stat::Pgfault, 5000)]),
            200,
        );
        for expected in ["8,192 free pages", "lru_gen/enabled=7 swappiness=60", "9000 ns", "spread"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(words(&text, "pgfault").last_chunk(), Some(&["+0.00%", "exact"]), "{text}");
    }
}

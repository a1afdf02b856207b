//! The simulated and the booted machine side by side.
//!
//! Both run the same program with the same seed on the same memory manager; only the machine differs. A count that
//! follows from the program alone must be the same; a difference is a fault of a machine. A count that depends on
//! *when* things happen (which of two CPUs is first, whether a transfer ends before the next fault, how far kswapd
//! gets) can only be near. Which kind a count is depends on the run, and the counters of both machines show it:
//!
//! - Accesses, progress and tasks are the program's: always exact.
//! - Flush rounds and receptions need another CPU. With one, both are 0.
//! - Everything else is exact if one task ran and nothing else mattered: no page was transferred, and nothing was
//!   reclaimed.
//!
//! Times are not shown: the simulator's are from a table of costs, the guest's from an emulator, so their ratio means
//! nothing.

use crate::grid::Grid;
use crate::human;
use crate::record::{OracleRecord, RunRecord, WorkDone};
use crate::statistics::{Change, Interval, mean};
use crate::summary::Setup;
use crate::table::heading;
use mm::stat::Stat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How near two counts must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agreement {
    /// The same: the program alone decides.
    Exact,
    /// Near in total, whichever task did it; used for Linux only.
    Total,
    /// Near: it depends on timing.
    Timing,
}

/// One count of both machines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What is counted.
    pub metric: String,
    /// Its unit; empty for a count.
    pub unit: String,
    /// Mean over the simulated runs.
    pub simulated: f64,
    /// Mean over the booted runs.
    pub booted: f64,
    /// Booted against simulated in per cent of the simulated; `null` if that is 0 and the booted is not.
    pub diff_pct: Option<f64>,
    /// Its interval; `null` with one run, or if the simulated count does not differ from 0 significantly.
    pub diff_ci_pct: Option<Interval>,
    /// How near they must be.
    pub agreement: Agreement,
    /// Whether counts that must be equal differ.
    #[serde(skip)]
    pub wrong: bool,
}

/// Both machines' work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Work {
    /// The simulator's.
    pub simulated: WorkDone,
    /// The guest's.
    pub booted: WorkDone,
}

/// The comparison; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideBySide {
    /// What was run.
    #[serde(flatten)]
    pub setup: Setup,
    /// Count by count.
    pub rows: Vec<Row>,
    /// Sums over the runs.
    pub work: Work,
    /// Whether both did the same work with every seed.
    pub same_work: bool,
    /// What the guest's checker saw.
    pub oracle: OracleRecord,
    /// Seconds that it took on this computer.
    pub host_seconds: f64,
    /// What a reader of the numbers should know.
    pub warnings: Vec<String>,
}

/// Counts that are shown even if both are 0; the first is derived.
const MINOR: &str = "pgfault_minor";
const ROWS: &[Stat] = &[
    Stat::Pgmajfault,
    Stat::Pgreuse,
    Stat::NrTlbRemoteFlush,
    Stat::NrTlbRemoteFlushReceived,
    Stat::TlbDeferred,
    Stat::PgscanKswapd,
    Stat::PgscanDirect,
    Stat::PgstealKswapd,
    Stat::PgstealDirect,
    Stat::PgstealAnon,
    Stat::PgstealFile,
    Stat::WorkingsetRefaultAnon,
    Stat::WorkingsetRefaultFile,
    Stat::PswpIn,
    Stat::PswpOut,
    Stat::PgpgIn,
    Stat::PgpgOut,
];

impl SideBySide {
    /// Compare runs on machines of `cpus` CPUs, pair by pair; both are in the order of seeds. `all` adds every event
    /// counter that moved.
    pub fn of(
        setup: Setup,
        cpus: u32,
        simulated: &[RunRecord],
        booted: &[RunRecord],
        all: bool,
    ) -> SideBySide {
        let calm = simulated.iter().chain(booted).all(alone_and_in_memory);
        let others = Stat::ALL.iter().filter(|stat| all && !stat.is_level() && !ROWS.contains(stat));
        let moved = |stat: &&Stat| simulated.iter().chain(booted).any(|run| run.counter(**stat) != 0.0);
        let mut rows = vec![row(MINOR, "", simulated, booted, calm, |run| {
            run.counter(Stat::Pgfault) - run.counter(Stat::Pgmajfault)
        })];
        rows.extend(ROWS.iter().chain(others.filter(moved)).map(|&stat| {
            let flush = matches!(stat, Stat::NrTlbRemoteFlush | Stat::NrTlbRemoteFlushReceived);
            let exact = if flush { cpus == 1 } else { calm };
            row(stat.name(), unit(stat), simulated, booted, exact, |run| run.counter(stat))
        }));
        let mut oracle = OracleRecord::default();
        booted.iter().for_each(|run| oracle += run.oracle);
        let warnings: BTreeSet<String> = simulated.iter().flat_map(|run| run.warnings.clone()).collect();
        SideBySide {
            rows,
            work: Work { simulated: WorkDone::of(simulated), booted: WorkDone::of(booted) },
            same_work: simulated.iter().zip(booted).all(|(one, other)| one.work == other.work),
            oracle,
            host_seconds: 0.0,
            warnings: warnings.into_iter().collect(),
            setup,
        }
    }

    /// Counts that have to be the same and are not.
    pub fn wrong(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.wrong)
    }
}

/// Whether one task ran, and no device or reclaim could interfere.
fn alone_and_in_memory(run: &RunRecord) -> bool {
    let others = [Stat::PgpgIn, Stat::PgpgOut, Stat::PgscanKswapd, Stat::PgscanDirect];
    run.work.tasks == 1 && others.iter().all(|&stat| run.counter(stat) == 0.0)
}

fn unit(stat: Stat) -> &'static str {
    if matches!(stat, Stat::PgpgIn | Stat::PgpgOut) { "KiB" } else { "" }
}

fn row(
    metric: &str,
    unit: &str,
    simulated: &[RunRecord],
    booted: &[RunRecord],
    exact: bool,
    value: impl Fn(&RunRecord) -> f64,
) -> Row {
    let values = |runs: &[RunRecord]| runs.iter().map(&value).collect::<Vec<f64>>();
    let (simulated, booted) = (values(simulated), values(booted));
    let change = Change::of(&simulated, &booted);
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    Row {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        simulated: mean(&simulated),
        booted: mean(&booted),
        diff_pct: change.ratio.map(percent),
        diff_ci_pct: change.ratio_interval.map(|interval| interval.map(percent)),
        agreement: if exact { Agreement::Exact } else { Agreement::Timing },
        wrong: exact && simulated != booted,
    }
}

/// The comparison as text.
pub fn render(result: &SideBySide, width: usize) -> String {
    let interval = result.setup.runs > 1;
    let mut headings = vec!["count", "simulated", "booted", "difference"];
    headings.extend(interval.then_some("95% interval"));
    headings.push("agreement");
    let last = headings.len() - 1;
    let mut grid = Grid::new(headings);
    for row in &result.rows {
        let mut cells = vec![
            row.metric.clone(),
            human::number(row.simulated, &row.unit),
            human::number(row.booted, &row.unit),
            row.diff_pct.map_or("n/a".to_owned(), human::percent),
        ];
        cells.extend(interval.then(|| match row.diff_ci_pct {
            Some(ends) => human::percents(ends),
            None => "n/a".to_owned(),
        }));
        cells.push(match (row.agreement, row.wrong) {
            (_, true) => "exact: WRONG".to_owned(),
            (Agreement::Exact, false) => "exact".to_owned(),
            (Agreement::Total | Agreement::Timing, _) => "timing".to_owned(),
        });
        grid.row(cells);
    }
    let mut text = format!(
        "{}profile  {}\n\n{}\n",
        heading(&result.setup),
        result.setup.profiles.join(", "),
        grid.render(|column| column == 0 || column == last, width)
    );
    let Work { simulated, booted } = result.work;
    if result.same_work {
        text.push_str(&format!("work done: the same on both ({})\n", simulated.to_text()));
    } else {
        text.push_str(&format!(
            "work done: simulated {}; booted {}\n",
            simulated.to_text(),
            booted.to_text()
        ));
        text.push_str("WARNING: the machines did not do the same work\n");
    }
    text.extend(result.warnings.iter().map(|warning| format!("note: {warning}\n")));
    if result.oracle.checked > 0 {
        let (checked, bad) =
            (human::grouped(result.oracle.checked), human::grouped(result.oracle.violations));
        text.push_str(&format!("checker of the guest: {checked} loads checked, {bad} violations\n"));
    }
    text.push_str(
        "difference: booted against simulated; exact = the program alone decides, timing = so does when things happen\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::tests::words;
    use crate::metrics::tests::run;
    use crate::summary::tests::setup;

    fn one_task(counters: &[(Stat, i64)]) -> RunRecord {
        let mut run = run("classic", 1, 1, counters);
        run.work.tasks = 1;
        run
    }

    fn of(cpus: u32, simulated: RunRecord, booted: RunRecord) -> SideBySide {
        let setup = Setup { runs: 1, ..setup(&["classic"]) };
        SideBySide::of(setup, cpus, &[simulated], &[booted], false)
    }

    fn agreement(result: &SideBySide, metric: &str) -> (Agreement, bool) {
        let row = result.rows.iter().find(|row| row.metric == metric).unwrap();
        (row.agreement, row.wrong)
    }

    #[test]
    fn what_the_program_alone_decides_has_to_be_the_same() {
        let same = of(1, one_task(&[(Stat::Pgfault, 5)]), one_task(&[(Stat::Pgfault, 5)]));
        assert_eq!(agreement(&same, MINOR), (Agreement::Exact, false));
        assert_eq!((same.wrong().count(), same.same_work), (0, true));
        let wrong = of(1, one_task(&[(Stat::Pgfault, 5)]), one_task(&[(Stat::Pgfault, 6)]));
        assert_eq!(agreement(&wrong, MINOR), (Agreement::Exact, true));
        assert!(render(&wrong, 100).contains("exact: WRONG"));
    }

    #[test]
    fn others_make_it_a_matter_of_timing() {
        let (few, more) = ([(Stat::Pgfault, 5)], [(Stat::Pgfault, 6), (Stat::PgscanKswapd, 1)]);
        for (simulated, booted) in [
            (one_task(&few), one_task(&more)),
            (run("classic", 1, 1, &few), one_task(&few)),
            (one_task(&few), one_task(&[(Stat::Pgfault, 5), (Stat::PgpgIn, 4)])),
        ] {
            assert_eq!(agreement(&of(1, simulated, booted), MINOR), (Agreement::Timing, false));
        }
    }

    #[test]
    fn flushes_are_sent_where_there_are_others() {
        let flush = "nr_tlb_remote_flush";
        let sent = || one_task(&[(Stat::NrTlbRemoteFlush, 2)]);
        assert_eq!(agreement(&of(1, one_task(&[]), sent()), flush), (Agreement::Exact, true));
        assert_eq!(agreement(&of(2, one_task(&[]), sent()), flush), (Agreement::Timing, false));
    }

    #[test]
    fn the_table_shows_both_and_their_difference() {
        let (simulated, booted) =
            (one_task(&[(Stat::PswpIn, 200)]), run("classic", 1, 1, &[(Stat::PswpIn, 250)]));
        let text = render(&of(2, simulated.clone(), booted), 100);
        assert_eq!(words(&text, "pswpin"), ["pswpin", "200", "250", "+25.00%", "timing"]);
        assert!(text.contains("WARNING: the machines did not do the same work"));
        let two = [simulated.clone(), simulated];
        let setup = Setup { runs: 2, ..setup(&["classic"]) };
        let text = render(&SideBySide::of(setup, 2, &two, &two, true), 100);
        assert!(text.contains("95% interval") && text.contains("the same on both"));
    }
}

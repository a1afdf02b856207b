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
//! Otherwise totals are held to a tenth, as those of Linux are (`linux::judge`), and which task did the work is not
//! judged.
//!
//! Times are not shown: the simulator's are from a table of costs, the guest's from an emulator, so their ratio means
//! nothing.

use crate::grid::Grid;
use crate::human;
use crate::linux::judge::copies::Paged;
use crate::linux::judge::counts::{self, Count};
use crate::linux::judge::row::{self, Agreement, Unjudged};
use crate::record::{OracleRecord, RunRecord, WorkDone};
use crate::statistics::{Change, Interval, mean};
use crate::summary::Setup;
use crate::table::heading;
use mm::stat::Stat;
use serde::Serialize;
use std::collections::BTreeSet;

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
    /// What it is judged by.
    pub agreement: Agreement,
    /// Whether the booted count is too far from the simulated one; `null`: not judged.
    pub missed: Option<bool>,
    /// Why it is not judged; `null` if it is.
    pub unjudged: Option<Unjudged>,
    /// The earlier rows that it repeats.
    pub copy_of: Option<String>,
    /// Why it is a matter of timing, if it is.
    pub reason: Option<String>,
}

impl Row {
    /// Whether counts that must be equal differ.
    fn is_wrong(&self) -> bool {
        self.agreement == Agreement::Exact && self.missed == Some(true)
    }

    /// What it is judged by and whether it holds, or why it is not judged.
    fn verdict(&self) -> String {
        match (self.agreement, self.unjudged, &self.copy_of) {
            (_, Some(Unjudged::Copy), Some(of)) => format!("is {of}"),
            (Agreement::Exact, ..) if self.is_wrong() => "exact: WRONG".to_owned(),
            (Agreement::Exact, ..) => "exact".to_owned(),
            (Agreement::Total, Some(Unjudged::Few), _) => "total: too few".to_owned(),
            (Agreement::Total, Some(Unjudged::Noisy), _) => "total: noisy".to_owned(),
            (Agreement::Total, ..) if self.missed == Some(true) => "total: MISSED".to_owned(),
            (Agreement::Total, ..) => "total".to_owned(),
            (Agreement::Timing, ..) => "timing".to_owned(),
        }
    }
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

impl SideBySide {
    /// Compare runs on machines of `cpus` CPUs and `nodes` nodes, pair by pair; both are in the order of seeds. `all`
    /// adds every event counter that moved.
    pub fn of(
        setup: Setup,
        [cpus, nodes]: [u32; 2],
        simulated: &[RunRecord],
        booted: &[RunRecord],
        all: bool,
    ) -> SideBySide {
        let named = || counts::counts(nodes as usize);
        let shown = |stat: Stat| named().any(|count| count.of.counters() == [stat]);
        let moved = |stat: Stat| simulated.iter().chain(booted).any(|run| run.counter(stat) != 0.0);
        // Only our own flush policies defer, so Linux's table has no row for it.
        let wanted = |stat: Stat| (all && !stat.is_level()) || stat == Stat::TlbDeferred;
        let others = Stat::ALL.iter().filter(|stat| wanted(**stat) && !shown(**stat) && moved(**stat));
        let rows = rows(named().chain(others.map(counts::other)), cpus, simulated, booted);
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
        self.rows.iter().filter(|row| row.is_wrong())
    }

    /// How many rows are judged, and how many of them miss.
    pub fn judged(&self) -> (usize, usize) {
        let judged = || self.rows.iter().filter_map(|row| row.missed);
        (judged().count(), judged().filter(|missed| *missed).count())
    }
}

/// Whether one task ran, and no device or reclaim could interfere.
fn alone_and_in_memory(run: &RunRecord) -> bool {
    let others = [Stat::PgpgIn, Stat::PgpgOut, Stat::PgscanKswapd, Stat::PgscanDirect];
    run.work.tasks == 1 && others.iter().all(|&stat| run.counter(stat) == 0.0)
}

/// Rows of counts; those that repeat earlier ones say so.
fn rows<'c>(
    counts: impl Iterator<Item = Count<'c>>,
    cpus: u32,
    simulated: &[RunRecord],
    booted: &[RunRecord],
) -> Vec<Row> {
    let calm = simulated.iter().chain(booted).all(alone_and_in_memory);
    let (mut judged, mut rows) = (Vec::new(), Vec::new());
    for count in counts {
        let flush = matches!(count.of.counters(), [Stat::NrTlbRemoteFlush | Stat::NrTlbRemoteFlushReceived]);
        let values =
            |runs: &[RunRecord]| -> Vec<f64> { runs.iter().map(|run| count.of.value(run)).collect() };
        let (here, there) = (values(simulated), values(booted));
        let mut row = row(&count, if flush { cpus == 1 } else { calm }, &here, &there);
        if row.agreement == Agreement::Total && row.missed.is_some() {
            let paged = Paged::new(&row.metric, &row.unit, here.into_iter().chain(there));
            match paged.repeats(&judged) {
                Some(of) => {
                    (row.missed, row.unjudged, row.copy_of) = (None, Some(Unjudged::Copy), Some(of));
                }
                None => judged.push(paged),
            }
        }
        rows.push(row);
    }
    rows
}

fn row(count: &Count<'_>, exact: bool, simulated: &[f64], booted: &[f64]) -> Row {
    let change = Change::of(simulated, booted);
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let (here, there) = (mean(simulated), mean(booted));
    let agreement = match (exact, count.timing) {
        (true, _) => Agreement::Exact,
        (false, Some(_)) => Agreement::Timing,
        (false, None) => Agreement::Total,
    };
    // A difference that several runs cannot tell from none is no miss.
    let unclear = simulated.len() > 1 && !change.is_significant();
    let spread = if unclear { change.difference.abs() } else { 0.0 };
    let (missed, unjudged) = match agreement {
        Agreement::Exact => (Some(simulated != booted), None),
        _ => row::verdict(agreement, here, there, spread),
    };
    Row {
        metric: count.metric.to_owned(),
        unit: count.unit.to_owned(),
        simulated: here,
        booted: there,
        diff_pct: change.ratio.map(percent),
        diff_ci_pct: change.ratio_interval.map(|interval| interval.map(percent)),
        agreement,
        missed,
        unjudged,
        copy_of: None,
        reason: count.timing.filter(|_| !exact).map(str::to_owned),
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
    for row in result.rows.iter().filter(|row| row.simulated != 0.0 || row.booted != 0.0) {
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
        cells.push(row.verdict());
        grid.row(cells);
    }
    let mut text = format!(
        "{}profile  {}\n\n{}\n",
        heading(&result.setup),
        result.setup.profiles.join(", "),
        grid.render(|column| column == 0 || column == last, width)
    );
    let (judged, missed) = result.judged();
    text.push_str(&format!("{judged} counts judged, {missed} missed\n"));
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
        "difference: booted against simulated; exact = the program alone decides, total = within a tenth, or no difference that the runs \
         can tell; too few, noisy (far apart, and the runs cannot tell), a repeated count ('is') and timing are not judged; what both have as 0 is left out\n",
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
        SideBySide::of(setup, [cpus, 1], &[simulated], &[booted], false)
    }

    fn agreement(result: &SideBySide, metric: &str) -> (Agreement, bool) {
        let row = result.rows.iter().find(|row| row.metric == metric).unwrap();
        (row.agreement, row.is_wrong())
    }

    #[test]
    fn what_the_program_alone_decides_has_to_be_the_same() {
        let same = of(1, one_task(&[(Stat::Pgfault, 5)]), one_task(&[(Stat::Pgfault, 5)]));
        assert_eq!(agreement(&same, "pgfault"), (Agreement::Exact, false));
        assert_eq!((same.wrong().count(), same.same_work), (0, true));
        let wrong = of(1, one_task(&[(Stat::Pgfault, 5)]), one_task(&[(Stat::Pgfault, 6)]));
        assert_eq!(agreement(&wrong, "pgfault"), (Agreement::Exact, true));
        assert!(render(&wrong, 100).contains("exact: WRONG"));
    }

    #[test]
    fn others_make_it_a_total() {
        let (few, more) = ([(Stat::Pgfault, 5)], [(Stat::Pgfault, 6), (Stat::PgscanKswapd, 1)]);
        for (simulated, booted) in [
            (one_task(&few), one_task(&more)),
            (run("classic", 1, 1, &few), one_task(&few)),
            (one_task(&few), one_task(&[(Stat::Pgfault, 5), (Stat::PgpgIn, 4)])),
        ] {
            assert_eq!(agreement(&of(1, simulated, booted), "pgfault"), (Agreement::Total, false));
        }
    }

    #[test]
    fn flushes_are_sent_where_there_are_others() {
        let flush = "nr_tlb_remote_flush";
        let sent = || one_task(&[(Stat::NrTlbRemoteFlush, 2)]);
        assert_eq!(agreement(&of(1, one_task(&[]), sent()), flush), (Agreement::Exact, true));
        assert_eq!(agreement(&of(2, one_task(&[]), sent()), flush), (Agreement::Total, false));
    }

    #[test]
    fn totals_are_judged_by_a_tenth_or_by_what_the_runs_can_tell() {
        let with = |kswapd, direct| one_task(&[(Stat::PgscanKswapd, kswapd), (Stat::PgscanDirect, direct)]);
        let judge = |result: &SideBySide| {
            let row = result.rows.iter().find(|row| row.metric == "pgscan").unwrap();
            (row.agreement, row.missed)
        };
        let near = of(2, with(9_000, 1_000), with(4_000, 6_900));
        assert_eq!(judge(&near), (Agreement::Total, Some(false)));
        assert_eq!(near.judged(), (1, 0), "who scanned is not judged");
        assert_eq!(judge(&of(2, with(9_000, 1_000), with(9_000, 2_100))), (Agreement::Total, Some(true)));
        assert_eq!(judge(&of(2, with(60, 0), with(90, 0))), (Agreement::Total, None), "too few");
        let setup = Setup { runs: 2, ..setup(&["classic"]) };
        let simulated = [with(9_000, 0), with(11_000, 0)];
        let scattered = SideBySide::of(setup, [2, 1], &simulated, &[with(14_000, 0), with(9_000, 0)], false);
        assert_eq!(judge(&scattered), (Agreement::Total, Some(false)), "the seeds differ more");
        let setup = Setup { runs: 2, ..scattered.setup.clone() };
        let noisy = SideBySide::of(setup, [2, 1], &simulated, &[with(30_000, 0), with(5_000, 0)], false);
        assert_eq!(judge(&noisy), (Agreement::Total, None));
        assert_eq!(words(&render(&noisy, 100), "pgscan").last(), Some(&"noisy"));
    }

    #[test]
    fn a_count_that_repeats_another_is_judged_once() {
        let with = |pages| one_task(&[(Stat::PgscanKswapd, pages), (Stat::PgscanFile, pages)]);
        let result = of(2, with(1_000), with(2_000));
        assert_eq!(result.judged(), (1, 1));
        let text = render(&result, 100);
        assert!(text.contains("is pgscan") && text.contains("1 counts judged, 1 missed"), "{text}");
    }

    #[test]
    fn the_table_shows_both_and_their_difference() {
        let (simulated, booted) =
            (one_task(&[(Stat::PswpIn, 200)]), run("classic", 1, 1, &[(Stat::PswpIn, 250)]));
        let text = render(&of(2, simulated.clone(), booted), 100);
        assert_eq!(words(&text, "pswpin"), ["pswpin", "200", "250", "+25.00%", "total:", "MISSED"]);
        assert!(text.contains("WARNING: the machines did not do the same work"));
        let two = [simulated.clone(), simulated];
        let setup = Setup { runs: 2, ..setup(&["classic"]) };
        let text = render(&SideBySide::of(setup, [2, 1], &two, &two, true), 100);
        assert!(text.contains("95% interval") && text.contains("the same on both"));
    }
}

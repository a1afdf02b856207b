//! Our counts compared with Linux's, by kind.
//!
//! - *exact*: nothing was reclaimed and no page was transferred, so the count follows from the program alone. A few may
//!   differ, because the kernel itself does some work.
//! - *total*: the total of something. It must be within a tenth of Linux's, or within the spread of Linux's boots with
//!   one seed if that is wider; a spread of more than a quarter judges nothing.
//! - *timing*: which task did it. Shown with both sides' spreads and a reason, but not judged.
//!
//! Not judged is also what both sides count as 0 or next to nothing, and what repeats other rows ([`copies`]).

pub mod copies;
pub mod counts;
pub mod row;
pub mod text;

pub use row::{FEW, Row, Unjudged};
pub use text::render;

use super::twin::Speed;
use super::unequal::Unequal;
use crate::record::{RunRecord, WorkDone};
use crate::statistics::mean;
use crate::summary::Setup;
use copies::Paged;
use counts::Count;
use mm::stat::Stat;
use row::Values;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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
    /// What the guest has otherwise than the simulated machine.
    #[serde(default)]
    pub unequal: Vec<Unequal>,
}

/// The comparison; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// What was run.
    #[serde(flatten)]
    pub setup: Setup,
    /// Boots with each seed, of both sides.
    #[serde(default = "one")]
    pub boots: u32,
    /// The conditions that both share.
    pub conditions: Conditions,
    /// Count by count.
    pub rows: Vec<Row>,
    /// Both sides' work, summed over the runs.
    pub work: Work,
    /// Whether both did the same work with every seed; not known of a program that Linux ran itself.
    pub same_work: Option<bool>,
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

/// What a result has that does not say how many boots there were.
fn one() -> u32 {
    1
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

/// Runs of all machines, each in the order of seeds, then of boots with one seed.
#[derive(Clone, Copy)]
pub struct Runs<'a> {
    /// Boots with each seed; of the booted machine, one.
    pub boots: u32,
    /// Linux's.
    pub linux: &'a [RunRecord],
    /// The simulated machine's.
    pub simulated: &'a [RunRecord],
    /// The booted machine's; empty if it did not run.
    pub booted: &'a [RunRecord],
}

impl Runs<'_> {
    fn both(&self) -> impl Iterator<Item = &RunRecord> {
        self.linux.iter().chain(self.simulated)
    }

    /// Rows of counts; those that repeat earlier ones say so.
    fn rows<'c>(&self, counts: impl Iterator<Item = Count<'c>>) -> Vec<Row> {
        let calm = self.both().all(calm);
        let (mut judged, mut rows) = (Vec::new(), Vec::new());
        for count in counts {
            let of = |runs: &[RunRecord], boots| Values::of(runs, boots as usize, count.of);
            let (linux, simulated) = (of(self.linux, self.boots), of(self.simulated, self.boots));
            let booted = (!self.booted.is_empty()).then(|| of(self.booted, 1).mean());
            let mut row = Row::of(&count, calm, &linux, &simulated, booted);
            if row.missed.is_some() {
                let paged = Paged::new(&row.metric, &row.unit, linux.all().chain(simulated.all()));
                match paged.repeats(&judged) {
                    Some(of) => row.copy(of),
                    None => judged.push(paged),
                }
            }
            rows.push(row);
        }
        rows
    }
}

impl Beside {
    /// Compare runs. `all` adds every counter that moved.
    pub fn of(setup: Setup, conditions: Conditions, runs: Runs<'_>, all: bool) -> Beside {
        let Runs { boots, linux, simulated, .. } = runs;
        let known = |stat: &Stat| linux.iter().all(|run| run.counters.contains_key(stat.name()));
        let moved = |stat: Stat| runs.both().any(|run| run.counter(stat) != 0.0);
        let counts = || counts::counts(conditions.pages_by_node.len());
        let shown = |stat: Stat| counts().any(|count| count.of.counters() == [stat]);
        let others = Stat::ALL
            .iter()
            .filter(|stat| all && !stat.is_level() && known(stat) && moved(**stat) && !shown(**stat));
        let named = counts().filter(|count| count.of.counters().iter().all(known));
        let held = linux.first().into_iter().flat_map(|run| &run.metrics);
        let held = held.filter_map(|metric| counts::held(&metric.name));
        let mut all: Vec<Count<'_>> = named.chain(held).collect();
        others.for_each(|stat| all.push(counts::other(stat)));
        let rows = runs.rows(all.into_iter());
        let warnings: BTreeSet<String> = runs.both().flat_map(|run| run.warnings.clone()).collect();
        Beside {
            rows,
            boots,
            work: Work { simulated: WorkDone::of(simulated), linux: WorkDone::of(linux) },
            same_work: Some(simulated.iter().zip(linux).all(|(one, other)| one.work == other.work)),
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

#[cfg(test)]
pub(super) mod tests {
    use super::row::Agreement;
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
            unequal: vec![Unequal {
                what: "node 0 watermark low".into(),
                linux: "12165".into(),
                simulated: "2048".into(),
            }],
        }
    }

    /// Linux's boots with one seed, and the simulated machine's, which all count the same.
    pub(in super::super) fn beside(linux: &[&[(Stat, i64)]], simulated: &[(Stat, i64)]) -> Beside {
        // A guest says every counter that the kernel has.
        let all = |counters: &[(Stat, i64)]| {
            let mut run = run("classic", 1, 1, counters);
            Stat::ALL.iter().for_each(|stat| _ = run.counters.entry(stat.name().to_owned()).or_insert(0));
            run
        };
        let runs: Vec<RunRecord> = linux.iter().map(|counters| all(counters)).collect();
        let here: Vec<RunRecord> = linux.iter().map(|_| all(simulated)).collect();
        let setup = Setup { runs: 1, ..setup(&["classic"]) };
        let boots = linux.len() as u32;
        Beside::of(setup, conditions_of(), Runs { boots, linux: &runs, simulated: &here, booted: &[] }, true)
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
        let counts = [of(9_000), of(9_200), of(11_500), of(13_000)];
        let narrow: [&[(Stat, i64)]; 2] = [&counts[0], &counts[1]];
        let wide: [&[(Stat, i64)]; 2] = [&counts[0], &counts[2]];
        let noisy: [&[(Stat, i64)]; 2] = [&counts[0], &counts[3]];
        let far = of(12_500);
        let judge = |linux: &[&[(Stat, i64)]]| judged(&beside(linux, &far), "pgscan");
        assert_eq!(judge(&narrow), (Agreement::Total, Some(true)));
        assert_eq!(judge(&wide), (Agreement::Total, Some(false)));
        assert_eq!(judge(&noisy), (Agreement::Total, None), "a third is no measure");
        let result = beside(&noisy, &far);
        assert_eq!(result.row("pgscan").unwrap().unjudged, Some(Unjudged::Noisy));
        assert!(render(&result, 200).contains("total: noisy"));
        let result = beside(&narrow, &far);
        assert_eq!(judged(&result, "pgscan_direct"), (Agreement::Timing, None));
        assert_eq!(judged(&result, "pgmajfault"), (Agreement::Total, None), "too few");
        assert_eq!(result.judged(), (1, 1), "a row of zeroes is none");
        assert_eq!(result.row("pgfault").unwrap().unjudged, Some(Unjudged::Zero));
        assert_eq!(result.row("pgscan").unwrap().error_pct.unwrap().round(), 34.0);
    }

    #[test]
    fn a_count_and_its_copy_count_once() {
        let of = |pages: i64| {
            let all = [Stat::PgscanKswapd, Stat::PgscanFile, Stat::PgstealKswapd, Stat::PgstealFile];
            let mut counters: Vec<(Stat, i64)> = all.iter().map(|stat| (*stat, pages)).collect();
            counters.extend([(Stat::PgstealKswapd, pages / 2), (Stat::PgstealFile, pages / 2)]);
            counters
        };
        let result = beside(&[&of(10_000)], &of(10_010));
        assert_eq!(result.row("pgscan").unwrap().copy_of.as_deref(), Some("pgscan_file"));
        assert_eq!(result.judged(), (2, 0), "pgscan_file and pgsteal_file");
        let text = render(&result, 200);
        assert!(text.contains("is pgscan") && text.contains("2 counts judged"), "{text}");
    }

    #[test]
    fn a_part_that_is_far_off_misses_though_its_total_is_near() {
        let of = |anon: i64, file: i64| {
            [(Stat::PgscanKswapd, anon + file), (Stat::PgscanAnon, anon), (Stat::PgscanFile, file)]
        };
        let result = beside(&[&of(99_000, 1_000)], &of(99_000, 6_000));
        assert_eq!(judged(&result, "pgscan_file"), (Agreement::Total, Some(true)));
        assert_eq!(result.row("pgscan").unwrap().copy_of.as_deref(), Some("pgscan_anon + pgscan_file"));
        assert_eq!(result.judged(), (2, 1));
    }

    #[test]
    fn flushes_of_other_cpus_are_judged() {
        let of =
            |sent, received| [(Stat::NrTlbRemoteFlush, sent), (Stat::NrTlbRemoteFlushReceived, received)];
        let busy = (Stat::PgscanKswapd, 10_000);
        let with = |sent, received| of(sent, received).into_iter().chain([busy]).collect::<Vec<_>>();
        let result = beside(&[&with(2376, 2400)], &with(2300, 8704));
        assert_eq!(judged(&result, "nr_tlb_remote_flush"), (Agreement::Total, Some(false)));
        assert_eq!(judged(&result, "nr_tlb_remote_flush_received"), (Agreement::Total, Some(true)));
    }

    #[test]
    fn timing_has_a_reason_and_both_sides_spreads() {
        let of = |pages: i64| [(Stat::PgscanKswapd, pages), (Stat::PgscanDirect, 10_000 - pages)];
        let result = beside(&[&of(6000), &of(8000)], &of(9000));
        let row = result.row("pgscan_direct").unwrap();
        assert_eq!((row.missed, row.unjudged), (None, Some(Unjudged::Timing)));
        assert!(row.reason.as_deref().is_some_and(|why| why.contains("kswapd")), "{row:?}");
        assert_eq!(row.linux_spread_pct.map(f64::round), Some(67.0));
        assert_eq!(row.simulated_spread_pct, Some(0.0));
    }

    #[test]
    fn the_table_has_the_conditions() {
        let text = render(
            &beside(&[&[(Stat::Pgfault, 5000)], &[(Stat::Pgfault, 5000)]], &[(Stat::Pgfault, 5000)]),
            200,
        );
        for expected in
            ["8,192 free pages", "lru_gen/enabled=7 swappiness=60", "9000 ns", "spread", "12165 for 2048"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(words(&text, "pgfault").last_chunk(), Some(&["+0.00%", "exact"]), "{text}");
    }
}

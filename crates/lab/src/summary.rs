//! From raw runs to the result that is printed: one object, whose keys are a promise (docs/json.md).

use crate::breakdown::{self, Costs, DeviceIo};
use crate::document::Origin;
use crate::groups::{self, GroupSummary};
use crate::locks::{self, LineRecord, LockRecord};
use crate::metrics::{Metric, rows_of};
use crate::profile::Profile;
use crate::record::{Better, FragmentedRecord, LruGenRecord, OracleRecord, RunRecord, WorkDone};
use crate::replay::{self, shell_line};
use crate::statistics::{self, Change, Interval};
use crate::tree::Tree;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What was run: enough to run it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The build that made it.
    #[serde(flatten)]
    pub origin: Origin,
    /// `run` or `compare`.
    pub command: String,
    /// The machine, as named by the user.
    pub machine: String,
    /// The program, as named by the user.
    pub program: String,
    /// Bytes of memory; `null` if all that the machine has.
    pub memory: Option<u64>,
    /// The state of memory that runs begin with, as asked for on the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragment: Option<String>,
    /// What differs between seeds besides what the machine draws, as `--vary` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vary: Option<String>,
    /// A controller of one of the control groups, as `--senpai` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub senpai: Option<String>,
    /// Control groups that runs begin with, as asked for on the command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<String>,
    /// Swap areas instead of the machine's own, as asked for on the command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub swap: Vec<String>,
    /// Devices that fail, as asked for on the command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fail: Vec<String>,
    /// The machine of the other side of an explanation, if it is not the base's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_machine: Option<String>,
    /// Its bytes of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_memory: Option<u64>,
    /// Its swap areas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with_swap: Vec<String>,
    /// Into how many phases an explanation divides the program, if into several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<u32>,
    /// Bytes that the program touches.
    pub footprint: u64,
    /// The most bytes of them that exist at once; shares of memory are of it.
    pub peak_live: u64,
    /// The first seed; run i has seed + i.
    pub seed: u64,
    /// Runs of each profile.
    pub runs: u32,
    /// The profile that others are compared with.
    pub base: Option<String>,
    /// All profiles, the base first.
    pub profiles: Vec<String>,
    /// What each profile sets.
    pub knobs: BTreeMap<String, BTreeMap<String, u64>>,
    /// Profiles that failed while others ran, and why; they are in no other list.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<String, String>,
}

impl Setup {
    /// The setup of the profiles that have not failed. Without the base nothing is compared.
    pub fn without(mut self, failed: &BTreeMap<String, String>) -> Setup {
        for (profile, why) in failed {
            self.profiles.retain(|name| name != profile);
            self.knobs.remove(profile);
            self.base = self.base.filter(|base| base != profile);
            self.failed.insert(profile.clone(), why.clone());
        }
        self
    }

    /// A command that does the same runs.
    pub fn command_line(&self) -> String {
        let option = |flag: &str, value: &str| [flag.to_owned(), value.to_owned()];
        let many = |flag: &'static str, values: &[String]| {
            values.iter().flat_map(move |value| option(flag, value)).collect::<Vec<_>>()
        };
        let mut words = replay::first_words();
        words.extend([self.command.clone(), self.program.clone()]);
        words.extend(option("--machine", &self.machine));
        words.extend(self.memory.iter().flat_map(|bytes| option("--memory", &bytes.to_string())));
        match (&self.base, &self.profiles[..]) {
            (None, profiles) => words.extend(many("--profile", profiles)),
            (Some(base), profiles) => {
                words.extend(option("--base", base));
                words.extend(
                    profiles.iter().filter(|&other| other != base).flat_map(|other| option("--with", other)),
                );
            }
        }
        words.extend(self.common_settings().iter().flat_map(|setting| option("--set", setting)));
        words.extend([many("--fragment", self.fragment.as_slice()), many("--group", &self.group)].concat());
        words.extend(many("--vary", self.vary.as_slice()));
        words.extend([many("--swap", &self.swap), many("--fail", &self.fail)].concat());
        words.extend(
            [option("--seed", &self.seed.to_string()), option("--runs", &self.runs.to_string())].concat(),
        );
        shell_line(words)
    }

    /// The settings that all profiles have besides their own.
    fn common_settings(&self) -> Vec<String> {
        let Some((name, knobs)) = self.knobs.iter().next() else { return Vec::new() };
        let own = Profile::parse(name, &[]).map(|profile| profile.settings()).unwrap_or_default();
        let common = knobs.iter().filter(|(knob, _)| !own.contains_key(*knob));
        common.map(|(knob, value)| format!("{knob}={value}")).collect()
    }

    /// Whether there is a profile that is compared with the base.
    pub fn compares(&self) -> bool {
        self.base.is_some() && self.profiles.len() > 1
    }
}

/// Why a comparison did no more runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StoppedBy {
    /// The intervals of the main metrics are narrow enough.
    Interval,
    /// These were as many as it might do.
    Runs,
    /// The time was up.
    Time,
    /// It was interrupted.
    Interrupt,
}

/// Metrics whose intervals decide how many runs a comparison does.
pub const MAIN: [&str; 2] = ["run_time", "pgmajfault"];
/// The number of runs after which a comparison looks at its intervals first: those of fewer runs hold the true value
/// too seldom. A program may have two states: with one in four of the rarer, five runs see none of it in a quarter of
/// all cases, ten in a twentieth.
pub const FIRST_LOOK: u32 = 10;

/// The numbers of runs after which an experiment looks whether its intervals are narrow enough, the last being all that
/// it may do. They grow by half each time, so that few looks are taken: each is a chance to stop at a narrow interval
/// that is luck.
pub fn looks(setup: &Setup) -> impl Iterator<Item = u32> + use<> {
    let (most, compares) = (setup.runs, setup.base.is_some());
    let next = move |&look: &u32| (look < most).then(|| (look + look.div_ceil(2)).min(most));
    std::iter::successors(Some(if compares { FIRST_LOOK.min(most) } else { most }), next)
}

/// The result of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// What was run.
    #[serde(flatten)]
    pub setup: Setup,
    /// Probability that an interval holds the true value.
    pub confidence: f64,
    /// Bytes that the memory leaves to the program and its page tables; kswapd keeps the others free. `null` if the
    /// machine has all of its memory, does not tell, or profiles differ in it.
    pub memory_left: Option<u64>,
    /// The most runs that it might do.
    pub runs_limit: u32,
    /// Why it did no more; `null` where nothing is compared: `run` does all.
    pub stopped_by: Option<StoppedBy>,
    /// Metric by metric, and in each the profiles in order.
    pub rows: Vec<SummaryRow>,
    /// Work done by each profile, summed over its runs.
    pub work: BTreeMap<String, WorkDone>,
    /// Kernel work by profile and kind, summed over the runs; what was not done is left out.
    pub costs: BTreeMap<String, Costs>,
    /// Block devices by profile and name, summed over the runs.
    pub devices: BTreeMap<String, BTreeMap<String, DeviceIo>>,
    /// Where CPU time went, summed over the runs; only if that was asked for, and of one profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile_tree: Option<Tree>,
    /// What happened at locks, summed over the runs; only if that was asked for, and of one profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<Vec<LockRecord>>,
    /// Cache lines that came from other CPUs; with `locks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<LineRecord>>,
    /// Generations as visits saw them, of the first run; only if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lru_gen: Vec<LruGenRecord>,
    /// The state that memory was brought into, of the first run; only if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented: Option<FragmentedRecord>,
    /// Control groups by profile, in the order in which they were made; only if there were some.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, Vec<GroupSummary>>,
    /// Whether all profiles did the same work, seed by seed.
    pub same_work: bool,
    /// The oracle's account of all runs.
    pub oracle: OracleRecord,
    /// What the random program has met, summed over the runs; nothing for other programs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub covered: BTreeMap<String, u64>,
    /// Seconds that the experiment took on this computer: the one value that is not a function of the setup.
    pub host_seconds: f64,
    /// Simulated accesses of all runs.
    pub accesses: u64,
    /// What a reader of the numbers should know, one sentence each.
    pub warnings: Vec<String>,
}

/// One metric of one profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummaryRow {
    /// The metric.
    pub metric: String,
    /// The profile.
    pub profile: String,
    /// Mean over the runs.
    pub value: f64,
    /// Interval of the mean; `null` with one run.
    pub ci: Option<Interval>,
    /// Unit of the value; empty for a count.
    pub unit: String,
    /// Which direction is good; `null`: neither.
    pub better: Option<Better>,
    /// Mean of value − base, in the unit; `null` for the base itself, as all that follows.
    pub diff: Option<f64>,
    /// Interval of the paired difference.
    pub diff_ci: Option<Interval>,
    /// Value by base; `null` if the base is 0 and the value is not.
    pub ratio: Option<f64>,
    /// Change against the base in per cent, positive = better; `null` where `ratio` is, and where neither direction is
    /// better.
    pub change_pct: Option<f64>,
    /// Its interval.
    pub change_ci_pct: Option<Interval>,
    /// Its interval by the bootstrap; `null` also with fewer than eight runs.
    pub change_bootstrap_pct: Option<Interval>,
    /// Whether the difference is significant. (Not printed: `diff_ci` shows it.)
    #[serde(skip)]
    pub significant: bool,
}

impl Summary {
    /// Sum up `runs`. Only seeds that every profile has finished count; `all` adds every counter that moved.
    pub fn of(mut setup: Setup, runs: &[RunRecord], host_seconds: f64, all: bool) -> Summary {
        let by_profile = complete_pairs(&setup.profiles, runs);
        let runs_limit = setup.runs;
        setup.runs = by_profile.first().map_or(0, |runs| runs.len() as u32);
        let finished: Vec<RunRecord> = by_profile.iter().flatten().map(|&run| run.clone()).collect();
        let rows: Vec<SummaryRow> =
            rows_of(&finished, all).iter().flat_map(|metric| compare(metric, &setup, &by_profile)).collect();
        let mut work = BTreeMap::new();
        let mut oracle = OracleRecord::default();
        let mut accesses = 0;
        let (mut warnings, mut covered) = (BTreeSet::new(), BTreeMap::new());
        for run in &finished {
            run.covered.iter().for_each(|(name, times)| *covered.entry(name.clone()).or_insert(0) += times);
            *work.entry(run.profile.clone()).or_insert_with(WorkDone::default) += run.work;
            oracle += run.oracle;
            accesses += run.work.accesses;
            warnings.extend(run.warnings.iter().cloned());
        }
        let groups = |runs: &[&RunRecord]| groups::summarize(runs.iter().copied());
        let named = || setup.profiles.iter().cloned().zip(&by_profile);
        let waiting = match &by_profile[..] {
            // The profile tells which function had a lock; both are asked for together.
            [only] => Some(only).filter(|runs| runs.iter().any(|run| run.profile_tree.is_some())),
            _ => None,
        };
        Summary {
            costs: named().map(|(name, runs)| (name, breakdown::costs(runs.iter().copied()))).collect(),
            devices: named().map(|(name, runs)| (name, breakdown::devices(runs.iter().copied()))).collect(),
            confidence: statistics::CONFIDENCE,
            memory_left: setup.memory.and_then(|memory| left(memory, &by_profile)),
            runs_limit,
            stopped_by: setup.compares().then(|| match setup.runs {
                runs if runs >= FIRST_LOOK && rows.iter().all(SummaryRow::is_precise) => StoppedBy::Interval,
                runs if runs >= runs_limit => StoppedBy::Runs,
                _ => StoppedBy::Interrupt,
            }),
            rows,
            work,
            profile_tree: match &by_profile[..] {
                [only] => Tree::sum(only.iter().filter_map(|run| run.profile_tree.as_ref())),
                _ => None,
            },
            locks: waiting.map(|runs| locks::sum(runs.iter().map(|run| &run.locks[..]))),
            lines: waiting.map(|runs| locks::sum_lines(runs.iter().map(|run| &run.lines[..]))),
            lru_gen: finished.first().map_or(Vec::new(), |run| run.lru_gen.clone()),
            fragmented: finished.first().and_then(|run| run.fragmented.clone()),
            groups: match finished.iter().all(|run| run.groups.is_empty()) {
                true => BTreeMap::new(),
                false => named().map(|(name, runs)| (name, groups(runs))).collect(),
            },
            same_work: same_work(&by_profile),
            oracle,
            covered,
            host_seconds,
            accesses,
            warnings: warnings.into_iter().collect(),
            setup,
        }
    }

    /// The same, of an experiment that began no more runs because its time was up.
    pub fn out_of_time(mut self, out_of_time: bool) -> Summary {
        if out_of_time && self.stopped_by == Some(StoppedBy::Interrupt) {
            self.stopped_by = Some(StoppedBy::Time);
        }
        self
    }
}

impl SummaryRow {
    /// The bootstrap's interval, if one of the two excludes no change and the other does not.
    pub fn contradiction(&self) -> Option<Interval> {
        let [low, high] = self.change_bootstrap_pct?;
        ((low > 0.0 || high < 0.0) != self.significant).then_some([low, high])
    }

    /// Whether the interval is narrower than a quarter of the change or 5 %, or the metric is none of those that
    /// decide.
    pub fn is_precise(&self) -> bool {
        if self.diff.is_none() || !MAIN.contains(&self.metric.as_str()) {
            return true;
        }
        match self.change_ci_pct.zip(self.change_pct) {
            Some(([low, high], change)) => high - low <= (change.abs() / 4.0).max(5.0),
            // Where the base is 0 or as good as 0, no width is known but that of differences which are all the same.
            None => self.diff_ci.is_none_or(|[low, high]| low == high),
        }
    }
}

/// The runs of each profile in order of seeds, without seeds that some profile has not finished.
pub fn complete_pairs<'a>(profiles: &[String], runs: &'a [RunRecord]) -> Vec<Vec<&'a RunRecord>> {
    let of =
        |profile: &String, seed: u64| runs.iter().find(|run| run.profile == *profile && run.seed == seed);
    let mut seeds: Vec<u64> = runs.iter().map(|run| run.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds.retain(|&seed| profiles.iter().all(|profile| of(profile, seed).is_some()));
    profiles.iter().map(|profile| seeds.iter().filter_map(|&seed| of(profile, seed)).collect()).collect()
}

/// Bytes that `memory` leaves to the program, if that is known and the same for all profiles.
fn left(memory: u64, by_profile: &[Vec<&RunRecord>]) -> Option<u64> {
    let mut left = by_profile.iter().map(|runs| runs.first()?.left_of(memory));
    let first = left.next()?;
    first.filter(|_| left.all(|other| other == first))
}

/// Pairs of runs have to have done the same, or their times mean nothing.
fn same_work(by_profile: &[Vec<&RunRecord>]) -> bool {
    let Some((base, others)) = by_profile.split_first() else { return true };
    others.iter().all(|runs| runs.iter().zip(base).all(|(run, base)| run.work == base.work))
}

/// The rows of one metric.
fn compare(metric: &Metric, setup: &Setup, by_profile: &[Vec<&RunRecord>]) -> Vec<SummaryRow> {
    let values: Vec<Vec<f64>> =
        by_profile.iter().map(|runs| runs.iter().map(|run| metric.value(run)).collect()).collect();
    let rows = setup.profiles.iter().zip(&values);
    rows.map(|(profile, value)| {
        let is_base = setup.base.as_ref().is_none_or(|base| base == profile);
        let change = (!is_base).then(|| Change::of(&values[0], value));
        let percent = change.zip(metric.better).map(|(change, better)| better.of(&change));
        let (change_pct, change_ci_pct) = percent.unwrap_or_default();
        let better = metric.better.filter(|_| !is_base);
        let change_bootstrap_pct = better.and_then(|better| {
            Some(better.percent_interval(statistics::bootstrap::ratio(&values[0], value)?))
        });
        SummaryRow {
            metric: metric.name.clone(),
            profile: profile.clone(),
            value: statistics::mean(value),
            ci: statistics::interval(value),
            unit: metric.unit.clone(),
            better: metric.better,
            diff: change.map(|change| change.difference),
            diff_ci: change.and_then(|change| change.difference_interval),
            ratio: change.and_then(|change| change.ratio),
            change_pct,
            change_ci_pct,
            change_bootstrap_pct,
            significant: change.is_some_and(|change| change.is_significant()),
        }
    })
    .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::document::SCHEMA;
    use crate::metrics::tests::run;
    use mm::stat::Stat;

    /// A setup with these profiles, the first being the base.
    pub(crate) fn setup(profiles: &[&str]) -> Setup {
        Setup {
            origin: Origin::here(SCHEMA),
            command: if profiles.len() > 1 { "compare".into() } else { "run".into() },
            machine: "small".into(),
            program: "zipf:256M".into(),
            memory: Some(128 << 20),
            senpai: None,
            fragment: None,
            vary: None,
            group: Vec::new(),
            swap: Vec::new(),
            fail: Vec::new(),
            with_machine: None,
            with_memory: None,
            with_swap: Vec::new(),
            phases: None,
            footprint: 256 << 20,
            peak_live: 256 << 20,
            seed: 1,
            runs: 3,
            base: (profiles.len() > 1).then(|| profiles[0].to_owned()),
            profiles: profiles.iter().map(|&name| name.to_owned()).collect(),
            knobs: Default::default(),
            failed: Default::default(),
        }
    }

    /// Three seeds of two profiles; `b` is a tenth faster.
    pub(crate) fn three_seeds() -> Vec<RunRecord> {
        (1..=3)
            .flat_map(|seed| {
                let nanos = 1_000_000_000 + seed * 1_000_000;
                [
                    run("a", seed, nanos, &[(Stat::Pgfault, 100), (Stat::Pgmajfault, 40)]),
                    run("b", seed, nanos / 10 * 9, &[(Stat::Pgfault, 100), (Stat::PgscanDirect, 5)]),
                ]
            })
            .collect()
    }

    fn row<'a>(summary: &'a Summary, metric: &str, profile: &str) -> &'a SummaryRow {
        summary
            .rows
            .iter()
            .find(|row| row.metric == metric && row.profile == profile)
            .expect("the row is there")
    }

    #[test]
    fn positive_is_better_in_both_directions() {
        let mut runs = three_seeds();
        for run in runs.iter_mut().filter(|run| run.profile == "b") {
            run.metrics[2].value = 6.0;
        }
        let summary = Summary::of(setup(&["a", "b"]), &runs, 0.0, true);
        let time = row(&summary, "run_time", "b");
        assert!((time.change_pct.unwrap() - 10.0).abs() < 1e-6 && time.diff.unwrap() < 0.0);
        let [low, high] = time.change_ci_pct.unwrap();
        assert!(low <= 10.0 + 1e-6 && high >= 10.0 - 1e-6 && low < high + 1e-12 && time.significant);
        assert!((row(&summary, "throughput", "b").change_pct.unwrap() - 20.0).abs() < 1e-9);
        assert_eq!(row(&summary, "pgfault_minor", "b").change_pct.map(f64::round), Some(-67.0));
    }

    #[test]
    fn the_base_has_no_change_and_one_run_no_interval() {
        let runs: Vec<RunRecord> = three_seeds().into_iter().filter(|run| run.seed == 1).collect();
        let summary = Summary::of(setup(&["a", "b"]), &runs, 0.0, false);
        assert_eq!(summary.setup.runs, 1);
        let base = row(&summary, "run_time", "a");
        assert_eq!((base.change_pct, base.diff, base.ci), (None, None, None));
        let other = row(&summary, "run_time", "b");
        assert!(other.change_pct.is_some() && other.change_ci_pct.is_none() && other.ci.is_none());
        assert_eq!(row(&summary, "pgscan_direct", "b").change_pct, None, "5 against 0 is no percentage");
        assert_eq!(row(&summary, "pgscan_direct", "b").diff, Some(5.0));
    }

    #[test]
    fn comparison_stops_once_the_intervals_of_the_main_metrics_are_narrow() {
        let seen =
            |most, profiles: &[&str]| looks(&Setup { runs: most, ..setup(profiles) }).collect::<Vec<_>>();
        assert_eq!(seen(20, &["a", "b"]), [10, 15, 20]);
        assert_eq!((seen(3, &["a", "b"]), seen(20, &["a"])), (vec![3], vec![20]));
        // `b` takes a tenth less with every seed; the luck of the seed decides how exactly.
        let stopped = |runs: u64, luck: u64| {
            let of = |seed: u64| {
                let other = 900_000_000 + seed % 2 * luck;
                [run("a", seed, 1_000_000_000, &[]), run("b", seed, other, &[])]
            };
            let runs: Vec<RunRecord> = (1..=runs).flat_map(of).collect();
            Summary::of(Setup { runs: 20, ..setup(&["a", "b"]) }, &runs, 0.0, false).stopped_by.unwrap()
        };
        assert_eq!(stopped(10, 1_000_000), StoppedBy::Interval);
        assert_eq!(stopped(9, 0), StoppedBy::Interrupt, "nine runs are too few");
        assert_eq!([10, 20].map(|runs| stopped(runs, 400_000_000)), [StoppedBy::Interrupt, StoppedBy::Runs]);
        // Few major faults in a base that has none in most runs, or in none, have no percentage.
        let with_faults = |faults: [[i64; 2]; 5]| {
            let faults = [faults; 2].into_iter().flatten();
            let of = |(seed, faults): (u64, [i64; 2])| {
                ["a", "b"]
                    .into_iter()
                    .zip(faults)
                    .map(move |(name, faults)| run(name, seed, 1_000_000_000, &[(Stat::Pgmajfault, faults)]))
            };
            let runs: Vec<RunRecord> = (1..).zip(faults).flat_map(of).collect();
            Summary::of(Setup { runs: 20, ..setup(&["a", "b"]) }, &runs, 0.0, false).stopped_by.unwrap()
        };
        assert_eq!(with_faults([[0, 0], [0, 0], [9, 2], [0, 0], [0, 7]]), StoppedBy::Interrupt);
        assert_eq!(with_faults([[0, 0], [0, 5], [0, 0], [0, 0], [0, 9]]), StoppedBy::Interrupt);
        assert_eq!(with_faults([[0, 3]; 5]), StoppedBy::Interval);
    }

    #[test]
    fn seeds_that_are_not_complete_are_left_out() {
        let mut runs = three_seeds();
        runs.pop();
        runs.reverse();
        let summary = Summary::of(setup(&["a", "b"]), &runs, 0.0, false);
        assert_eq!((summary.setup.runs, summary.accesses), (2, 4000));
        assert_eq!(summary.work["a"], WorkDone { accesses: 2000, progress: 20, tasks: 4 });
        assert_eq!(summary.oracle.checked, 16);
    }

    #[test]
    fn different_work_is_noticed_seed_by_seed() {
        let mut runs = three_seeds();
        assert!(Summary::of(setup(&["a", "b"]), &runs, 0.0, false).same_work);
        // The sums agree, the pairs do not.
        runs[1].work.progress += 1;
        runs[3].work.progress -= 1;
        assert!(!Summary::of(setup(&["a", "b"]), &runs, 0.0, false).same_work);
    }

    #[test]
    fn the_keys_of_the_promise_are_there() {
        let summary = Summary::of(setup(&["a", "b"]), &three_seeds(), 1.5, false);
        let json = serde_json::to_value(&summary).unwrap();
        for key in [
            "schema",
            "version",
            "commit",
            "machine",
            "program",
            "seed",
            "runs",
            "profiles",
            "rows",
            "work",
            "costs",
            "devices",
            "oracle",
            "host_seconds",
            "accesses",
        ] {
            assert!(!json[key].is_null(), "{key}");
        }
        for row in json["rows"].as_array().unwrap() {
            let row = row.as_object().unwrap();
            for key in ["metric", "profile", "value", "ci", "change_pct", "change_ci_pct", "better", "unit"] {
                assert!(row.contains_key(key), "{key}");
            }
            assert!(["lower", "higher"].contains(&row["better"].as_str().unwrap()));
        }
        assert!(json["oracle"]["checked"].is_u64() && json["oracle"]["violations"].is_u64());
        assert!(json["work"]["a"]["accesses"].is_u64());
        assert_eq!(json["profiles"], serde_json::json!(["a", "b"]));
    }
}

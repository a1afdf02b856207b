//! The result of a reproduction.

use super::gain::{self, GainOutcome};
use super::{Case, Count, Load, Published, Reproduction};
use crate::engine::Fragmentation;
use crate::record::{RunRecord, WorkDone};
use crate::statistics::{self, CONFIDENCE, Interval, mean};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Least change of a ratio that has a direction: what its three digits show. In runs that hardly differ an interval
/// tells the last bits of a clock apart.
const LEAST_CHANGE: f64 = 0.0005;

/// The result of a reproduction; keys as in docs/json.md.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Its name.
    pub reproduction: String,
    /// Where the figures are published.
    pub source: String,
    /// Share of full size.
    pub scale: f64,
    /// The first seed.
    pub seed: u64,
    /// Seeds for each setting.
    pub runs: u32,
    /// Knobs that differ from their defaults under all profiles.
    pub knobs: BTreeMap<String, u64>,
    /// The sides, then others.
    pub profiles: Vec<String>,
    /// What the publication calls the sides.
    pub published_sides: Vec<String>,
    /// Probability of intervals.
    pub confidence: f64,
    /// Setting by setting; those of which no seed is finished are left out.
    pub settings: Vec<SettingOutcome>,
    /// Whether all runs are finished.
    pub complete: bool,
    /// Notes for readers of the numbers.
    pub notes: Vec<String>,
    /// Seconds on this computer.
    pub host_seconds: f64,
    /// Simulated seconds for each second of a run on this computer, including runs that were done before.
    pub speed: f64,
    /// The counts that are shown with the figures.
    #[serde(skip)]
    counted: &'static [Count],
}

/// The result on one machine.
#[derive(Debug, Serialize)]
pub struct SettingOutcome {
    /// For people.
    pub title: String,
    /// The preset.
    pub machine: String,
    /// As `pagefold run` takes it.
    pub program: String,
    /// Bytes.
    pub memory: u64,
    /// The state of memory at the start; left out if it is the machine's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment: Option<String>,
    /// Bytes that the program touches.
    pub footprint: u64,
    /// Seeds that are finished under all profiles.
    pub finished: u32,
    /// By profile: simulated seconds of a run, at this scale.
    pub run_seconds: BTreeMap<String, f64>,
    /// Published rows and the simulated ones.
    pub rows: Vec<Row>,
    /// Published gains and the simulated ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gains: Vec<GainOutcome>,
    /// Counts by name and profile, at this scale.
    pub counts: BTreeMap<String, BTreeMap<String, f64>>,
    /// Whether all profiles did the same work with every seed; `None` if the work is the result.
    pub same_work: Option<bool>,
}

/// The published values of all sides and the simulated ones.
#[derive(Debug, Serialize)]
pub struct Row {
    /// As published.
    pub name: String,
    /// The unit of the values: `s`, `loops`, `% of CPU time`.
    pub unit: String,
    /// Whether the simulation is judged by it.
    pub judged: bool,
    /// As published, side by side; the last sides may have none.
    pub published: Vec<f64>,
    /// Simulated values by profile; times and loops are divided by the scale.
    pub values: BTreeMap<String, f64>,
    /// The changes of all profiles but the first.
    pub changes: Vec<Change>,
}

/// A profile against the first.
#[derive(Debug, Serialize)]
pub struct Change {
    /// The profile.
    pub profile: String,
    /// Its value divided by that of the first side, as published; `None` if it was not published.
    pub published_ratio: Option<f64>,
    /// The same, simulated.
    pub ratio: Option<f64>,
    /// Its interval.
    pub ratio_ci: Option<Interval>,
    /// The simulated ratio against the published one, in per cent of that.
    pub miss_pct: Option<f64>,
}

impl Outcome {
    /// An outcome without settings.
    pub fn new(of: &Reproduction, scale: f64, seed: u64, runs: u32) -> Outcome {
        Outcome {
            reproduction: of.name.to_owned(),
            source: of.source.to_owned(),
            scale,
            seed,
            runs,
            knobs: of.knobs.iter().map(|(knob, value)| (knob.info().name.to_owned(), *value)).collect(),
            profiles: of.profiles().into_iter().map(str::to_owned).collect(),
            published_sides: of.sides.iter().map(|side| side.published.to_owned()).collect(),
            confidence: CONFIDENCE,
            settings: Vec::new(),
            complete: false,
            notes: of.notes.iter().map(|&note| note.to_owned()).collect(),
            host_seconds: 0.0,
            speed: 0.0,
            counted: of.counts,
        }
    }

    /// Add the result of one setting. Seeds that some profile has not finished are left out.
    pub fn add(&mut self, case: &Case, runs: &[RunRecord]) {
        let finished = |seed: &u64| {
            self.profiles.iter().all(|name| runs.iter().any(|run| run.profile == *name && run.seed == *seed))
        };
        let seeds: BTreeSet<u64> = runs.iter().map(|run| run.seed).filter(finished).collect();
        if seeds.is_empty() {
            return;
        }
        let of_profile = |name: &str| -> Vec<&RunRecord> {
            let mut own: Vec<_> =
                runs.iter().filter(|run| run.profile == name && seeds.contains(&run.seed)).collect();
            own.sort_by_key(|run| run.seed);
            own
        };
        let by_profile = |value: &dyn Fn(&RunRecord) -> f64| -> BTreeMap<String, f64> {
            let of = |name: &String| mean(&of_profile(name).into_iter().map(value).collect::<Vec<_>>());
            self.profiles.iter().map(|name| (name.clone(), of(name))).collect()
        };
        let counted = |count: &Count| (count.name.to_owned(), by_profile(&|run: &RunRecord| count.of(run)));
        let same = |seed: &u64| {
            let work: Vec<WorkDone> =
                runs.iter().filter(|run| run.seed == *seed).map(|run| run.work).collect();
            work.windows(2).all(|pair| pair[0] == pair[1])
        };
        let setting = SettingOutcome {
            title: case.setting.title.to_owned(),
            machine: case.setting.machine.to_owned(),
            program: case.name.clone(),
            memory: case.memory,
            fragment: case.fragment.as_ref().map(Fragmentation::to_string),
            footprint: case.program.footprint(),
            finished: seeds.len() as u32,
            run_seconds: by_profile(&|run: &RunRecord| run.nanos as f64 / 1e9),
            rows: case.setting.published.iter().map(|figures| self.row(figures, &of_profile)).collect(),
            gains: gain::outcomes(case.setting, &self.profiles, &of_profile),
            counts: self.counted.iter().map(counted).collect(),
            same_work: (!matches!(case.setting.load, Load::Timed { .. })).then(|| seeds.iter().all(same)),
        };
        self.settings.push(setting);
    }

    fn row<'a>(&self, published: &Published, runs: &dyn Fn(&str) -> Vec<&'a RunRecord>) -> Row {
        let size = if published.measure.scales() { self.scale } else { 1.0 };
        let values = |name: &String| -> Vec<f64> {
            runs(name).into_iter().map(|run| published.measure.of(run) / size).collect()
        };
        let (first, told) = (values(&self.profiles[0]), published.figures.values());
        let change = |(i, name): (usize, &String)| {
            let change = statistics::Change::of(&first, &values(name));
            let published_ratio = told.get(i).map(|value| value / told[0]);
            let against = |(ratio, published): (f64, f64)| (ratio / published - 1.0) * 100.0;
            Change {
                profile: name.clone(),
                published_ratio,
                ratio: change.ratio,
                ratio_ci: change.ratio_interval,
                miss_pct: change.ratio.zip(published_ratio).map(against),
            }
        };
        Row {
            name: published.name.to_owned(),
            unit: published.measure.unit().to_owned(),
            judged: published.judged,
            values: self.profiles.iter().map(|name| (name.clone(), mean(&values(name)))).collect(),
            changes: self.profiles.iter().enumerate().skip(1).map(change).collect(),
            published: told,
        }
    }
}

impl Count {
    /// The count in a run.
    fn of(&self, run: &RunRecord) -> f64 {
        let sum = |names: &[&str]| names.iter().map(|name| count(run, name)).sum::<f64>();
        match sum(self.per) {
            _ if self.per.is_empty() => sum(self.of),
            0.0 => 0.0,
            all => sum(self.of) * 100.0 / all,
        }
    }
}

/// A counter or a metric of the machine, in seconds if it is a time.
fn count(run: &RunRecord, name: &str) -> f64 {
    match run.metrics.iter().find(|metric| metric.name == name) {
        Some(metric) if metric.unit == "ns" => metric.value / 1e9,
        Some(metric) => metric.value,
        None => run.counters.get(name).map_or(0.0, |&value| value as f64),
    }
}

impl Change {
    /// Whether both ratios are on the same side of 1; `None` if the simulated one does not differ from 1 in three
    /// digits, or none is published.
    pub fn agrees(&self) -> Option<bool> {
        let (ratio, published) = (self.ratio?, self.published_ratio?);
        let told = self.ratio_ci.is_none_or(|[low, high]| low > 1.0 || high < 1.0);
        let told = told && (ratio - 1.0).abs() >= LEAST_CHANGE;
        told.then_some((ratio > 1.0) == (published > 1.0))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::metrics::tests::{measured, run};
    use crate::record::Better;
    use crate::reproduce::{ALL, Measure};

    /// A run with these seconds of user, system and elapsed time.
    fn timed(profile: &str, seed: u64, times: [f64; 3]) -> RunRecord {
        let mut record = run(profile, seed, (times[2] * 1e9) as u64, &[]);
        for (name, value) in [("cpu_user", times[0]), ("cpu_system", times[1]), ("ipis_received", 5e-9)] {
            record.metrics.push(measured(name, value * 1e9, "", Better::Lower));
        }
        record
    }

    /// The first setting with two seeds, and a third that only one profile has finished.
    pub(in crate::reproduce) fn outcome() -> Outcome {
        let one = &ALL[0];
        let mut outcome = Outcome::new(one, 0.5, 1, 3);
        let case = Case::new(&one.settings[0], 0.5).unwrap();
        let mut runs = Vec::new();
        for (seed, noise) in [(1, 0.0), (2, 0.01)] {
            runs.push(timed("classic", seed, [10.0 + noise, 20.0, 4.0]));
            runs.push(timed("list", seed, [11.0, 19.0, 4.0]));
            runs.push(timed("eager", seed, [10.0, 40.0, 8.0]));
        }
        runs.push(timed("classic", 3, [99.0; 3]));
        outcome.add(&case, &runs);
        outcome
    }

    #[test]
    fn ratios_are_to_the_first_side_and_times_are_scaled_up() {
        let outcome = outcome();
        let setting = &outcome.settings[0];
        assert_eq!((setting.finished, setting.memory, setting.same_work), (2, 4 << 30, Some(true)));
        let user = &setting.rows[0];
        let list = &user.changes[0];
        assert!((list.ratio.unwrap() - 11.0 / 10.005).abs() < 1e-9);
        assert!((user.values["eager"] - 20.0).abs() < 1e-9);
        assert!((list.published_ratio.unwrap() - 60.70 / 58.02).abs() < 1e-12);
        assert!((list.miss_pct.unwrap() - (11.0 / 10.005 / (60.70 / 58.02) - 1.0) * 100.0).abs() < 1e-9);
        let agree: Vec<_> = setting.rows.iter().map(|row| row.changes[0].agrees()).collect();
        assert_eq!(agree, [Some(true), Some(false), None, None]);
        let eager = &setting.rows[1].changes[1];
        assert_eq!((eager.published_ratio, eager.agrees(), eager.ratio), (None, None, Some(2.0)));
        assert_eq!(setting.counts["ipis_received"]["list"], 5.0);
    }

    #[test]
    fn a_change_that_three_digits_do_not_show_has_no_direction() {
        let change = |ratio: f64| Change {
            profile: "list".into(),
            published_ratio: Some(1.05),
            ratio: Some(ratio),
            ratio_ci: Some([ratio - 1e-6, ratio + 1e-6]),
            miss_pct: None,
        };
        let agree = [0.9994, 0.999_995, 1.0, 1.0006].map(|ratio| change(ratio).agrees());
        assert_eq!(agree, [Some(false), None, None, Some(true)]);
    }

    #[test]
    fn setting_without_a_finished_seed_is_left_out() {
        let mut outcome = Outcome::new(&ALL[0], 0.5, 1, 3);
        outcome.add(&Case::new(&ALL[0].settings[0], 0.5).unwrap(), &[timed("classic", 1, [1.0; 3])]);
        assert!(outcome.settings.is_empty());
    }

    #[test]
    fn system_time_excludes_daemons() {
        let mut record = timed("classic", 1, [1.0, 2.0, 3.0]);
        for (name, value) in [("cpu_kswapd", 9e9), ("cpu_interrupt", 5e8)] {
            record.metrics.push(measured(name, value, "ns", Better::Lower));
        }
        let times = [Measure::User, Measure::System, Measure::Elapsed].map(|measure| measure.of(&record));
        assert_eq!(times, [1.0, 2.5, 3.0]);
    }
}

//! How much memory a program needs: the smallest `memory.high` of its control group at which it is at most so much
//! slower, and what a controller of the group's pressure arrives at.
//!
//! ```text
//! search   which sizes to measure
//! ```

mod search;

pub use search::{Bracket, Measured, STEPS, Slowdown};

use super::curve::Value;
use super::plan::{Sweep, What};
use super::store::{Done, Finished, Key};
use super::tune::apply::set_limit;
use crate::document::Document;
use crate::engine::{GroupSpec, Senpai};
use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::human;
use crate::record::RunRecord;
use crate::statistics::{CONFIDENCE, Change, interval, mean};
use mm::stat::Stat;
use mm::units::PAGE_SIZE;
use serde::Serialize;
use std::collections::BTreeMap;

/// Looks of the controller at the group in a run, if no interval is given.
const LOOKS: u64 = 400;
/// How many times as long as its target the controller's interval is, if no target is given: as in senpai.
const INTERVALS: u64 = 600;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The program and its machine, without groups.
    pub of: What,
    /// The group that the program runs in.
    pub group: String,
    /// Slow-downs that are allowed, in per cent.
    pub percents: Vec<f64>,
    /// The first seed, and how many.
    pub seeds: (u64, u32),
    /// Settings of the controller, as written.
    pub senpai: String,
}

/// The runs without a limit: what slow-downs are measured against.
#[derive(Clone, Debug, PartialEq)]
pub struct Base {
    /// Seconds of each run.
    run_time: Vec<f64>,
    /// The most bytes that the group has, over the runs.
    peak: u64,
}

impl Question {
    /// The sweep of one run for each of these `memory.high`, in bytes; `None`: no limit. The last one may have the
    /// controller.
    pub fn sweep(&self, highs: &[Option<u64>], controller: Option<&Senpai>) -> Sweep {
        let mut whats: Vec<What> = highs.iter().map(|&high| self.with(high)).collect();
        whats.extend(controller.map(|senpai| What { senpai: Some(senpai.to_string()), ..self.with(None) }));
        let names = (0..whats.len()).map(|at| at.to_string()).collect();
        Sweep::product([("run", names)], self.seeds, &["run_time"], |[at]| whats[at].clone())
    }

    fn with(&self, high: Option<u64>) -> What {
        let group = GroupSpec { name: self.group.clone(), high, ..GroupSpec::default() };
        What { group: vec![group.to_string()], ..self.of.clone() }
    }

    /// The runs without a limit, once all are done. An error says why one did not come to its end.
    pub fn base(&self, done: &BTreeMap<Key, Done>) -> Result<Base> {
        let sweep = self.sweep(&[None], None);
        let finished = Finished::of(&sweep, done);
        if let Some(why) = finished.missing(0) {
            return Err(Error::Input(format!("the program does not come to its end without a limit: {why}")));
        }
        let runs = records(&finished, 0);
        let peak = runs.iter().map(|run| of_group(run, &self.group, "memory.peak")).max();
        Ok(Base { run_time: run_times(&finished, 0), peak: peak.unwrap_or(0).max(PAGE_SIZE) })
    }

    /// Refuse settings of the controller that it does not have.
    pub fn check(&self) -> Result<()> {
        format!("{}:{}", self.group, self.senpai).parse::<Senpai>().map(drop).map_err(bad_controller)
    }

    /// The controller for runs that take as long as those without a limit.
    pub fn controller(&self, base: &Base) -> Result<Senpai> {
        let micros = (mean(&base.run_time) * 1e6) as u64;
        let interval = (micros / LOOKS).max(INTERVALS);
        let text = |interval: u64| {
            let target = (interval / INTERVALS).max(1);
            format!("{}:interval={interval}us,pressure={target}us,{}", self.group, self.senpai)
        };
        // Settings that are given come later, so they hold; the target follows an interval that is given.
        let given: Senpai = text(interval).parse().map_err(bad_controller)?;
        text(given.interval_us).parse().map_err(bad_controller)
    }

    /// Simulated nanoseconds after which a run is given up: alone, it makes the mean slower than the largest slow-down,
    /// unless others are faster than without a limit.
    pub fn time_limit(&self, base: &Base) -> u64 {
        let longest = base.run_time.iter().copied().fold(0.0, f64::max);
        let allowed = self.percents.iter().copied().fold(0.0, f64::max) / 100.0;
        (longest * (1.5 + allowed * f64::from(self.seeds.1)) * 1e9) as u64
    }

    /// What sizes, in steps, have made of the program.
    pub fn learn(&self, measured: &mut Measured, base: &Base, sizes: &[u64], done: &BTreeMap<Key, Done>) {
        let sweep = self.sweep(&base.highs(sizes), None);
        let finished = Finished::of(&sweep, done);
        for (point, &size) in sweep.points.iter().zip(sizes) {
            let ended = finished.missing(point.what).is_none();
            measured.learn(size, ended.then(|| base.slowdown(&run_times(&finished, point.what))).flatten());
        }
    }

    /// What the controller arrived at, once its runs are done.
    fn controlled(&self, base: &Base, senpai: &Senpai, done: &BTreeMap<Key, Done>) -> Option<Controlled> {
        let sweep = self.sweep(&[], Some(senpai));
        let finished = Finished::of(&sweep, done);
        let slowdown = base.slowdown(&run_times(&finished, 0))?;
        let runs = records(&finished, 0);
        let of = |name: &str| mean(&runs.iter().map(|run| run.metric(name)).collect::<Vec<_>>());
        let current = of("senpai_current");
        Some(Controlled {
            senpai: senpai.to_string(),
            current,
            share: current / base.peak as f64,
            slowdown,
            looks: of("senpai_looks"),
            above_target: of("senpai_above_target"),
            reclaimed: of("senpai_reclaimed"),
        })
    }

    /// The answer.
    pub fn answer(
        &self,
        base: &Base,
        measured: &Measured,
        (senpai, done): (&Senpai, &BTreeMap<Key, Done>),
        host_seconds: f64,
    ) -> Need {
        let size = |size: u64| Size {
            high: base.high(size),
            share: base.high(size) as f64 / base.peak as f64,
            slowdown: measured.slowdown(size),
        };
        let row = |&at_most: &f64| {
            let Bracket { little, enough } = measured.bracket(at_most);
            let which = GroupSpec::FILES.iter().position(|&file| file == HIGH).expect("groups have the file");
            Row {
                at_most,
                enough: size(enough),
                less: (little > 0).then(|| size(little)),
                found: enough - little == 1,
                memory_high: format!("{HIGH}={}", base.high(enough)),
                apply: set_limit(&self.group, which, base.high(enough)),
            }
        };
        let What { program, machine, memory, profile, .. } = self.of.clone();
        Need {
            program,
            machine,
            memory: memory.and_then(|bytes| bytes.parse().ok()),
            profile,
            group: self.group.clone(),
            seed: self.seeds.0,
            runs: self.seeds.1,
            confidence: CONFIDENCE,
            peak: base.peak,
            run_time: value(&base.run_time),
            rows: self.percents.iter().map(row).collect(),
            measured: measured.all().map(|(at, _)| size(at)).collect(),
            controller: self.controlled(base, senpai, done),
            host_seconds,
        }
    }
}

/// The file that is searched for.
const HIGH: &str = "memory.high";

impl Base {
    /// Bytes of a size in steps: whole pages.
    fn high(&self, size: u64) -> u64 {
        (self.peak / PAGE_SIZE * size).div_ceil(STEPS).max(1) * PAGE_SIZE
    }

    /// The same of several, as limits.
    pub fn highs(&self, sizes: &[u64]) -> Vec<Option<u64>> {
        sizes.iter().map(|&size| Some(self.high(size))).collect()
    }

    /// How much longer runs with the same seeds took. `None`: not all are done.
    fn slowdown(&self, run_time: &[f64]) -> Option<Slowdown> {
        if run_time.len() != self.run_time.len() {
            return None;
        }
        let change = Change::of(&self.run_time, run_time);
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        Some(Slowdown {
            percent: percent(change.ratio?),
            interval: change.ratio_interval.map(|ends| ends.map(percent)),
        })
    }
}

fn bad_controller(why: String) -> Error {
    Error::Input(format!("--senpai: {why}"))
}

fn value(runs: &[f64]) -> Value {
    Value { mean: mean(runs), interval: interval(runs), runs: runs.to_vec() }
}

fn run_times(finished: &Finished<'_>, what: usize) -> Vec<f64> {
    finished.values(what, "run_time").into_values().collect()
}

fn records<'a>(finished: &Finished<'a>, what: usize) -> Vec<&'a RunRecord> {
    finished.runs(what).iter().filter_map(|(_, done)| done.record()).collect()
}

/// Bytes of a file of a group.
fn of_group(run: &RunRecord, group: &str, file: &str) -> u64 {
    let found = run.groups.iter().find(|known| known.group == group);
    found.and_then(|group| group.usage.get(file)).copied().unwrap_or(0)
}

/// The outcome of a run. That the program ran out of memory, or thrashed until its time was over, is a result here.
pub fn outcome(run: Result<RunRecord>) -> Result<Done> {
    match run {
        Ok(record) if record.counter(Stat::OomKill) > 0.0 => Ok(Done::Missing("out of memory".to_owned())),
        Err(Error::TimeLimit(why)) => Ok(Done::Missing(why)),
        other => Done::of(other),
    }
}

/// A size of `memory.high`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Size {
    /// Bytes.
    pub high: u64,
    /// The same as a share of the most that the group has without a limit.
    pub share: f64,
    /// What it makes of the program; `null` if the program did not come to its end in time.
    pub slowdown: Option<Slowdown>,
}

impl Size {
    fn text(&self) -> String {
        format!("{}: {}", human::bytes(self.high as f64), said(self.slowdown))
    }
}

fn said(slowdown: Option<Slowdown>) -> String {
    match slowdown {
        None => "does not end in time".to_owned(),
        Some(Slowdown { percent, interval: None }) => format!("{percent:+.2} %"),
        Some(Slowdown { percent, interval: Some(ends) }) => {
            format!("{percent:+.2} % {}", human::percents(ends))
        }
    }
}

/// The answer for one slow-down.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The slow-down that is allowed, in per cent.
    pub at_most: f64,
    /// The smallest size that suffices.
    pub enough: Size,
    /// The largest one below it that was tried and does not; `null` if none was.
    pub less: Option<Size>,
    /// Whether no size between the two is left to try.
    pub found: bool,
    /// The line of the group's file.
    pub memory_high: String,
    /// What makes systemd set it.
    pub apply: String,
}

/// What the controller arrived at; numbers are means over the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Controlled {
    /// The controller, as `--senpai` of `pagefold run` takes it.
    pub senpai: String,
    /// Bytes that the group had in the second half of the run.
    pub current: f64,
    /// The same as a share of the most that the group has without a limit.
    pub share: f64,
    /// How much slower the program was under it.
    pub slowdown: Slowdown,
    /// Looks at the group.
    pub looks: f64,
    /// Those at which it asked for nothing, because the group's tasks had waited too long.
    pub above_target: f64,
    /// Bytes that were reclaimed for it.
    pub reclaimed: f64,
}

impl Controlled {
    fn text(&self) -> String {
        let Controlled { senpai, current, share, slowdown, looks, above_target, reclaimed } = self;
        format!(
            "The controller (--senpai {senpai}) left the group {} ({}) in the second half of the run; the slow-down was {}. At \
             {looks:.0} looks it had {} reclaimed; at {above_target:.0} of them tasks had waited longer than its target.",
            human::bytes(*current),
            human::share(*share),
            said(Some(*slowdown)),
            human::bytes(*reclaimed),
        )
    }
}

/// How much memory a program needs; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Need {
    /// As on the command line.
    pub program: String,
    /// A preset or a file.
    pub machine: String,
    /// Bytes of the machine's memory; `null`: all that it has.
    pub memory: Option<u64>,
    /// The profile.
    pub profile: String,
    /// The group that the program runs in.
    pub group: String,
    /// The first seed.
    pub seed: u64,
    /// Seeds for each size.
    pub runs: u32,
    /// Probability of intervals.
    pub confidence: f64,
    /// The most bytes that the group has without a limit (`memory.peak`).
    pub peak: u64,
    /// Seconds of the run without a limit.
    pub run_time: Value,
    /// The answers, in the order of the slow-downs.
    pub rows: Vec<Row>,
    /// All sizes that were measured, ascending.
    pub measured: Vec<Size>,
    /// What the controller arrived at; `null` if its runs are not done.
    pub controller: Option<Controlled>,
    /// Seconds on this computer.
    pub host_seconds: f64,
}

impl Need {
    fn table(&self, width: usize) -> String {
        let mut grid = Grid::new(["slow-down", "memory.high", "of the peak", "measured", "too little"]);
        for row in &self.rows {
            let Size { high, share, slowdown } = &row.enough;
            grid.row([
                format!("at most {} %", row.at_most),
                human::bytes(*high as f64),
                human::share(*share),
                said(*slowdown),
                row.less.as_ref().map_or_else(|| "-".to_owned(), Size::text),
            ]);
        }
        grid.render(|column| matches!(column, 0 | 4), width)
    }
}

impl Document for Need {
    const COMMAND: &'static str = "need";

    fn text(&self, width: usize) -> String {
        let Need { program, machine, profile, group, peak, run_time, runs, .. } = self;
        let memory =
            self.memory.map(|bytes| format!(" with {}", human::bytes(bytes as f64))).unwrap_or_default();
        let mut text = format!(
            "{program} on {machine}{memory}, {profile}, in group {group}: {} without a limit, in {} ({} for each size)\n\n{}\n",
            human::bytes(*peak as f64),
            human::number(run_time.mean, "s"),
            human::plural(u64::from(*runs), "run", "runs"),
            self.table(width)
        );
        if !self.rows.iter().all(|row| row.found) {
            text += "Interrupted: less may do, too.\n\n";
        }
        text.extend(self.controller.iter().map(|of| human::wrapped(&of.text(), 0, width) + "\n"));
        for row in &self.rows {
            text += &format!("{:<24}  {}\n", row.memory_high, row.apply);
        }
        text
    }
}

#[cfg(test)]
mod tests;

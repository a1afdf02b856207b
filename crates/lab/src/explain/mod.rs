//! `explain`: why a setting makes a program faster or slower.
//!
//! The simulator tells what each picosecond of each task of the program was (`TaskTime` in `machine-sim`): work of the
//! kernel by function, mapping and kind, user mode, interrupts, sleep by what it was for, waiting for a CPU. All of it
//! belongs to one *cause* ([`cause`]), so causes add up to the tasks' time.
//!
//! Tasks live side by side, so their time is more than the run time. It is divided by the number of tasks that were at
//! work at once in the base: their time, without what they waited for each other, by the run time. The causes of the
//! base then add up to its run time. Those of the other side add up to what it would have taken with as many tasks at
//! work at once; by how much it took more or less is *not explained*, and told. A program of one task has no such rest.

pub mod cause;
pub mod text;

use crate::document::Document;
use crate::human;
use crate::record::RunRecord;
use crate::statistics::{self, Change, Interval};
use crate::summary::{Setup, complete_pairs};
use crate::tree::Tree;
use cause::{Cause, OWN_SLEEP, Place, TOGETHER};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The result of `pagefold explain`; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// What was run.
    #[serde(flatten)]
    pub setup: Setup,
    /// Probability that an interval holds the true value.
    pub confidence: f64,
    /// The explanation, a sentence for each large cause; each names its row of `causes`, counted from 1.
    pub sentences: Vec<String>,
    /// The run time of both sides.
    pub run_time: Both,
    /// How many tasks were at work at once, on average: base, other side.
    pub at_work: [f64; 2],
    /// Causes, the largest difference first. Their times add up to the run time of the base.
    pub causes: Vec<CauseRow>,
    /// The part of the difference that no cause has.
    pub unexplained: Part,
    /// CPU time that no task of the program had, by owner. It is in no cause.
    pub daemons: BTreeMap<String, Both>,
    /// Whether both sides did the same work with each seed.
    pub same_work: bool,
    /// Seconds on this computer.
    pub host_seconds: f64,
    /// Simulated accesses of all runs.
    pub accesses: u64,
    /// Warnings for readers of the numbers, one sentence each.
    pub warnings: Vec<String>,
}

/// Nanoseconds on both sides, as means over the runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Both {
    /// Of the base.
    pub base: f64,
    /// Of the other side.
    pub with: f64,
    /// The mean difference.
    pub diff: f64,
    /// Its interval, from pairs of runs with the same seed; `null` with one run.
    pub diff_ci: Option<Interval>,
}

impl Both {
    fn of(base: &[f64], with: &[f64]) -> Both {
        let change = Change::of(base, with);
        Both {
            base: statistics::mean(base),
            with: statistics::mean(with),
            diff: change.difference,
            diff_ci: change.difference_interval,
        }
    }

    /// A part of the difference in per cent; `None` if there is no difference, or none that is sure.
    pub fn share(&self, part: f64) -> Option<f64> {
        (self.diff != 0.0 && !self.may_be_chance()).then(|| part * 100.0 / self.diff)
    }

    /// Whether the difference may be chance.
    pub fn may_be_chance(&self) -> bool {
        self.diff_ci.is_some_and(|[low, high]| low <= 0.0 && high >= 0.0)
    }
}

/// A part of the difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Nanoseconds.
    pub diff: f64,
    /// Its share of the difference of the run times in per cent; `null` if they are the same, or may be.
    pub share_pct: Option<f64>,
}

/// A cause on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CauseRow {
    /// Its kind.
    pub kind: String,
    /// Which; may be empty.
    pub what: String,
    /// Its part of the run times.
    #[serde(flatten)]
    pub time: Both,
    /// Its share of the difference of the run times in per cent; `null` if they are the same, or may be.
    pub share_pct: Option<f64>,
    /// How often it was there, as means over the runs: faults, calls, sleeps, or units of work.
    pub base_count: f64,
    /// The same of the other side.
    pub with_count: f64,
    /// Its difference in each phase of the program, in nanoseconds; empty if there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<f64>,
}

/// What a run has of a cause.
#[derive(Default)]
struct Sum {
    picos: f64,
    count: f64,
    /// Picoseconds by phase.
    phases: Vec<f64>,
}

impl Sum {
    fn add(&mut self, phase: usize, picos: f64) {
        self.picos += picos;
        if self.phases.len() <= phase {
            self.phases.resize(phase + 1, 0.0);
        }
        self.phases[phase] += picos;
    }

    /// Picoseconds in one of that many phases. What comes after the last belongs to it.
    fn in_phase(&self, phase: usize, of: usize) -> f64 {
        let end = if phase + 1 == of { self.phases.len() } else { phase + 1 };
        self.phases.get(phase..end).unwrap_or_default().iter().sum()
    }
}

/// A run by cause.
type Sums = BTreeMap<Cause, Sum>;

/// What is known of one run.
struct Run {
    causes: Sums,
    /// Run time in picoseconds, and tasks at work at once.
    picos: f64,
    at_work: f64,
}

impl Run {
    /// `shared`: the names of large mappings that all runs have.
    fn of(record: &RunRecord, shared: &BTreeSet<&str>) -> Run {
        let picos = record.nanos as f64 * 1000.0;
        let mut adding = Adding { shared, phase: 0, sums: Sums::new() };
        if let Some(time) = &record.task_time {
            adding.add_up(&time.tree, &mut Vec::new());
        }
        let mut causes = adding.sums;
        // What tasks wait for each other is what others of them do. A task that sleeps on its own account is at work
        // if it is the only one.
        causes
            .retain(|cause, _| cause.kind != TOGETHER && (record.work.tasks == 1 || cause.kind != OWN_SLEEP));
        let missed = record.task_time.as_ref().map_or(0, |time| time.missed_picos);
        let worked = causes.values().map(|sum| sum.picos).sum::<f64>() + missed as f64;
        let at_work = if record.work.tasks > 1 && worked > 0.0 { worked / picos } else { 1.0 };
        Run { causes, picos, at_work }
    }
}

/// How the name of a large mapping without a file begins.
const LARGE: &str = "[anonymous memory at ";
/// What it is called if not all runs have it: where tasks map at one time, addresses differ from run to run.
const ANY: &str = "[anonymous memory]";

/// The names of large mappings in a tree.
fn large_mappings<'a>(tree: &'a Tree, names: &mut BTreeSet<&'a str>) {
    if tree.name.starts_with(LARGE) {
        names.insert(&tree.name);
    }
    // Mappings are below the root, or below a phase.
    let inner = tree.children.iter().filter(|child| child.name.starts_with(LARGE) || is_phase(child));
    inner.for_each(|child| large_mappings(child, names));
}

/// Those that all runs have.
fn shared_mappings<'a>(records: impl Iterator<Item = &'a RunRecord>) -> BTreeSet<&'a str> {
    let of = |record: &'a RunRecord| {
        let mut names = BTreeSet::new();
        record.task_time.iter().for_each(|time| large_mappings(&time.tree, &mut names));
        names
    };
    records.map(of).reduce(|all, names| &all & &names).unwrap_or_default()
}

fn is_phase(tree: &Tree) -> bool {
    tree.name.starts_with(PHASE)
}

/// How the name of a phase begins; its number, from 2 on, follows.
const PHASE: &str = "phase:";

/// The causes of a run, while they are added up.
struct Adding<'a> {
    shared: &'a BTreeSet<&'a str>,
    phase: usize,
    sums: Sums,
}

impl Adding<'_> {
    fn add_up<'t>(&mut self, tree: &'t Tree, path: &mut Vec<&'t str>) {
        let place = |path: &[&str], work: &str| Place(path).cause(work);
        for share in &tree.work {
            let cause = place(path, &share.name);
            let counted = if cause.counts(&share.name) { share.count } else { 0 };
            let sum = self.sums.entry(cause).or_default();
            sum.add(self.phase, share.picos as f64);
            sum.count += counted as f64;
        }
        // Faults, calls and the like are counted where their function is entered.
        let here = place(path, "");
        if Place(path).names(&here) {
            self.sums.entry(here).or_default().count += tree.entered as f64;
        }
        for child in &tree.children {
            if let Some(number) = child.name.strip_prefix(PHASE) {
                self.phase = number.parse::<usize>().map_or(0, |number| number - 1);
                self.add_up(child, path);
                self.phase = 0;
                continue;
            }
            let folded = child.name.starts_with(LARGE) && !self.shared.contains(&child.name[..]);
            path.push(if folded { ANY } else { &child.name });
            self.add_up(child, path);
            path.pop();
        }
    }
}

impl Explanation {
    /// Explain the runs of the two profiles of `setup`, the base first.
    pub fn of(setup: Setup, records: &[RunRecord], host_seconds: f64) -> Explanation {
        let by_profile = complete_pairs(&setup.profiles, records);
        let sides = by_profile[0].iter().zip(&by_profile[1]);
        let pairs: Vec<[&RunRecord; 2]> = sides.map(|(&base, &with)| [base, with]).collect();
        let shared = shared_mappings(pairs.iter().flatten().copied());
        let runs: Vec<[Run; 2]> =
            pairs.iter().map(|pair| pair.map(|record| Run::of(record, &shared))).collect();
        let times = |side: usize| runs.iter().map(|pair| pair[side].picos / 1000.0).collect::<Vec<_>>();
        let run_time = Both::of(&times(0), &times(1));
        let phases = setup.phases.map_or(1, |phases| phases as usize);
        let causes = causes(&runs, phases, |diff| run_time.share(diff));
        let explained: f64 = causes.iter().map(|row| row.time.diff).sum();
        let diff = run_time.diff - explained;
        let unexplained = Part { diff, share_pct: run_time.share(diff) };
        let mean =
            |side: usize| statistics::mean(&runs.iter().map(|pair| pair[side].at_work).collect::<Vec<_>>());
        let warnings: BTreeSet<String> = records.iter().flat_map(|run| run.warnings.clone()).collect();
        let mut explanation = Explanation {
            confidence: statistics::CONFIDENCE,
            sentences: Vec::new(),
            at_work: [mean(0), mean(1)],
            daemons: daemons(&pairs),
            same_work: pairs.iter().all(|[base, with]| base.work == with.work),
            host_seconds,
            accesses: pairs.iter().flatten().map(|run| run.work.accesses).sum(),
            warnings: warnings.into_iter().collect(),
            run_time,
            causes,
            unexplained,
            setup: Setup { runs: pairs.len() as u32, ..setup },
        };
        explanation.sentences = text::sentences(&explanation);
        explanation
    }
}

/// What the runs of one side have of a cause, in nanoseconds: both sides by the tasks at work in the base (see above).
struct Side {
    times: Vec<f64>,
    /// Means.
    count: f64,
    phases: Vec<f64>,
}

impl Side {
    fn of(runs: &[[Run; 2]], side: usize, cause: &Cause, phases: usize) -> Side {
        let sum_of = |pair: &[Run; 2], of: &dyn Fn(&Sum) -> f64| pair[side].causes.get(cause).map_or(0.0, of);
        let counts: Vec<f64> = runs.iter().map(|pair| sum_of(pair, &|sum| sum.count)).collect();
        let times = |of: &dyn Fn(&Sum) -> f64| -> Vec<f64> {
            runs.iter().map(|pair| sum_of(pair, of) / 1000.0 / pair[0].at_work).collect()
        };
        let in_phase = |phase| statistics::mean(&times(&|sum| sum.in_phase(phase, phases)));
        Side {
            times: times(&|sum| sum.picos),
            count: statistics::mean(&counts),
            phases: (0..phases).map(in_phase).collect(),
        }
    }
}

/// The causes of all runs, the largest difference first; `share`: a difference's share of that of the run times.
fn causes(runs: &[[Run; 2]], phases: usize, share: impl Fn(f64) -> Option<f64>) -> Vec<CauseRow> {
    let names: BTreeSet<&Cause> = runs.iter().flatten().flat_map(|run| run.causes.keys()).collect();
    let row = |cause: &Cause| {
        let [base, with] = [0, 1].map(|side| Side::of(runs, side, cause, phases));
        let time = Both::of(&base.times, &with.times);
        let diffs = base.phases.iter().zip(&with.phases).map(|(base, with)| with - base);
        CauseRow {
            kind: cause.kind.to_owned(),
            what: cause.what.clone(),
            share_pct: share(time.diff),
            time,
            base_count: base.count,
            with_count: with.count,
            phases: if phases > 1 { diffs.collect() } else { Vec::new() },
        }
    };
    let mut rows: Vec<CauseRow> = names.into_iter().map(row).collect();
    rows.retain(|row| row.time.base != 0.0 || row.time.with != 0.0);
    rows.sort_by(|a, b| b.time.diff.abs().total_cmp(&a.time.diff.abs()));
    rows
}

/// CPU time besides the tasks', by owner.
fn daemons(pairs: &[[&RunRecord; 2]]) -> BTreeMap<String, Both> {
    let of = |run: &RunRecord, name: &str| {
        let roots = run.profile_tree.iter().flat_map(|tree| &tree.children);
        roots.filter(|root| root.name == name).map(|root| root.total_picos as f64 / 1000.0).sum()
    };
    // What is left of `program` without its tasks.
    let names = [
        ("kswapd", "kswapd"),
        ("flusher", "flusher"),
        ("interrupt", "interrupts"),
        ("program", "other daemons"),
    ];
    let both = |root: &str| {
        let all = |side: usize| pairs.iter().map(|pair| of(pair[side], root)).collect::<Vec<f64>>();
        Both::of(&all(0), &all(1))
    };
    names.into_iter().map(|(root, name)| (name.to_owned(), both(root))).collect()
}

impl CauseRow {
    /// The cause in words.
    fn name(&self) -> String {
        if self.what.is_empty() { self.kind.clone() } else { format!("{}: {}", self.kind, self.what) }
    }

    fn counts(&self) -> String {
        let [base, with] = [self.base_count, self.with_count].map(|count| human::number(count, ""));
        if base == with { base } else { format!("{base} -> {with}") }
    }
}

impl Document for Explanation {
    const COMMAND: &'static str = "explain";

    fn text(&self, width: usize) -> String {
        text::render(self, width)
    }
}

#[cfg(test)]
mod tests;

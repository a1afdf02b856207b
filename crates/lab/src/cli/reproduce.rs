//! `reproduce`: repeats a published comparison, or all of them.

use super::options::{Many, check_seeds, progress_bar, threads};
use super::output;
use super::resume::{Resumed, Unwritten};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::jobs::{Ended, Job, jobs};
use crate::kept::{self, Plan};
use crate::replay::{self, shell_line};
use crate::reproduce::{ALL, Case, Outcome, Overview, Reproduction, parse_scale};
use crate::rundir::Done;
use clap::Args;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments of `reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// The reproduction ('pagefold list reproductions'), or 'all': each at its own scale, and one table of all their
    /// figures
    #[arg(value_name = "NAME")]
    name: String,
    /// Share of the memory and files of the published measurement, or of its time, up to 1, like 1/16 [default: depends
    /// on the reproduction]
    #[arg(long, value_name = "SHARE", value_parser = parse_scale)]
    scale: Option<f64>,
    /// Runs of each profile on each machine, with seeds SEED, SEED+1, ... [default: depends on the reproduction, mostly
    /// 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Keep each run and the result in this directory; after an interrupt the same command continues
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seeds and output.
    #[command(flatten)]
    many: Many,
}

/// Which run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Key {
    /// The title of its setting.
    setting: String,
    /// The name of its profile.
    profile: String,
    /// Its seed.
    seed: u64,
}

/// A reproduction that is under way.
struct Session<'a> {
    args: &'a ReproduceArgs,
    of: &'static Reproduction,
    scale: f64,
    /// Seeds for each setting and profile.
    seeds: u32,
    runs: Resumed<Key, Done>,
    bar: ProgressBar,
}

/// `pagefold reproduce`.
pub(super) fn reproduce(args: &ReproduceArgs) -> Result<()> {
    if args.name == "all" {
        return reproduce_all(args);
    }
    let of = Reproduction::find(&args.name)?;
    let (outcome, runs) = one(args, of, args.out.as_deref())?;
    if outcome.complete || !outcome.settings.is_empty() {
        output::show(&outcome, args.many.running.json)?;
    }
    end(args, runs, !outcome.settings.is_empty())?;
    output::check_same_work(did_the_same_work(&outcome), "profiles")
}

/// `pagefold reproduce all`.
fn reproduce_all(args: &ReproduceArgs) -> Result<()> {
    if args.scale.is_some() {
        let why = "each reproduction has a scale of its own, so 'all' takes none";
        return Err(Error::Input(format!("--scale: {why}; name one reproduction, or leave it out")));
    }
    let (mut overview, mut runs, mut same) = (Overview::default(), [0; 2], true);
    for of in ALL {
        if !args.many.running.quiet {
            eprintln!("pagefold: {}", of.name);
        }
        let out = args.out.as_ref().map(|dir| dir.join(of.name));
        let (outcome, [done, all]) = one(args, of, out.as_deref())?;
        runs = [runs[0] + done, runs[1] + all];
        same &= did_the_same_work(&outcome);
        overview.complete = outcome.complete;
        overview.add(&outcome);
        if !outcome.complete {
            break;
        }
    }
    output::show(&overview, args.many.running.json)?;
    end(args, runs, !overview.figures.is_empty())?;
    output::check_same_work(same, "profiles")
}

fn did_the_same_work(outcome: &Outcome) -> bool {
    outcome.settings.iter().all(|setting| setting.same_work != Some(false))
}

/// Do the runs of a reproduction that are not done in `out`. Also return how many are done, of how many.
fn one(args: &ReproduceArgs, of: &'static Reproduction, out: Option<&Path>) -> Result<(Outcome, [usize; 2])> {
    let (scale, seeds) = (args.scale.unwrap_or(of.scale), args.runs.unwrap_or(of.runs));
    check_seeds(args.many.seed, seeds)?;
    let cases: Vec<Case> =
        of.settings.iter().map(|setting| Case::new(setting, scale)).collect::<Result<_>>()?;
    let text = format!("reproduction = \"{}\"\nscale = {scale}\n", of.name);
    let plan = Plan { noun: "reproduction", name: "reproduction.toml", text: &text };
    let runs = Resumed::open(out.map(|path| (path, plan)), Unwritten::End)?;
    interrupt::install()?;
    let all = cases.len() * of.profiles().len() * seeds as usize;
    let session = Session { args, of, scale, seeds, runs, bar: progress_bar(all, args.many.running.quiet) };
    let (outcome, done) = session.measure(&cases)?;
    out.map_or(Ok(()), |dir| kept::save(dir, &outcome))?;
    Ok((outcome, [done, all]))
}

/// An error if not all runs are done.
fn end(args: &ReproduceArgs, [done, all]: [usize; 2], shown: bool) -> Result<()> {
    if done == all {
        return Ok(());
    }
    let rest = match &args.out {
        Some(dir) => format!("they are kept in {}, and the same command continues", dir.display()),
        None if shown => "the result so far is above".to_owned(),
        None => "nothing is finished".to_owned(),
    };
    Err(Error::Interrupted(format!("interrupted after {done} of {all} runs; {rest}")))
}

/// Simulated seconds for each real second of a run.
fn speed(done: &[Done]) -> f64 {
    let real: f64 = done.iter().map(|done| done.host_seconds).sum();
    let simulated: f64 = done.iter().map(|done| done.record.nanos as f64 / 1e9).sum();
    if real > 0.0 { simulated / real } else { 0.0 }
}

impl Session<'_> {
    /// Do the runs of all settings that are not done. Also return how many runs are.
    fn measure(&self, cases: &[Case]) -> Result<(Outcome, usize)> {
        let many = &self.args.many;
        let mut outcome = Outcome::new(self.of, self.scale, many.seed, self.seeds);
        let start = Instant::now();
        let mut done = Vec::new();
        outcome.complete = true;
        for case in cases {
            let machine = case.setting.machine;
            self.bar.set_message(format!(" on {machine}"));
            if self.bar.is_hidden() && !many.running.quiet {
                eprintln!("pagefold: on {machine}: {} runs", self.of.profiles().len() * self.seeds as usize);
            }
            let (new, ended) = self.setting(case, done.len())?;
            outcome.add(case, &new.iter().map(|done| done.record.clone()).collect::<Vec<_>>());
            done.extend(new);
            outcome.complete = ended == Ended::Complete;
            if !outcome.complete {
                break;
            }
        }
        self.bar.finish_and_clear();
        outcome.host_seconds = many.host_seconds(start);
        outcome.speed = if many.no_host_time { 0.0 } else { speed(&done) };
        Ok((outcome, done.len()))
    }

    /// Do the runs of one setting that are not done; `before` runs of other settings are. Return all finished runs
    /// of this setting, in the order of jobs.
    fn setting(&self, case: &Case, before: usize) -> Result<(Vec<Done>, Ended)> {
        let cells = case.cells(self.of)?;
        let all = jobs(cells.len(), self.args.many.seed, self.seeds);
        let (title, names) = (case.setting.title.to_owned(), self.of.profiles());
        let key = move |job: Job| Key {
            setting: title.clone(),
            profile: names[job.cell].to_owned(),
            seed: job.seed,
        };
        let (name, scale) = (self.of.name, self.scale.to_string());
        let run = move |job: Job| {
            let (start, cell, seed) = (Instant::now(), &cells[job.cell], job.seed.to_string());
            let mut words = replay::first_words();
            let options = ["reproduce", name, "--scale", &scale, "--seed", &seed, "--runs", "1"];
            words.extend(options.map(str::to_owned));
            let record = cell.replayable(job.seed, shell_line(words))?;
            Ok(Some(Done { host_seconds: start.elapsed().as_secs_f64(), record }))
        };
        let threads = threads(self.args.many.running.jobs);
        let ended = self.runs.resume(&all, key.clone(), run, threads, (&self.bar, before))?;
        let mut done = self.runs.done();
        Ok((all.iter().filter_map(|&job| done.remove(&key(job))).collect(), ended))
    }
}

//! `reproduce`: do a published comparison again.

use super::args::ReproduceArgs;
use super::experiment::progress_bar;
use super::many::{check_seeds, threads};
use super::output;
use super::resume::{Resumed, Unwritten};
use crate::engine;
use crate::error::{Error, Result};
use crate::experiment::{Ended, Job, jobs};
use crate::kept::{self, Plan};
use crate::profile::Profile;
use crate::record::RunRecord;
use crate::reproduce::{Case, Outcome, Reproduction, render};
use crate::{interrupt, replay};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

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

/// A finished run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Done {
    /// Seconds that it took on this computer.
    host_seconds: f64,
    /// What it measured.
    record: RunRecord,
}

/// `pagefold reproduce`.
pub(super) fn reproduce(args: &ReproduceArgs) -> Result<()> {
    let what = Reproduction::find(&args.name)?;
    let scale = args.scale.unwrap_or(what.scale);
    let runs = args.runs.unwrap_or(what.runs);
    check_seeds(args.many.seed, runs)?;
    let profiles: Vec<Profile> =
        what.profiles().iter().map(|name| Profile::parse(name, what.knobs)).collect::<Result<_>>()?;
    let cases: Vec<Case> =
        what.settings.iter().map(|setting| Case::new(setting, scale)).collect::<Result<_>>()?;
    let text = format!("reproduction = \"{}\"\nscale = {scale}\n", what.name);
    let plan = Plan { noun: "reproduction", name: "reproduction.toml", text: &text };
    let all_runs = Resumed::open(args.out.as_deref().map(|path| (path, plan)), Unwritten::End)?;
    interrupt::install()?;
    let mut outcome = Outcome::new(what, scale, args.many.seed, runs);
    let all = cases.len() * profiles.len() * runs as usize;
    let bar = progress_bar(all, args.many.quiet);
    let start = Instant::now();
    let (mut done, mut ended) = (Vec::new(), Ended::Complete);
    for case in cases {
        bar.set_message(format!(" on {}", case.setting.machine));
        if bar.is_hidden() && !args.many.quiet {
            eprintln!("pagefold: on {}: {} runs", case.setting.machine, profiles.len() * runs as usize);
        }
        let case = Arc::new(case);
        let (new, how) = measure(what, &case, &profiles, (args, runs), &bar, (&all_runs, done.len()))?;
        outcome.add(&case, &new.iter().map(|done| done.record.clone()).collect::<Vec<_>>());
        done.extend(new);
        ended = how;
        if ended == Ended::Interrupted {
            break;
        }
    }
    bar.finish_and_clear();
    outcome.complete = ended == Ended::Complete;
    outcome.host_seconds = args.many.host_seconds(start);
    outcome.speed = if args.many.no_host_time { 0.0 } else { speed(&done) };
    let (text, json) = (render(&outcome), output::json(&outcome)?);
    if outcome.complete || !outcome.settings.is_empty() {
        output::print(if args.many.json { &json } else { &text })?;
    }
    if let Some(dir) = &args.out {
        kept::write(dir, "result.txt", text.as_bytes())?;
        kept::write(dir, "result.json", json.as_bytes())?;
    }
    if ended == Ended::Interrupted {
        return Err(interrupted(args, &outcome, (done.len(), all)));
    }
    match outcome.settings.iter().all(|setting| setting.same_work != Some(false)) {
        true => Ok(()),
        false => Err(Error::Failed(
            "the profiles did not do the same work, so their results cannot be compared".into(),
        )),
    }
}

fn interrupted(args: &ReproduceArgs, outcome: &Outcome, (done, all): (usize, usize)) -> Error {
    let rest = match &args.out {
        Some(dir) => format!("they are kept in {}, and the same command goes on", dir.display()),
        None if outcome.settings.is_empty() => "nothing is finished".to_owned(),
        None => "what they have shown is above".to_owned(),
    };
    Error::Interrupted(format!("interrupted after {done} of {all} runs; {rest}"))
}

/// Simulated seconds for each real one of a run's.
fn speed(done: &[Done]) -> f64 {
    let real: f64 = done.iter().map(|done| done.host_seconds).sum();
    let simulated: f64 = done.iter().map(|done| done.record.nanos as f64 / 1e9).sum();
    if real > 0.0 { simulated / real } else { 0.0 }
}

/// Do the runs of one setting that are not done; `before` of other settings have been. Returns those of all its jobs
/// that are, in the order of jobs.
fn measure(
    what: &'static Reproduction,
    case: &Arc<Case>,
    profiles: &[Profile],
    (args, runs): (&ReproduceArgs, u32),
    bar: &ProgressBar,
    (resumed, before): (&Resumed<Key, Done>, usize),
) -> Result<(Vec<Done>, Ended)> {
    let all = jobs(profiles.len(), args.many.seed, runs);
    let (title, names) = (case.setting.title, profiles.to_vec());
    let key = move |job: Job| Key {
        setting: title.to_owned(),
        profile: names[job.profile].name.clone(),
        seed: job.seed,
    };
    let (case, profiles) = (case.clone(), profiles.to_vec());
    let run = move |job: Job| {
        let start = Instant::now();
        let record = one_run(what, &case, &profiles, job)?;
        Ok(Done { host_seconds: start.elapsed().as_secs_f64(), record })
    };
    let ended = resumed.go_on(&all, key.clone(), run, threads(args.many.jobs), (bar, before))?;
    let mut done = resumed.done();
    Ok((all.iter().filter_map(|&job| done.remove(&key(job))).collect(), ended))
}

fn one_run(what: &Reproduction, case: &Case, profiles: &[Profile], job: Job) -> Result<RunRecord> {
    let profile = &profiles[job.profile];
    let (scale, seed) = (case.scale.to_string(), job.seed.to_string());
    let words = ["pagefold", "reproduce", what.name, "--scale", &scale, "--seed", &seed, "--runs", "1"];
    let command = replay::shell_line(words);
    let run = engine::Run {
        memory: Some(case.memory),
        fragment: case.fragment.as_ref(),
        knobs: &[case.setting.knobs, &profile.knobs].concat(),
        seed: job.seed,
        profile_tree: what.wants_profile(),
        moves: what.wants_moves(),
        placement: what.wants_placement(),
        ..engine::Run::new(&case.machine, &case.program)
    };
    run.replayable(&profile.name, command)
}

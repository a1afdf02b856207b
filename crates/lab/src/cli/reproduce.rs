//! `reproduce`: do a published comparison again.

use super::args::ReproduceArgs;
use super::experiment::progress_bar;
use super::many::{check_seeds, threads};
use super::output;
use crate::engine;
use crate::error::{Error, Result};
use crate::experiment::{Ended, Job, jobs, run as run_jobs};
use crate::profile::Profile;
use crate::record::RunRecord;
use crate::reproduce::{Case, Outcome, Reproduction, render};
use crate::{interrupt, replay};
use indicatif::ProgressBar;
use std::sync::Arc;
use std::time::Instant;

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
    interrupt::install()?;
    let mut outcome = Outcome::new(what, scale, args.many.seed, runs);
    let all = cases.len() * profiles.len() * runs as usize;
    let bar = progress_bar(all, args.many.quiet);
    let start = Instant::now();
    let (mut done, mut ended) = (0, Ended::Complete);
    for case in cases {
        bar.set_message(format!(" on {}", case.setting.machine));
        if bar.is_hidden() && !args.many.quiet {
            eprintln!("pagefold: on {}: {} runs", case.setting.machine, profiles.len() * runs as usize);
        }
        let case = Arc::new(case);
        let (records, how) = measure(what, &case, &profiles, (args, runs), &bar, done)?;
        outcome.add(&case, &records);
        done += records.len();
        ended = how;
        if ended == Ended::Interrupted {
            break;
        }
    }
    bar.finish_and_clear();
    outcome.complete = ended == Ended::Complete;
    outcome.host_seconds = args.many.host_seconds(start);
    if outcome.complete || !outcome.settings.is_empty() {
        output::print(&if args.many.json { output::json(&outcome)? } else { render(&outcome) })?;
    }
    if ended == Ended::Interrupted {
        let shown =
            if outcome.settings.is_empty() { "nothing is finished" } else { "what they have shown is above" };
        return Err(Error::Interrupted(format!("interrupted after {done} of {all} runs; {shown}")));
    }
    match outcome.settings.iter().all(|setting| setting.same_work != Some(false)) {
        true => Ok(()),
        false => Err(Error::Failed(
            "the profiles did not do the same work, so their results cannot be compared".into(),
        )),
    }
}

/// Do the runs of one setting; `before` have been done already.
fn measure(
    what: &'static Reproduction,
    case: &Arc<Case>,
    profiles: &[Profile],
    (args, runs): (&ReproduceArgs, u32),
    bar: &ProgressBar,
    before: usize,
) -> Result<(Vec<RunRecord>, Ended)> {
    let jobs = jobs(profiles.len(), args.many.seed, runs);
    let threads = threads(args.many.jobs);
    let finished = |records: &[RunRecord]| {
        bar.set_position((before + records.len()) as u64);
        Ok(())
    };
    let (case, profiles) = (case.clone(), profiles.to_vec());
    run_jobs(jobs, threads, move |job| one_run(what, &case, &profiles, job), interrupt::requested, finished)
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

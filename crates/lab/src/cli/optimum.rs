//! `optimum`: replacement policies beside the fewest refaults that there can be, over many programs and sizes of
//! memory.

use super::args::OptimumArgs;
use super::experiment::{profiles_of, progress_bar};
use super::many::threads;
use super::output;
use crate::engine::{self, Machine, Program};
use crate::error::{Error, Result};
use crate::experiment::{Ended, Job, run as run_jobs};
use crate::optimum::{self, Case, Counted, Table};
use crate::profile::Profile;
use crate::replay::RunLine;
use crate::size::Memory;
use crate::{human, interrupt};
use std::sync::Arc;
use std::time::Instant;

/// Sizes of memory if none are given.
const SHARES: [f64; 4] = [0.25, 0.5, 0.75, 0.9];

/// Built-in programs that say nothing of replacement policies: they are for finding faults, measure a given time, or
/// read what they never read again.
const NOT_COMPARED: [&str; 3] = ["chaos", "pageout-loop", "lru-file-mmap-read"];

/// What to run.
struct Plan {
    machine: Machine,
    machine_name: String,
    profiles: Vec<Profile>,
    cases: Vec<(Case, Arc<Program>)>,
    seed: u64,
}

/// `pagefold optimum`.
pub(super) fn optimum(args: &OptimumArgs) -> Result<()> {
    let plan = understand(args)?;
    interrupt::install()?;
    let start = Instant::now();
    let profiles: Vec<String> = plan.profiles.iter().map(|profile| profile.name.clone()).collect();
    let cases: Vec<Case> = plan.cases.iter().map(|(case, _)| case.clone()).collect();
    let jobs: Vec<Job> =
        (0..cases.len() * profiles.len()).map(|i| Job { profile: i, seed: args.many.seed }).collect();
    let (all, bar) = (jobs.len(), progress_bar(jobs.len(), args.many.quiet));
    let threads = threads(args.many.jobs);
    let finished = |runs: &[_]| {
        bar.set_position(runs.len() as u64);
        Ok(())
    };
    let (runs, ended) =
        run_jobs(jobs, threads, move |job| one_run(&plan, job), interrupt::requested, finished)?;
    bar.finish_and_clear();
    if ended == Ended::Interrupted {
        return Err(Error::Interrupted(format!(
            "interrupted after {} of {all} runs; nothing is kept",
            runs.len()
        )));
    }
    let host_seconds = args.many.host_seconds(start);
    let table = Table::of((&args.machine, args.many.seed), &profiles, &cases, &runs, host_seconds);
    output::print(&if args.many.json { output::json(&table)? } else { optimum::render(&table) })
}

fn understand(args: &OptimumArgs) -> Result<Plan> {
    let names: Vec<String> = match args.profiles.is_empty() {
        true => optimum::policies().map(str::to_owned).collect(),
        false => args.profiles.clone(),
    };
    let profiles = profiles_of(&names, &args.settings)?;
    let machine = Machine::find(&args.machine)?;
    let built_in = args.built_in.iter().flat_map(|size| {
        let names = engine::programs().into_iter().map(|(name, _)| name);
        let names = names.filter(|name| !NOT_COMPARED.contains(&name.as_str()));
        names.map(move |name| format!("{name}:{size}"))
    });
    let names: Vec<String> = args.programs.iter().cloned().chain(built_in).collect();
    if names.is_empty() {
        return Err(Error::input(
            "no program is given; name some, or take all built-in ones with --built-in SIZE",
        ));
    }
    let memory = match args.memory.is_empty() {
        true => SHARES.map(Memory::Share).to_vec(),
        false => args.memory.clone(),
    };
    let mut cases = Vec::new();
    for name in names {
        let program = Arc::new(Program::find(&name)?);
        let footprint = program.footprint();
        for &memory in &memory {
            let bytes = memory.resolve(program.peak_live());
            let size = match memory {
                Memory::Share(share) => format!("{:.0}%", share * 100.0),
                Memory::Bytes(bytes) => human::bytes(bytes as f64),
            };
            cases.push((Case { program: name.clone(), footprint, memory: bytes, size }, program.clone()));
        }
    }
    let machine_name = args.machine.clone();
    Ok(Plan { machine, machine_name, profiles, cases, seed: args.many.seed })
}

/// One run, or why it cannot be done: some programs do not run in some memories.
fn one_run(plan: &Plan, job: Job) -> Result<Counted> {
    let (case, program) = &plan.cases[job.profile / plan.profiles.len()];
    let profile = &plan.profiles[job.profile % plan.profiles.len()];
    if let Err(error) = plan.machine.check_memory(case.memory) {
        return Ok(Err(error.to_string()));
    }
    let (name, machine, seed) = (&case.program, &plan.machine_name, plan.seed);
    let line = RunLine { program: name, machine, memory: Some(case.memory), profile, seed };
    let run = engine::Run {
        memory: Some(case.memory),
        knobs: &profile.knobs,
        seed: plan.seed,
        optimum: true,
        ..engine::Run::new(&plan.machine, program)
    };
    match run.replayable(&profile.name, line.with(["--optimum".to_owned()])) {
        Ok(record) => Ok(Ok(record.optimum.expect("it was asked for"))),
        Err(Error::Input(why)) => Ok(Err(why)),
        Err(other) => Err(other),
    }
}

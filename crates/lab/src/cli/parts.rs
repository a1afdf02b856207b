//! `parts`: what each part of MGLRU is worth.

use super::args::PartsArgs;
use super::experiment::progress_bar;
use super::many::{check_seeds, threads};
use super::output;
use crate::engine::{self, Machine, Program};
use crate::error::{Error, Result};
use crate::experiment::{Ended, Job, jobs, run as run_jobs};
use crate::interrupt;
use crate::parts::{Outcome, PROGRAMS, ProgramRow, profiles};
use crate::profile::Profile;
use crate::record::RunRecord;
use crate::replay::RunLine;
use crate::size::Memory;
use std::sync::Arc;
use std::time::Instant;

/// A program on the machine, ready to run.
struct Case {
    name: String,
    machine: String,
    spec: Machine,
    program: Program,
    memory: u64,
    profiles: Vec<Profile>,
}

/// `pagefold parts`.
pub(super) fn parts(args: &PartsArgs) -> Result<()> {
    check_seeds(args.many.seed, args.runs)?;
    let names = match &args.programs[..] {
        [] => PROGRAMS.iter().map(|name| name.replace("SIZE", &args.size)).collect(),
        given => given.to_vec(),
    };
    let cases = names.into_iter().map(|name| Case::new(name, args)).collect::<Result<Vec<_>>>()?;
    interrupt::install()?;
    let mut outcome =
        Outcome::new(&args.machine, args.memory.clone(), args.many.seed, args.runs, &args.metric);
    let each = profiles().len() * args.runs as usize;
    let bar = progress_bar(cases.len() * each, args.many.quiet);
    let start = Instant::now();
    for case in cases {
        bar.set_message(format!(" of {}", case.name));
        let name = case.name.clone();
        let before = (outcome.programs.len() * each) as u64;
        let finished = |records: &[RunRecord]| {
            bar.set_position(before + records.len() as u64);
            Ok(())
        };
        let case = Arc::new(case);
        let threads = threads(args.many.jobs);
        let all = jobs(case.profiles.len(), args.many.seed, args.runs);
        let (records, ended) =
            run_jobs(all, threads, move |job| case.run(job), interrupt::requested, finished)?;
        if ended == Ended::Interrupted {
            return Err(Error::Interrupted(format!("interrupted at {name}; nothing is kept")));
        }
        outcome.programs.push(ProgramRow::of(&name, &args.metric, &records)?);
    }
    bar.finish_and_clear();
    outcome.host_seconds = args.many.host_seconds(start);
    output::print(&if args.many.json { output::json(&outcome)? } else { outcome.render() })
}

impl Case {
    fn new(name: String, args: &PartsArgs) -> Result<Case> {
        let (spec, program) = (Machine::find(&args.machine)?, Program::find(&name)?);
        let memory: Memory = args.memory.parse().map_err(|why| Error::Input(format!("--memory: {why}")))?;
        let memory = memory.resolve(program.peak_live());
        spec.check_memory(memory)?;
        let profiles = profiles().iter().map(|name| Profile::parse(name, &[])).collect::<Result<_>>()?;
        Ok(Case { name, machine: args.machine.clone(), spec, program, memory, profiles })
    }

    fn run(&self, job: Job) -> Result<RunRecord> {
        let profile = &self.profiles[job.profile];
        let (program, machine, seed) = (&self.name, &self.machine, job.seed);
        let line = RunLine { program, machine, memory: Some(self.memory), profile, seed };
        let run = engine::Run {
            memory: Some(self.memory),
            knobs: &profile.knobs,
            seed: job.seed,
            ..engine::Run::new(&self.spec, &self.program)
        };
        run.replayable(&profile.name, line.with([]))
    }
}

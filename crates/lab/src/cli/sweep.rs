//! `sweep`: the product of what a file varies, kept as it is run.

use super::experiment::progress_bar;
use super::many::threads;
use super::output;
use super::resume::{Resumed, Unwritten};
use crate::engine::{self, Fragmentation, Machine, Program};
use crate::error::{Error, Result};
use crate::experiment::{Ended, Job, jobs};
use crate::profile::{Profile, parse_setting};
use crate::replay::RunLine;
use crate::size::Memory;
use crate::sweep::{self, Done, Key, Outcome, Sweep, What};
use crate::{interrupt, kept, list, suggest};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What `sweep` takes.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// What to run, and what to vary (docs/sweeps.md)
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Where runs and results are kept: a new or empty directory, or that of the same sweep, which then goes on
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Runs at once; never changes results [default: the computer's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    jobs: Option<u32>,
    /// Print one JSON object (docs/json.md) instead of the tables
    #[arg(long)]
    json: bool,
    /// No progress on standard error
    #[arg(long, short)]
    quiet: bool,
}

/// A run, ready but for its seed.
struct Ready {
    what: What,
    machine: Arc<Machine>,
    program: Arc<Program>,
    memory: Option<u64>,
    profile: Profile,
    fragment: Option<Fragmentation>,
}

/// `pagefold sweep`.
pub(super) fn sweep(args: &SweepArgs) -> Result<()> {
    let (sweep, text) = Sweep::read(&args.file)?;
    let ready = prepare(&sweep, &args.file)?;
    let runs = Resumed::open(Some((&args.out, sweep::plan(&text))), Unwritten::End)?;
    interrupt::install()?;
    let all = jobs(sweep.whats.len(), sweep.seed, sweep.runs);
    let (whats, metrics) = (sweep.whats.clone(), sweep.metrics.clone());
    let key = move |job: Job| Key { what: whats[job.profile].clone(), seed: job.seed };
    let run = move |job: Job| {
        let outcome = ready[job.profile].run(job.seed)?;
        check_metrics(&metrics, &outcome).map(|()| outcome)
    };
    let bar = progress_bar(all.len(), args.quiet);
    let ended = runs.go_on(&all, key, run, threads(args.jobs), (&bar, 0));
    bar.finish_and_clear();
    let (ended, done) = (ended?, runs.done());
    let outcome = Outcome::of(&sweep, &done);
    save(&args.out, &outcome, &outcome.csv(&done))?;
    if ended == Ended::Interrupted {
        return Err(Error::Interrupted(format!(
            "interrupted; {} of {} runs are kept in {}, and the same command goes on",
            done.len(),
            all.len(),
            args.out.display()
        )));
    }
    output::print(&if args.json { output::json(&outcome)? } else { outcome.render() })
}

/// Write what is made of the runs.
fn save(dir: &Path, outcome: &Outcome, csv: &str) -> Result<()> {
    let write = |name: &str, text: &str| kept::write(dir, name, text.as_bytes());
    write("result.txt", &outcome.render())?;
    write("result.json", &output::json(outcome)?)?;
    write("result.csv", csv)?;
    outcome.svg().map_or(Ok(()), |svg| write("result.svg", &svg))
}

/// Everything that can be checked without running.
fn prepare(sweep: &Sweep, file: &Path) -> Result<Vec<Ready>> {
    let mut known = Known::default();
    let at = |what: usize, error: Error| {
        Error::Input(format!("{}: with {}: {error}", file.display(), sweep.name_of(what)))
    };
    let ready =
        sweep.whats.iter().enumerate().map(|(at_what, what)| known.ready(what).map_err(|e| at(at_what, e)));
    ready.collect()
}

/// What is to be shown must be something that runs measure. Not all of them do: so what is listed is fine, too.
fn check_metrics(metrics: &[String], done: &Done) -> Result<()> {
    let Done::Record(run) = done else { return Ok(()) };
    let listed = |name: &str| [list::metrics(), list::counters()].iter().any(|list| list.has(name));
    match metrics.iter().find(|name| run.value(name).is_none() && !listed(name)) {
        None => Ok(()),
        Some(name) => {
            let names = run.metrics.iter().map(|one| &one.name).chain(run.counters.keys());
            Err(Error::Input(suggest::unknown("metric", name, names.map(String::as_str), "metrics")))
        }
    }
}

/// Machines and programs that several runs share.
#[derive(Default)]
struct Known {
    machines: BTreeMap<String, Arc<Machine>>,
    programs: BTreeMap<String, Arc<Program>>,
}

impl Known {
    fn ready(&mut self, what: &What) -> Result<Ready> {
        let machine = shared(&mut self.machines, &what.machine, Machine::find)?;
        let program = shared(&mut self.programs, &what.program, Program::find)?;
        let memory = what.memory.as_ref().map(|text| {
            let memory: Memory = text.parse().map_err(|why| Error::Input(format!("memory: {why}")))?;
            let bytes = memory.resolve(program.peak_live());
            machine.check_memory(bytes).map(|()| bytes)
        });
        let settings = what.set.iter().map(|text| parse_setting(text)).collect::<Result<Vec<_>>>()?;
        let fragment =
            what.fragment.as_deref().map(|state| state.parse().map_err(Error::Input)).transpose()?;
        let profile = Profile::parse(&what.profile, &settings)?;
        Ok(Ready { what: what.clone(), machine, program, memory: memory.transpose()?, profile, fragment })
    }
}

fn shared<T>(
    known: &mut BTreeMap<String, Arc<T>>,
    name: &str,
    find: impl Fn(&str) -> Result<T>,
) -> Result<Arc<T>> {
    if let Some(found) = known.get(name) {
        return Ok(found.clone());
    }
    let found = Arc::new(find(name)?);
    known.insert(name.to_owned(), found.clone());
    Ok(found)
}

impl Ready {
    /// One run, or why it cannot be done: programs do not run in any memory.
    fn run(&self, seed: u64) -> Result<Done> {
        let run = engine::Run {
            memory: self.memory,
            fragment: self.fragment.as_ref(),
            knobs: &self.profile.knobs,
            seed,
            verify: self.what.verify,
            ..engine::Run::new(&self.machine, &self.program)
        };
        match run.replayable(&self.profile.name, self.command(seed)) {
            Ok(record) => Ok(Done::Record(Box::new(record))),
            Err(Error::Input(why)) => Ok(Done::Missing(why)),
            Err(other) => Err(other),
        }
    }

    fn command(&self, seed: u64) -> String {
        let What { program, machine, fragment, .. } = &self.what;
        let line = RunLine { program, machine, memory: self.memory, profile: &self.profile, seed };
        line.with(fragment.iter().flat_map(|state| ["--fragment".to_owned(), state.clone()]))
    }
}

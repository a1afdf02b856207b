//! `curve`: a program with more and less memory.

use super::experiment::{profiles_of, progress_bar};
use super::many::{Many, check_seeds, threads};
use super::output;
use crate::curve::{Curve, Row, SHOWN, Shown};
use crate::engine::{self, Machine, Program};
use crate::error::{Error, Result};
use crate::experiment::{Ended, Job, run as run_jobs};
use crate::interrupt;
use crate::profile::Profile;
use crate::replay::RunLine;
use crate::size::Memory;
use clap::Args;
use std::path::PathBuf;
use std::time::Instant;

/// What `curve` takes.
#[derive(Debug, Args)]
pub struct CurveArgs {
    /// A trace or a built-in program, as 'pagefold run' takes it
    #[arg(value_name = "PROGRAM")]
    program: String,
    /// Memory: bytes (K, M, G) or a share of what the program has at once at most; may be given several times
    /// [default: 10%, 20%, ... 110%]
    #[arg(long, value_name = "BYTES|SHARE%", allow_hyphen_values = true)]
    memory: Vec<Memory>,
    /// A profile; may be given several times
    #[arg(long = "profile", value_name = "PROFILE", default_values = ["classic", "mglru"])]
    profiles: Vec<String>,
    /// Runs for each size and profile
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// The machine: a preset ('pagefold list machines') or a description (docs/machines.md)
    #[arg(long, value_name = "PRESET|FILE.toml", default_value = engine::DEFAULT_MACHINE)]
    machine: String,
    /// Set a knob for all profiles; may be given several times
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    settings: Vec<String>,
    /// Also draw it as an SVG picture; what FILE held is replaced
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    many: Many,
}

/// What to run.
struct Plan {
    name: String,
    program: Program,
    machine: Machine,
    machine_name: String,
    profiles: Vec<Profile>,
    /// Bytes, from the least.
    sizes: Vec<u64>,
}

/// One run and where it belongs.
#[derive(Clone)]
struct Done {
    row: usize,
    shown: Shown,
}

/// `pagefold curve`.
pub(super) fn curve(args: &CurveArgs) -> Result<()> {
    check_seeds(args.many.seed, args.runs)?;
    let plan = understand(args)?;
    if let Some(path) = &args.svg {
        output::check_file(path)?;
    }
    interrupt::install()?;
    let start = Instant::now();
    let profiles: Vec<String> = plan.profiles.iter().map(|profile| profile.name.clone()).collect();
    let mut curve = Curve::new((&args.program, &args.machine), plan.program.peak_live(), &profiles);
    (curve.seed, curve.runs) = (args.many.seed, args.runs);
    let (sizes, rows) = (plan.sizes.clone(), plan.sizes.len() * profiles.len());
    // With much memory runs are short, so that a picture of the most is there first.
    let jobs: Vec<Job> = (0..rows)
        .rev()
        .flat_map(|row| (0..u64::from(args.runs)).map(move |run| (row, run)))
        .map(|(profile, run)| Job { profile, seed: args.many.seed + run })
        .collect();
    let bar = progress_bar(jobs.len(), args.many.quiet);
    let finished = |done: &[Done]| {
        bar.set_position(done.len() as u64);
        Ok(())
    };
    let threads = threads(args.many.jobs);
    let (done, ended) = run_jobs(jobs, threads, move |job| plan.run(job), interrupt::requested, finished)?;
    bar.finish_and_clear();
    curve.host_seconds = args.many.host_seconds(start);
    for (at, &memory) in sizes.iter().enumerate() {
        let row = |profile: usize| {
            let row = at * profiles.len() + profile;
            let runs: Vec<Shown> =
                done.iter().filter(|done| done.row == row).map(|done| done.shown.clone()).collect();
            (runs.len() == args.runs as usize)
                .then(|| Row::of(memory, curve.peak_live, &profiles[profile], &runs))
        };
        // A size that was interrupted is left out.
        if let Some(size) = (0..profiles.len()).map(row).collect::<Option<Vec<_>>>() {
            curve.rows.extend(size);
        }
    }
    let interrupted = ended == Ended::Interrupted;
    let told =
        format!("interrupted; {} of {} sizes are done", curve.rows.len() / profiles.len(), sizes.len());
    if curve.rows.len() < 2 * profiles.len() && interrupted {
        return Err(Error::Interrupted(told));
    }
    output::print(&if args.many.json { output::json(&curve)? } else { curve.render() })?;
    if let Some(path) = &args.svg {
        output::save(path, &curve.svg())?;
    }
    if interrupted { Err(Error::Interrupted(told)) } else { Ok(()) }
}

fn understand(args: &CurveArgs) -> Result<Plan> {
    let profiles = profiles_of(&args.profiles, &args.settings)?;
    let (machine, program) = (Machine::find(&args.machine)?, Program::find(&args.program)?);
    let memory = match args.memory.is_empty() {
        true => (1..=11).map(|tenth| Memory::Share(f64::from(tenth) / 10.0)).collect(),
        false => args.memory.clone(),
    };
    let mut sizes: Vec<u64> = memory.iter().map(|memory| memory.resolve(program.peak_live())).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 2 {
        return Err(Error::input("--memory: a curve needs at least two sizes; 'pagefold run' takes one"));
    }
    Ok(Plan {
        name: args.program.clone(),
        program,
        machine,
        machine_name: args.machine.clone(),
        profiles,
        sizes,
    })
}

impl Plan {
    /// One run, or why it cannot be done: programs do not run in any memory.
    fn run(&self, job: Job) -> Result<Done> {
        let (row, profile) = (job.profile, &self.profiles[job.profile % self.profiles.len()]);
        let memory = self.sizes[job.profile / self.profiles.len()];
        let done = |shown| Ok(Done { row, shown });
        if let Err(error) = self.machine.check_memory(memory) {
            return done(Err(error.to_string()));
        }
        let (program, machine, seed) = (&self.name, &self.machine_name, job.seed);
        let line = RunLine { program, machine, memory: Some(memory), profile, seed };
        let run = engine::Run {
            memory: Some(memory),
            knobs: &profile.knobs,
            seed: job.seed,
            ..engine::Run::new(&self.machine, &self.program)
        };
        match run.replayable(&profile.name, line.with([])) {
            Ok(record) if record.counters.get("oom_kill").is_some_and(|&kills| kills > 0) => {
                done(Err("out of memory".to_owned()))
            }
            Ok(record) => done(Ok(SHOWN.map(|(name, ..)| record.value(name).expect("every run has it")))),
            Err(Error::Input(why)) => done(Err(why)),
            Err(other) => Err(other),
        }
    }
}

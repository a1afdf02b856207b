//! `swap`: runs programs with each kind of swap.

use super::experiment::{parse_time, simulated};
use super::options::{Many, On, check_seeds};
use super::output;
use super::resume::{Resumed, Unwritten};
use super::sweep::measure;
use crate::cell::Cell;
use crate::document::Document;
use crate::error::{Error, Result};
use crate::jobs::{Ended, Job, jobs};
use crate::profile::Profile;
use crate::size::Memory;
use crate::sweep::swap::kinds::kinds;
use crate::sweep::swap::turn::{self, Search};
use crate::sweep::swap::{Case, Choices, Swappings, outcome};
use crate::sweep::{Catalog, Done, Key, Sweep, What};
use crate::{interrupt, kept};
use clap::Args;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Arguments of `swap`.
#[derive(Debug, Args)]
pub struct SwapArgs {
    /// Traces (FILE.pft) or built-in programs ('pagefold list programs')
    #[arg(value_name = "PROGRAM", required = true)]
    programs: Vec<String>,
    /// Memory of the machine: bytes like 256M, or shares of the most that the program has at once, like 50%; commas
    /// separate several
    #[arg(long, value_name = "BYTES|PERCENT", value_delimiter = ',', required = true)]
    memory: Vec<Memory>,
    /// Values of vm.swappiness
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [60, 180], value_parser = clap::value_parser!(u64).range(0..=200))]
    swappiness: Vec<u64>,
    /// Sizes of zram (disksize), in per cent of memory
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [25, 50, 100], value_parser = clap::value_parser!(u32).range(1..=1000))]
    zram: Vec<u32>,
    /// How zram and zswap compress
    #[arg(long, value_name = "NAME", default_value = "lzo-rle", value_parser = ["lzo-rle", "lz4", "zstd"])]
    algorithm: String,
    /// Runs for each kind of swap and swappiness
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Give up a run after this simulated time, like 500ms, 10s or 1m: the program thrashes
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    limit: Duration,
    /// Also find where the choice turns: how slow disks must be, and how well pages must compress, for a kind in memory
    /// to take less time than the disk alone; up to 13 more runs of each kind for each seed
    #[arg(long)]
    turn: bool,
    /// The profile
    #[arg(long, value_name = "PROFILE", default_value = "classic")]
    profile: String,
    /// The machine and its knobs.
    #[command(flatten)]
    on: On,
    /// Also draw run times as an SVG picture; an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Also keep runs and result in DIR: a new or empty directory, or that of the same command, which then continues
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    many: Many,
}

/// `pagefold swap`.
pub(super) fn swap(args: &SwapArgs) -> Result<()> {
    check_seeds(args.many.seed, args.runs)?;
    Profile::parse_all(std::slice::from_ref(&args.profile), &args.on.settings)?;
    let mut catalog = Catalog::default();
    let machine = catalog.machine(&args.on.machine)?;
    let choices = Choices {
        cases: cases(args, &mut catalog)?,
        kinds: kinds(machine.own_swap().as_ref(), &args.zram, &args.algorithm),
        algorithm: args.algorithm.clone(),
        swappiness: args.swappiness.clone(),
    };
    let of = What {
        machine: args.on.machine.clone(),
        profile: args.profile.clone(),
        set: args.on.settings.clone(),
        ..What::default()
    };
    let sweep = choices.sweep(&of, (args.many.seed, args.runs));
    for case in &choices.cases {
        machine.check_memory(case.memory)?;
    }
    let cells = cells(&mut catalog, &sweep, args)?;
    if let Some(path) = &args.svg {
        output::check_beside(path, args.many.running.json)?;
    }
    let text = plan(args);
    let plan = kept::Plan { noun: "comparison of kinds of swap", name: "swap.toml", text: &text };
    let runs: Resumed<Key, _> = Resumed::open(args.out.as_deref().map(|path| (path, plan)), Unwritten::End)?;
    interrupt::install()?;
    let start = Instant::now();
    let all = jobs(cells.len(), args.many.seed, args.runs);
    let mut ended = run(&sweep, &runs, cells, args)?;
    let mut searches = Vec::new();
    if args.turn && ended == Ended::Complete {
        searches = choices.searches(&of, &Swappings::of(&sweep, &runs.done(), &choices, 0.0));
        ended = search(&mut searches, &mut catalog, &runs, args)?;
    }
    let done = runs.done();
    let result = Swappings::of(&sweep, &done, &choices, args.many.host_seconds(start));
    let result = if ended == Ended::Complete { result.with_turns(searches) } else { result };
    if let Some(path) = &args.out {
        kept::save(path, &result)?;
        kept::write(path, "result.csv", result.csv().as_bytes())?;
    }
    if ended == Ended::Interrupted && result.cases.is_empty() {
        return Err(interrupted(args, done.len(), all.len()));
    }
    if !args.svg.as_deref().is_some_and(output::is_stdout) {
        output::show(&result, args.many.running.json)?;
    }
    if let Some(path) = &args.svg {
        let picture = result.svg().ok_or_else(|| {
            Error::input("--svg: a picture needs several sizes of memory or several values of swappiness")
        })?;
        output::save(path, &picture)?;
    }
    if ended == Ended::Interrupted { Err(interrupted(args, done.len(), all.len())) } else { Ok(()) }
}

/// The cells of a sweep, whose runs are given up after their time.
fn cells(catalog: &mut Catalog, sweep: &Sweep, args: &SwapArgs) -> Result<Vec<Cell>> {
    let mut cells = catalog.cells(sweep).map_err(|(_, error)| error)?;
    cells.iter_mut().for_each(|cell| cell.config.time_limit = Some(simulated(args.limit)));
    Ok(cells)
}

/// Do those runs of a sweep that are not done.
fn run(sweep: &Sweep, runs: &Resumed<Key, Done>, cells: Vec<Cell>, args: &SwapArgs) -> Result<Ended> {
    let all = jobs(cells.len(), args.many.seed, args.runs);
    let one = move |job: Job| outcome(cells[job.cell].run(job.seed));
    measure(sweep, runs, &all, one, &args.many.running)
}

/// Find where choices turn.
fn search(
    searches: &mut [Search],
    catalog: &mut Catalog,
    runs: &Resumed<Key, Done>,
    args: &SwapArgs,
) -> Result<Ended> {
    while let Some(step) = turn::step(searches, (args.many.seed, args.runs)) {
        let cells = cells(catalog, &step, args)?;
        if run(&step, runs, cells, args)? == Ended::Interrupted {
            return Ok(Ended::Interrupted);
        }
        turn::learn(searches, &step, &runs.done());
    }
    Ok(Ended::Complete)
}

fn interrupted(args: &SwapArgs, done: usize, all: usize) -> Error {
    let kept = match &args.out {
        Some(path) => format!("are kept in {}, and the same command continues", path.display()),
        None => "are done; nothing is kept without --out".to_owned(),
    };
    Error::Interrupted(format!("interrupted; {done} of {all} runs {kept}"))
}

/// Each program with each size of memory.
fn cases(args: &SwapArgs, catalog: &mut Catalog) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for name in &args.programs {
        let program = catalog.program(name)?;
        cases.extend(args.memory.iter().map(|memory| {
            let bytes = memory.resolve(program.peak_live());
            Case { program: name.clone(), memory: bytes, size: memory.to_string() }
        }));
    }
    Ok(cases)
}

/// What the runs of a directory were begun for.
fn plan(args: &SwapArgs) -> String {
    let list = |values: Vec<String>| format!("{values:?}");
    let memory = args.memory.iter().map(|memory| format!("{memory:?}")).collect();
    [
        ("programs", list(args.programs.clone())),
        ("memory", list(memory)),
        ("swappiness", format!("{:?}", args.swappiness)),
        ("zram", format!("{:?}", args.zram)),
        ("algorithm", format!("{:?}", args.algorithm)),
        ("limit", args.limit.as_secs_f64().to_string()),
        ("runs", args.runs.to_string()),
        ("seed", args.many.seed.to_string()),
        ("profile", format!("{:?}", args.profile)),
        ("machine", format!("{:?}", args.on.machine)),
        ("set", list(args.on.settings.iter().map(|setting| format!("{setting:?}")).collect())),
    ]
    .map(|(key, value)| format!("{key} = {value}\n"))
    .concat()
}

//! `optimum`: compares replacement policies with the fewest refaults that are possible, for many programs and sizes of
//! memory.

use super::options::{Many, On};
use super::output;
use super::resume::{Resumed, Unwritten};
use super::sweep::measure;
use crate::engine;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::jobs::{Ended, Job, jobs};
use crate::profile::Profile;
use crate::size::Memory;
use crate::sweep::optimum::{Case, Table, policies, sweep};
use crate::sweep::{Catalog, Done, What};
use clap::Args;
use program::builtin::WillItScale;
use std::time::Instant;

/// Arguments of `optimum`.
#[derive(Debug, Args)]
pub struct OptimumArgs {
    /// A trace or a built-in program, as 'pagefold run' takes it; any number
    #[arg(value_name = "PROGRAM")]
    programs: Vec<String>,
    /// Also all built-in programs that distinguish replacement policies, with footprints of this size
    #[arg(long, value_name = "SIZE")]
    built_in: Option<String>,
    /// Memory: bytes (K, M, G) or a share of the most that the program has at once; may be given several times
    /// [default: 25%, 50%, 75%, 90%]
    #[arg(long, value_name = "BYTES|SHARE%", allow_hyphen_values = true)]
    memory: Vec<Memory>,
    /// A profile; may be given several times [default: one for each replacement policy]
    #[arg(long = "profile", value_name = "PROFILE")]
    profiles: Vec<String>,
    /// The machine and its knobs.
    #[command(flatten)]
    on: On,
    /// Seeds and output.
    #[command(flatten)]
    many: Many,
}

/// The sizes of memory if none are given.
const SHARES: [f64; 4] = [0.25, 0.5, 0.75, 0.9];

/// Built-in programs, beside will-it-scale's, that do not distinguish replacement policies: they look for faults,
/// measure for a fixed time, or read each page once.
const NOT_COMPARED: [&str; 3] = ["chaos", "pageout-loop", "lru-file-mmap-read"];

/// `pagefold optimum`.
pub(super) fn optimum(args: &OptimumArgs) -> Result<()> {
    let profiles: Vec<String> = match args.profiles.is_empty() {
        true => policies().map(str::to_owned).collect(),
        false => args.profiles.clone(),
    };
    Profile::parse_all(&profiles, &args.on.settings)?;
    let mut catalog = Catalog::default();
    catalog.machine(&args.on.machine)?;
    let cases = cases(args, &mut catalog)?;
    let of = What { machine: args.on.machine.clone(), set: args.on.settings.clone(), ..What::default() };
    let sweep = sweep(&cases, &of, &profiles, args.many.seed);
    let mut cells = catalog.cells(&sweep).map_err(|(_, error)| error)?;
    cells.iter_mut().for_each(|cell| cell.config.optimum = true);
    let runs = Resumed::open(None, Unwritten::End)?;
    interrupt::install()?;
    let start = Instant::now();
    let all = jobs(cells.len(), args.many.seed, 1);
    let run = move |job: Job| {
        let cell = &cells[job.cell];
        Done::of(cell.check_memory().and_then(|()| cell.run(job.seed)))
    };
    match measure(&sweep, &runs, &all, run, &args.many.running)? {
        Ended::Complete => {
            let table = Table::of(&sweep, &cases, &runs.done(), args.many.host_seconds(start));
            output::show(&table, args.many.running.json)
        }
        Ended::Interrupted => Err(runs.lost(all.len())),
    }
}

/// Each program with each size of memory.
fn cases(args: &OptimumArgs, catalog: &mut Catalog) -> Result<Vec<Case>> {
    let built_in = args.built_in.iter().flat_map(|size| {
        let names = engine::programs().into_iter().map(|(name, _)| name);
        let timed = |name: &str| WillItScale::list().any(|(timed, _)| timed == name);
        let names = names.filter(move |name| !NOT_COMPARED.contains(&name.as_str()) && !timed(name));
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
        let program = catalog.program(&name)?;
        cases.extend(memory.iter().map(|memory| {
            let bytes = memory.resolve(program.peak_live());
            Case {
                program: name.clone(),
                footprint: program.footprint(),
                memory: bytes,
                size: memory.to_string(),
            }
        }));
    }
    Ok(cases)
}

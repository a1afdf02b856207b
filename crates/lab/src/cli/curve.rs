//! `curve`: runs a program with more and less memory.

use super::options::{Many, On, Varies, check_seeds};
use super::output;
use super::resume::{Resumed, Unwritten};
use super::sweep::measure;
use crate::document::Document;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::jobs::{Ended, Job};
use crate::profile::Profile;
use crate::size::Memory;
use crate::sweep::curve::{Curve, outcome, sweep};
use crate::sweep::{Catalog, Done, Key, Sweep, What};
use clap::Args;
use std::path::PathBuf;
use std::time::Instant;

/// Arguments of `curve`.
#[derive(Debug, Args)]
pub struct CurveArgs {
    /// A trace or a built-in program, as 'pagefold run' takes it
    #[arg(value_name = "PROGRAM")]
    program: String,
    /// Memory: bytes (K, M, G) or a share of the most that the program has at once; may be given several times
    /// [default: 10%, 20%, ... 110%, 125%, 150%]
    #[arg(long, value_name = "BYTES|SHARE%", allow_hyphen_values = true)]
    memory: Vec<Memory>,
    /// A profile; may be given several times
    #[arg(long = "profile", value_name = "PROFILE", default_values = ["classic", "mglru"])]
    profiles: Vec<String>,
    /// Runs for each size and profile
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Up to N sizes are added between those whose run times differ by more than a fifth of their median, or of
    /// which the larger takes longer by more than a fifth
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u16).range(0..=1000))]
    between: u16,
    /// The machine and its knobs.
    #[command(flatten)]
    on: On,
    /// What differs between runs.
    #[command(flatten)]
    varies: Varies,
    /// Also draw it as an SVG picture; an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    many: Many,
}

/// `pagefold curve`.
pub(super) fn curve(args: &CurveArgs) -> Result<()> {
    check_seeds(args.many.seed, args.runs)?;
    Profile::parse_all(&args.profiles, &args.on.settings)?;
    let mut catalog = Catalog::default();
    catalog.machine(&args.on.machine)?;
    let peak_live = catalog.program(&args.program)?.peak_live();
    let first = sizes(&args.memory, peak_live)?;
    let (program, machine, set) = (args.program.clone(), args.on.machine.clone(), args.on.settings.clone());
    let of = What { program, machine, set, vary: args.varies.text(), ..What::default() };
    let plan = |sizes: &[u64]| sweep(&of, sizes, &args.profiles, (args.many.seed, args.runs));
    catalog.cells(&plan(&first)).map_err(|(_, error)| error)?;
    if let Some(path) = &args.svg {
        output::check_beside(path, args.many.running.json)?;
    }
    let runs = Resumed::open(None, Unwritten::End)?;
    interrupt::install()?;
    let start = Instant::now();
    let (mut all, mut added) = (first, Vec::new());
    let (mut curve, ended) = loop {
        let sweep = plan(&all);
        let ended = measured(args, &mut catalog, &sweep, &runs)?;
        let curve = Curve::of(&sweep, &runs.done(), peak_live, args.many.host_seconds(start));
        let more = curve.between(usize::from(args.between) - added.len());
        if ended == Ended::Interrupted || more.is_empty() {
            break (curve, ended);
        }
        added.extend_from_slice(&more);
        all.extend(more);
        all.sort_unstable();
    };
    curve.mark_added(&added);
    curve.sampled = catalog.program(&args.program)?.sampled(None);
    let interrupted =
        Error::Interrupted(format!("interrupted; {} of {} sizes are done", curve.sizes(), all.len()));
    if ended == Ended::Interrupted && curve.sizes() < 2 {
        return Err(interrupted);
    }
    if !args.svg.as_deref().is_some_and(output::is_stdout) {
        output::show(&curve, args.many.running.json)?;
    }
    if let Some((path, picture)) = args.svg.as_ref().zip(curve.svg()) {
        output::save(path, &picture)?;
    }
    if ended == Ended::Interrupted { Err(interrupted) } else { Ok(()) }
}

/// Do those runs of a curve that are not done yet.
fn measured(
    args: &CurveArgs,
    catalog: &mut Catalog,
    sweep: &Sweep,
    runs: &Resumed<Key, Done>,
) -> Result<Ended> {
    let cells = catalog.cells(sweep).map_err(|(_, error)| error)?;
    // Runs with much memory are short. They come first, so that an interrupted curve has as many sizes as possible.
    let seeds = || (args.many.seed..).take(args.runs as usize);
    let all: Vec<Job> =
        (0..cells.len()).rev().flat_map(|cell| seeds().map(move |seed| Job { cell, seed })).collect();
    let run = move |job: Job| {
        let cell = &cells[job.cell];
        outcome(cell.check_memory().and_then(|()| cell.run(job.seed)))
    };
    measure(sweep, runs, &all, run, &args.many.running)
}

/// Sizes in per cent if none are given. The kernel keeps some memory free, so a program that has 100 % may still
/// thrash; at 150 % nothing changes any more.
const SHARES: [u32; 13] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 125, 150];

/// Sizes of memory, ascending.
fn sizes(given: &[Memory], peak_live: u64) -> Result<Vec<u64>> {
    let memory = match given {
        [] => SHARES.map(|percent| Memory::Share(f64::from(percent) / 100.0)).to_vec(),
        given => given.to_vec(),
    };
    let mut sizes: Vec<u64> = memory.iter().map(|memory| memory.resolve(peak_live)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    match sizes.len() {
        0 | 1 => Err(Error::input("--memory: a curve needs at least two sizes; 'pagefold run' takes one")),
        _ => Ok(sizes),
    }
}

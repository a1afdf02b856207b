//! `parts`: measures what each part of MGLRU is worth.

use super::options::{Many, check_seeds};
use super::output;
use super::resume::{Resumed, Unwritten};
use super::sweep::{check_metrics, measure};
use crate::cell::Cell;
use crate::error::Result;
use crate::interrupt;
use crate::jobs::{Ended, Job, jobs};
use crate::size::Memory;
use crate::sweep::parts::{Parts, programs, sweep};
use crate::sweep::{Catalog, Done, What};
use clap::Args;
use std::time::Instant;

/// Arguments of `parts`.
#[derive(Debug, Args)]
pub struct PartsArgs {
    /// A program; may be given several times [default: 15 applications of --size]
    #[arg(long = "program", value_name = "PROGRAM")]
    programs: Vec<String>,
    /// The footprint of each default program
    #[arg(long, value_name = "BYTES", default_value = "24M")]
    size: String,
    /// Memory of the machine: bytes (K, M, G) or a share of the most that the program has at once
    #[arg(long, value_name = "BYTES|SHARE%", default_value = "50%", value_parser = memory_text)]
    memory: String,
    /// The machine: a preset ('pagefold list machines') or a description (docs/machines.md)
    #[arg(long, value_name = "PRESET|FILE.toml", default_value = "laptop")]
    machine: String,
    /// The metric to compare: run_time, refaults, or a metric or counter ('pagefold list metrics', 'list counters')
    #[arg(long, value_name = "NAME", default_value = "run_time")]
    metric: String,
    /// Runs of each profile, with seeds SEED, SEED+1, ...
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Seeds and output.
    #[command(flatten)]
    many: Many,
}

/// Memory as written, if it can be parsed.
fn memory_text(text: &str) -> Result<String, String> {
    text.parse::<Memory>().map(|_| text.to_owned())
}

/// `pagefold parts`.
pub(super) fn parts(args: &PartsArgs) -> Result<()> {
    check_seeds(args.many.seed, args.runs)?;
    let programs = if args.programs.is_empty() { programs(&args.size) } else { args.programs.clone() };
    let (machine, memory) = (args.machine.clone(), Some(args.memory.clone()));
    let of = What { machine, memory, ..What::default() };
    let sweep = sweep(programs, &of, &args.metric, (args.many.seed, args.runs));
    let cells = Catalog::default().cells(&sweep).map_err(|(_, error)| error)?;
    cells.iter().try_for_each(Cell::check_memory)?;
    let runs = Resumed::open(None, Unwritten::End)?;
    interrupt::install()?;
    let start = Instant::now();
    let all = jobs(cells.len(), args.many.seed, args.runs);
    let metrics = sweep.metrics.clone();
    let run = move |job: Job| {
        let done = Done::Record(Box::new(cells[job.cell].run(job.seed)?));
        check_metrics(&metrics, &done).map(|()| done)
    };
    match measure(&sweep, &runs, &all, run, &args.many.running)? {
        Ended::Complete => {
            let parts = Parts::of(&sweep, &runs.done(), args.many.host_seconds(start));
            output::show(&parts, args.many.running.json)
        }
        Ended::Interrupted => Err(runs.lost(all.len())),
    }
}

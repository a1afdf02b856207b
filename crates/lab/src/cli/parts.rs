//! `parts`: what each part of MGLRU is worth.

use super::args::PartsArgs;
use super::many::check_seeds;
use super::output;
use super::resume::{Resumed, Unwritten};
use super::sweep::{check_metrics, measure};
use crate::cell::Cell;
use crate::error::Result;
use crate::experiment::{Ended, Job, jobs};
use crate::interrupt;
use crate::sweep::parts::{Parts, programs, sweep};
use crate::sweep::{Catalog, Done, What};
use std::time::Instant;

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

//! `sweep`: runs the combinations that a file describes, and keeps each run.

use super::options::{Running, progress_bar, threads};
use super::output;
use super::resume::{Resumed, Unwritten};
use crate::cell::Cell;
use crate::error::{Error, Result};
use crate::jobs::{Ended, Job, jobs};
use crate::sweep::{self, Catalog, Done, Key, Outcome, Sweep};
use crate::{interrupt, kept, list, metrics, suggest};
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// The description of what to run and what to vary (docs/sweeps.md); - is standard input
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// The directory for runs and results: new or empty, or that of the same sweep, which then continues
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How runs are done and shown.
    #[command(flatten)]
    running: Running,
}

/// `pagefold sweep`.
pub(super) fn sweep(args: &SweepArgs) -> Result<()> {
    let (sweep, text, cells) = plan(args)?;
    let runs = Resumed::open(Some((&args.out, sweep::plan(&text))), Unwritten::End)?;
    interrupt::install()?;
    let all = jobs(cells.len(), sweep.seed, sweep.runs);
    let metrics = sweep.metrics.clone();
    let run = move |job: Job| {
        let done = Done::of(cells[job.cell].run(job.seed))?;
        check_metrics(&metrics, &done).map(|()| done)
    };
    let ended = measure(&sweep, &runs, &all, run, &args.running)?;
    let done = runs.done();
    let outcome = Outcome::of(&sweep, &done);
    kept::save(&args.out, &outcome)?;
    kept::write(&args.out, "result.csv", outcome.csv(&done).as_bytes())?;
    if ended == Ended::Interrupted {
        return Err(Error::Interrupted(format!(
            "interrupted; {} of {} runs are kept in {}, and the same command continues",
            done.len(),
            all.len(),
            args.out.display()
        )));
    }
    output::show(&outcome, args.running.json)
}

/// Check the input of `sweep`: the sweep, its text, and its cells.
pub(super) fn plan(args: &SweepArgs) -> Result<(Sweep, String, Vec<Cell>)> {
    let (sweep, text) = Sweep::read(&args.file)?;
    let cells = prepare(&sweep, &args.file)?;
    Ok((sweep, text, cells))
}

/// Do those of the `all` runs of a sweep that are not done yet. `run` does one.
pub(super) fn measure(
    sweep: &Sweep,
    runs: &Resumed<Key, Done>,
    all: &[Job],
    run: impl Fn(Job) -> Result<Done> + Send + Sync + 'static,
    running: &Running,
) -> Result<Ended> {
    let whats = sweep.whats.clone();
    let key = move |job: Job| Key { what: whats[job.cell].clone(), seed: job.seed };
    let bar = progress_bar(all.len(), running.quiet);
    let ended = runs.resume(all, key, move |job| run(job).map(Some), threads(running.jobs), (&bar, 0));
    bar.finish_and_clear();
    ended
}

/// The cells of a sweep file. Everything is checked that can be checked without running.
fn prepare(sweep: &Sweep, file: &Path) -> Result<Vec<Cell>> {
    let at = |what: usize, error: Error| {
        Error::Input(format!("{}: with {}: {error}", file.display(), sweep.name_of(what)))
    };
    let cells = Catalog::default().cells(sweep).map_err(|(what, error)| at(what, error))?;
    for (what, cell) in cells.iter().enumerate() {
        cell.check_memory().map_err(|error| at(what, error))?;
    }
    Ok(cells)
}

/// Refuse metrics that do not exist. Not every run measures each of them: a metric that is listed is fine.
pub(super) fn check_metrics(metrics: &[String], done: &Done) -> Result<()> {
    let Some(run) = done.record() else { return Ok(()) };
    let (rows, counters) = (list::metrics(), list::counters());
    let listed = |name: &str| rows.has(name) || counters.has(name);
    match metrics.iter().find(|name| metrics::find(run, name).is_none() && !listed(name)) {
        None => Ok(()),
        Some(name) => {
            let names = run.metrics.iter().map(|one| &one.name).chain(run.counters.keys());
            Err(Error::Input(suggest::unknown("metric", name, names.map(String::as_str), "metrics")))
        }
    }
}

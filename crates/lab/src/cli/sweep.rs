//! `sweep`: runs the combinations that a file describes, and keeps each run.

use super::options::{Running, progress_bar, threads};
use super::output;
use super::resume::{Resumed, Unwritten};
use crate::cell::Cell;
use crate::error::{Error, Result};
use crate::jobs::{Ended, Job, jobs};
use crate::sweep::{self, Catalog, Done, Key, Outcome, Sweep};
use crate::{caller, interrupt, kept, list, metrics, suggest};
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
    pub(super) running: Running,
}

/// `pagefold sweep`.
pub(super) fn sweep(args: &SweepArgs) -> Result<()> {
    let (opened, cells) = Opened::of(args)?;
    interrupt::install()?;
    let metrics = opened.sweep.metrics.clone();
    let run = move |job: Job| {
        let done = Done::of(cells[job.cell].run(job.seed))?;
        check_metrics(&metrics, &done).map(|()| done)
    };
    let ended = measure(&opened.sweep, &opened.runs, &opened.jobs(), run, &args.running)?;
    opened.finish(ended, args.running.json)
}

/// A sweep whose directory is open.
pub(super) struct Opened {
    pub(super) sweep: Sweep,
    pub(super) runs: Resumed<Key, Done>,
    out: PathBuf,
}

impl Opened {
    /// The sweep that arguments ask for, and its cells.
    pub(super) fn of(args: &SweepArgs) -> Result<(Opened, Vec<Cell>)> {
        let (sweep, text, cells) = plan(args)?;
        let runs = Resumed::open(Some((&args.out, sweep::plan(&text))), Unwritten::End)?;
        Ok((Opened { sweep, runs, out: args.out.clone() }, cells))
    }

    /// All its runs.
    pub(super) fn jobs(&self) -> Vec<Job> {
        jobs(self.sweep.whats.len(), self.sweep.seed, self.sweep.runs)
    }

    /// Write the result of the runs that are done into the directory; if these are all, show it.
    pub(super) fn finish(self, ended: Ended, as_json: bool) -> Result<()> {
        let Opened { sweep, runs, out } = &self;
        let (done, all) = (runs.done(), self.jobs());
        if ended == Ended::Complete {
            runs.close(&all, key_of(sweep))?;
        }
        let outcome = Outcome::of(sweep, &done);
        let columns = outcome.columns(&done);
        kept::save(out, &outcome)?;
        kept::write(out, "result.csv", columns.csv().as_bytes())?;
        caller::tell_runs(|| columns);
        if ended == Ended::Interrupted {
            return Err(Error::Interrupted(format!(
                "interrupted; {} of {} runs are kept in {}, and the same command continues",
                done.len(),
                all.len(),
                out.display()
            )));
        }
        output::show(&outcome, as_json)
    }
}

/// Which run a job of a sweep is.
pub(super) fn key_of(sweep: &Sweep) -> impl Fn(Job) -> Key + Send + Sync + 'static {
    let whats = sweep.whats.clone();
    move |job| Key { what: whats[job.cell].clone(), seed: job.seed }
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
    let bar = progress_bar(all.len(), running.quiet);
    let ended =
        runs.resume(all, key_of(sweep), move |job| run(job).map(Some), threads(running.jobs), (&bar, 0));
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

//! `--html`: a result as a page, with pictures of runs that are done once more for it.

use super::options::{progress_bar, threads};
use super::output;
use crate::caller::Caller;
use crate::cell::Cell;
use crate::error::{Error, Result};
use crate::history::Watched;
use crate::jobs::{Ended, Job, run};
use crate::replay::{self, shell_line};
use crate::summary::Summary;
use crate::{html, interrupt};
use std::path::Path;
use std::sync::Arc;

/// Write the page of a result. `cells`: those of its runs. `how`: runs at once, and whether progress is not shown.
pub(super) fn write(
    path: &Path,
    summary: &Summary,
    cells: Vec<Cell>,
    how: (Option<u32>, bool),
) -> Result<()> {
    let finished = |cell: &Cell| summary.setup.profiles.contains(&cell.profile.name);
    let cells: Vec<Cell> = cells.into_iter().filter(finished).collect();
    let watched = watch(cells, summary.setup.seed, how)?.ok_or_else(|| {
        Error::Interrupted(format!(
            "interrupted while the runs for {} were done; the result is above, the page is not written",
            path.display()
        ))
    })?;
    output::save(path, &html::experiment(summary, &watched, &command()))
}

/// The command that is carried out.
pub(super) fn command() -> String {
    if let Some(caller) = Caller::current() {
        return shell_line(caller.words());
    }
    let arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    shell_line(replay::typed(arguments))
}

/// The run with this seed of each cell; `None`: interrupted.
fn watch(cells: Vec<Cell>, seed: u64, (at_once, quiet): (Option<u32>, bool)) -> Result<Option<Vec<Watched>>> {
    let jobs: Vec<Job> = (0..cells.len()).map(|cell| Job { cell, seed }).collect();
    let bar = progress_bar(jobs.len(), quiet);
    let cells = Arc::new(cells);
    let one = move |job: Job| cells[job.cell].watched(job.seed);
    let done = |done: &[Watched]| {
        bar.set_position(done.len() as u64);
        Ok(())
    };
    let result = run(jobs, threads(at_once), one, interrupt::requested, done);
    bar.finish_and_clear();
    result.map(|(watched, ended)| (ended == Ended::Complete).then_some(watched))
}

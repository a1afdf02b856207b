//! `report`: shows the result in a directory of runs again.

use super::options::Style;
use super::{output, page};
#[cfg(feature = "parquet")]
use crate::columns;
use crate::columns::Columns;
use crate::document::Document;
use crate::error::{Error, Result};
use crate::record::RunRecord;
use crate::summary::{StoppedBy, Summary};
use crate::sweep::{self, Outcome};
use crate::{caller, html, rundir, svg, table};
use clap::Args;
#[cfg(feature = "parquet")]
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A directory made by --out of run, compare or sweep
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Also draw the changes as an SVG picture; an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Also write the result as one page for a browser, which needs no network (docs/html.md); an existing FILE is
    /// replaced
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write every run with all that it measured as a table in Parquet; an existing FILE is replaced. Only in
    /// builds with the feature parquet: cargo install --path crates/lab --features parquet
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// How to print the result.
    #[command(flatten)]
    style: Style,
}

impl ReportArgs {
    /// The files to write.
    fn files(&self) -> impl Iterator<Item = &Path> + Clone {
        [&self.svg, &self.html].into_iter().flatten().map(PathBuf::as_path)
    }
}

/// `pagefold report`.
pub(super) fn report(args: &ReportArgs) -> Result<()> {
    output::check_all_beside(args.files(), args.style.json)?;
    args.parquet.as_deref().map_or(Ok(()), output::check_binary)?;
    match sweep::is_directory(&args.dir) {
        true => report_sweep(args),
        false => report_experiment(args),
    }
}

/// Report what `run` or `compare` has kept.
fn report_experiment(args: &ReportArgs) -> Result<()> {
    let (setup, done, end) = rundir::load(&args.dir)?;
    let planned = setup.runs;
    let host_seconds = done.iter().map(|done| done.host_seconds).fold(0.0, f64::max);
    let records: Vec<RunRecord> = done.into_iter().map(|done| done.record).collect();
    keep_runs(args, || Columns::of_runs(&records))?;
    let summary = Summary::of(setup, &records, host_seconds, args.style.all).out_of_time(end.out_of_time);
    if summary.setup.runs == 0 {
        return Err(Error::Input(format!("{}: no seed was finished by all profiles", args.dir.display())));
    }
    if summary.stopped_by.map_or(summary.setup.runs < planned, |by| by == StoppedBy::Interrupt) {
        eprintln!("pagefold: {}: {} of {planned} runs were finished", args.dir.display(), summary.setup.runs);
    }
    let picture = summary.setup.compares().then(|| svg::render(&summary));
    let why = "there are no changes to draw; 'pagefold compare' makes them";
    let page = || html::experiment(&summary, &[], &page::command());
    if save(args, picture, why, page)? {
        return Ok(());
    }
    output::either(args.style.json, &summary, |width| table::render(&summary, width))
}

/// Report what `sweep` has kept.
fn report_sweep(args: &ReportArgs) -> Result<()> {
    if args.style.all {
        let file = args.dir.join(sweep::FILE);
        return Err(Error::Input(format!(
            "--all is for the directories of run and compare; a sweep shows the metrics that {} names",
            file.display()
        )));
    }
    let sweep::Loaded { sweep, text, made, done } = sweep::load(&args.dir)?;
    let outcome = Outcome::of(&sweep, &done);
    keep_runs(args, || outcome.columns(&done))?;
    if outcome.left > 0 {
        let all = outcome.left + done.len();
        eprintln!("pagefold: {}: {} of {all} runs were finished", args.dir.display(), done.len());
    }
    let page = || html::sweep(&outcome, &text, (&page::command(), made.as_ref()));
    if save(args, outcome.svg(), "nothing varies, so there is nothing to draw", page)? {
        return Ok(());
    }
    output::show(&outcome, args.style.json)
}

/// Hand the runs to those who want them.
fn keep_runs(args: &ReportArgs, runs: impl Fn() -> Columns) -> Result<()> {
    caller::tell_runs(&runs);
    args.parquet.as_deref().map_or(Ok(()), |path| save_parquet(path, &runs()))
}

#[cfg(feature = "parquet")]
fn save_parquet(path: &Path, runs: &Columns) -> Result<()> {
    let bytes = columns::parquet::file_of(runs).map_err(|error| Error::Failed(error.to_string()))?;
    let (mut file, part) = output::Part::create(path)?;
    part.keep(file.write_all(&bytes))
}

#[cfg(not(feature = "parquet"))]
fn save_parquet(path: &Path, _: &Columns) -> Result<()> {
    let remedy = "this build cannot; 'cargo install --path crates/lab --features parquet' makes one that can";
    Err(Error::file("write", path, remedy))
}

/// Write the files that were asked for; `picture` is `None` for the reason `why`. Returns whether one of them is
/// standard output.
fn save(
    args: &ReportArgs,
    picture: Option<String>,
    why: &str,
    page: impl FnOnce() -> String,
) -> Result<bool> {
    if let Some(path) = &args.svg {
        let none = || Error::Input(format!("{}: {why}", args.dir.display()));
        output::save(path, &picture.ok_or_else(none)?)?;
    }
    args.html.as_deref().map_or(Ok(()), |path| output::save(path, &page()))?;
    Ok(args.files().any(output::is_stdout))
}

//! `report`: shows the result in a run directory again.

use super::options::Style;
use super::output;
use crate::error::{Error, Result};
use crate::record::RunRecord;
use crate::summary::{StoppedBy, Summary};
use crate::{rundir, svg, table};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A directory made by --out
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Also draw the changes as an SVG picture; an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// How to print the result.
    #[command(flatten)]
    style: Style,
}

/// `pagefold report`.
pub(super) fn report(args: &ReportArgs) -> Result<()> {
    args.svg.as_deref().map_or(Ok(()), |path| output::check_beside(path, args.style.json))?;
    let (setup, done, end) = rundir::load(&args.dir)?;
    let planned = setup.runs;
    let host_seconds = done.iter().map(|done| done.host_seconds).fold(0.0, f64::max);
    let records: Vec<RunRecord> = done.into_iter().map(|done| done.record).collect();
    let summary = Summary::of(setup, &records, host_seconds, args.style.all).out_of_time(end.out_of_time);
    if summary.setup.runs == 0 {
        return Err(Error::Input(format!("{}: no seed was finished by all profiles", args.dir.display())));
    }
    if summary.stopped_by.map_or(summary.setup.runs < planned, |by| by == StoppedBy::Interrupt) {
        eprintln!("pagefold: {}: {} of {planned} runs were finished", args.dir.display(), summary.setup.runs);
    }
    if let Some(path) = &args.svg {
        if !summary.setup.compares() {
            return Err(Error::Input(format!(
                "{}: there are no changes to draw; 'pagefold compare' makes them",
                args.dir.display()
            )));
        }
        output::save(path, &svg::render(&summary))?;
    }
    if args.svg.as_deref().is_some_and(output::is_stdout) {
        return Ok(());
    }
    output::either(args.style.json, &summary, |width| table::render(&summary, width))
}

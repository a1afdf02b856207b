//! `calibrate`: measures the machine that this runs on, and describes it.
#![cfg_attr(not(target_os = "linux"), allow(unused, reason = "it measures Linux alone"))]

use super::options::bar;
use super::output;
#[cfg(target_os = "linux")]
use crate::calibrate::{Asked, Base, measure};
use crate::engine::DEFAULT_MACHINE;
use crate::error::{Error, Result};
use crate::interrupt;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Write the description of this machine, which --machine takes; an existing FILE is replaced at the end
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The preset or file whose numbers stay where nothing is measured
    #[arg(long, value_name = "MACHINE", default_value = DEFAULT_MACHINE)]
    base: String,
    /// The time for all rounds, in seconds; at least 7 rounds of each probe are done
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Measure the disk of this folder, too, in a scratch file of 64 MiB that is removed
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// Write what is not stable, too
    #[arg(long)]
    unstable: bool,
    /// Print one JSON object (docs/json.md) instead of the table
    #[arg(long)]
    json: bool,
    /// No progress on standard error
    #[arg(long, short)]
    quiet: bool,
}

/// `pagefold calibrate` on another system.
#[cfg(not(target_os = "linux"))]
pub(super) fn calibrate(_: &CalibrateArgs) -> Result<()> {
    Err(Error::input("calibrate measures the Linux that it runs on, and this is another system"))
}

/// `pagefold calibrate`.
#[cfg(target_os = "linux")]
pub(super) fn calibrate(args: &CalibrateArgs) -> Result<()> {
    let base = Base::find(&args.base)?;
    if let Some(path) = &args.out {
        output::check_beside(path, args.json)?;
    }
    if let Some(folder) = args.disk.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(Error::file("measure", folder, "it is no folder"));
    }
    interrupt::install()?;
    let asked = Asked {
        time: Duration::from_secs(args.seconds.into()),
        disk: args.disk.clone(),
        unstable: args.unstable,
    };
    let shown = bar(0, args.quiet, "probes");
    let mut progress = |done: usize, all: usize| {
        shown.set_length(all as u64);
        shown.set_position(done as u64);
    };
    let calibration = measure(&base, &asked, &mut progress, &interrupt::requested)?;
    shown.finish_and_clear();
    let interrupted = interrupt::requested();
    let file = match (&args.out, interrupted) {
        (Some(path), false) => Some((path, calibration.file(&base)?)),
        _ => None,
    };
    if !args.out.as_deref().is_some_and(output::is_stdout) {
        output::show(&calibration, args.json)?;
    }
    if let Some((path, text)) = file {
        output::save(path, &text)?;
    }
    match interrupted {
        true => Err(Error::Interrupted("interrupted; no machine was written".to_owned())),
        false => Ok(()),
    }
}

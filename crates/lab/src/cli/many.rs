//! Arguments of commands that do many runs.

use crate::error::{Error, Result};
use clap::Args;
use std::time::Instant;

/// What every command takes that does many runs and keeps none of them.
#[derive(Debug, Args)]
pub struct Many {
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Runs at once; never changes results [default: the computer's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub jobs: Option<u32>,
    /// Print one JSON object (docs/json.md) instead of the tables
    #[arg(long)]
    pub json: bool,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// Report 0 host seconds, so that equal runs print equal bytes
    #[arg(long, hide = true)]
    pub no_host_time: bool,
}

impl Many {
    /// Real seconds since `start`, as far as they are to be told.
    pub fn host_seconds(&self, start: Instant) -> f64 {
        if self.no_host_time { 0.0 } else { start.elapsed().as_secs_f64() }
    }
}

/// Seeds from `first` on for which there is no room are bad input.
pub fn check_seeds(first: u64, runs: u32) -> Result<()> {
    match first.checked_add(u64::from(runs)) {
        Some(_) => Ok(()),
        None => Err(Error::Input(format!("--seed {first} leaves no room for {runs} seeds"))),
    }
}

/// Threads for runs of which so many may be done at once.
pub fn threads(at_once: Option<u32>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    at_once.map_or(cores, |jobs| jobs as usize)
}

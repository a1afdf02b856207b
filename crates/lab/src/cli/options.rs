//! Options that several commands share.

use super::groups::{GroupArg, parse_group};
use crate::engine::{DEFAULT_MACHINE, Fragmentation, SwapSpec, Vary};
use crate::error::{Error, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Options of every command that does many runs with the same few seeds.
#[derive(Debug, Args)]
pub struct Many {
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How runs are done and shown.
    #[command(flatten)]
    pub running: Running,
    /// Report 0 host seconds, so that equal runs print equal bytes
    #[arg(long, hide = true)]
    pub no_host_time: bool,
}

impl Many {
    /// Seconds since `start`, or 0 if they are not reported.
    pub fn host_seconds(&self, start: Instant) -> f64 {
        if self.no_host_time { 0.0 } else { start.elapsed().as_secs_f64() }
    }
}

/// How runs are done and shown.
#[derive(Debug, Args)]
pub struct Running {
    /// Runs at once; never changes results [default: the computer's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub jobs: Option<u32>,
    /// Print one JSON object (docs/json.md) instead of the tables
    #[arg(long)]
    pub json: bool,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// The machine and its knobs.
#[derive(Debug, Args)]
pub struct On {
    /// The machine: a preset ('pagefold list machines') or a description (docs/machines.md)
    #[arg(long, value_name = "PRESET|FILE.toml", default_value = DEFAULT_MACHINE)]
    pub machine: String,
    /// Set a knob for all profiles; may be given several times
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub settings: Vec<String>,
}

/// What differs between runs with different seeds.
#[derive(Clone, Copy, Debug, Args)]
pub struct Varies {
    /// Let runs with different seeds differ in more than what the machine draws (docs/vary.md): arrival=TIME: each
    /// thread and process but the first begins up to TIME later, like arrival=20ms; layout: mappings have other
    /// addresses; fragment: memory begins in pieces. One or several of these, separated by commas
    #[arg(long, value_name = "WHAT,...", value_parser = str::parse::<Vary>)]
    pub vary: Option<Vary>,
}

impl Varies {
    /// What differs.
    pub fn vary(&self) -> Vary {
        self.vary.unwrap_or_default()
    }

    /// The same in words, if something does.
    pub fn text(&self) -> Option<String> {
        self.vary.map(|vary| vary.to_string())
    }
}

/// What runs begin with, besides the machine.
#[derive(Debug, Args)]
pub struct Begins {
    /// Begin with fragmented memory, in a state that is verified (docs/fragmentation.md): frag-50, frag-100, or like
    /// free=60%,unusable=90%,unmovable=20%,reclaimable=5%. Only on the simulated machine
    #[arg(long, value_name = "STATE", value_parser = str::parse::<Fragmentation>)]
    pub fragment: Option<Fragmentation>,
    /// A control group with limits, like web:memory.max=32M,memory.low=25% (shares are of the most that the program has
    /// at once). processes=0, 1-3 or 4- selects the processes that begin in it, by the order of their start; a group
    /// that is alone holds the program (docs/groups.md). May be given several times
    #[arg(long = "group", value_name = "NAME[:SETTING=VALUE,...]", value_parser = parse_group)]
    pub groups: Vec<GroupArg>,
    /// A swap area instead of the machine's own: zram:SIZE in memory, compressed, or DEVICE:SIZE; with settings, like
    /// zram:50%,algorithm=zstd,mem_limit=1G,priority=100 (shares are of the machine's memory). Areas without a priority
    /// are used in their order. May be given several times (docs/compressed-swap.md)
    #[arg(long = "swap", value_name = "AREA[,SETTING=VALUE,...]", value_parser = str::parse::<SwapSpec>)]
    pub swap: Vec<SwapSpec>,
}

/// How to print a result of rows.
#[derive(Clone, Copy, Debug, Args)]
pub struct Style {
    /// Print one JSON object (docs/json.md) instead of the table
    #[arg(long)]
    pub json: bool,
    /// Add a row for every other counter that moved
    #[arg(long)]
    pub all: bool,
}

/// Refuse seeds from `first` on that do not fit in 64 bits.
pub fn check_seeds(first: u64, runs: u32) -> Result<()> {
    match first.checked_add(u64::from(runs)) {
        Some(_) => Ok(()),
        None => Err(Error::Input(format!("--seed {first} leaves no room for {runs} seeds"))),
    }
}

/// The number of threads for runs of which `at_once` are done at once.
pub fn threads(at_once: Option<u32>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    at_once.map_or(cores, |jobs| jobs as usize)
}

/// A progress bar over runs, hidden when standard error is not a terminal.
pub fn progress_bar(runs: usize, quiet: bool) -> ProgressBar {
    bar(runs, quiet, "runs")
}

/// The same over other things than runs.
pub fn bar(count: usize, quiet: bool, things: &str) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(count as u64);
    let template = format!("{{bar:30}} {{pos}}/{{len}} {things}{{msg}}, {{elapsed}} (left: {{eta}})");
    bar.set_style(ProgressStyle::with_template(&template).expect("the template is well formed"));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

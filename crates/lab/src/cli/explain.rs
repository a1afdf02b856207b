//! `explain`: runs a program under two settings, and tells why one takes longer.

use super::experiment::{Measurement, Plan, WhatArgs, measure_all, understand};
use super::options::Begins;
use super::output;
use crate::document::Document;
use crate::engine::{Machine, SwapSpec};
use crate::error::{Error, Result};
use crate::explain::Explanation;
use crate::size::Memory;
use crate::{human, rundir};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The profile to start from: NAME or NAME+KNOB=VALUE+... ('pagefold list profiles', 'list knobs')
    #[arg(long, default_value = "classic", value_name = "PROFILE")]
    base: String,
    /// The profile to explain [default: the base, on another machine, with other memory or other swap]
    #[arg(long = "with", value_name = "PROFILE", required_unless_present_any = ["with_machine", "with_memory", "with_swap"])]
    other: Option<String>,
    /// The machine of the other side, like laptop+slow=2 [default: the same]
    #[arg(long, value_name = "PRESET|FILE.toml")]
    with_machine: Option<String>,
    /// Memory of the other side, as --memory takes it [default: the same]
    #[arg(long, value_name = "BYTES|SHARE%", allow_hyphen_values = true)]
    with_memory: Option<Memory>,
    /// Swap areas of the other side, as --swap takes them; may be given several times [default: the same]
    #[arg(long, value_name = "AREA[,SETTING=VALUE,...]", value_parser = str::parse::<SwapSpec>)]
    with_swap: Vec<SwapSpec>,
    /// The most runs of each side, with seeds SEED, SEED+1, ...; from 10 on no more are done once intervals are narrow,
    /// as 'compare' has it
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Also tell in which part of the program differences arise: of N parts with as many accesses each. The first seed
    /// of the base is run once more to count these
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    phases: u32,
    /// What to run, and how.
    #[command(flatten)]
    what: WhatArgs,
    /// What runs of both sides begin with.
    #[command(flatten)]
    begins: Begins,
    /// Also keep raw data and result in DIR: a new or empty directory, or that of the same command, which then
    /// continues; 'pagefold report DIR' shows its counters
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object (docs/json.md) instead of sentences and table
    #[arg(long)]
    json: bool,
}

/// `pagefold explain`.
pub(super) fn explain(args: &ExplainArgs) -> Result<()> {
    let out = args.out.as_deref();
    let (setup, measured) = measure_all(plan(args)?, &args.what, out, divide)?;
    let Measurement { records, host_seconds, failed, .. } = measured;
    // With one side alone there is nothing to explain.
    failed.first()?;
    let explanation = Explanation::of(setup, &records, host_seconds);
    output::show(&explanation, args.json)?;
    out.map_or(Ok(()), |path| {
        let text = human::rendered(human::WIDTH, |width| explanation.text(width));
        rundir::save_summary(path, &text, &explanation.json()?)
    })?;
    output::check_same_work(explanation.same_work, "sides")
}

/// Check the input.
pub(super) fn plan(args: &ExplainArgs) -> Result<Plan> {
    if args.what.preempts() {
        return Err(Error::input(
            "--preempt: times of stopped CPUs mean nothing, so they cannot be explained",
        ));
    }
    let other = args.other.as_ref().unwrap_or(&args.base);
    let conditions = conditions(args);
    // Profiles of one name are told apart by their conditions.
    let mut profiles = vec![args.base.clone()];
    profiles.extend(conditions.is_empty().then(|| other.clone()));
    let base = Some(args.base.clone());
    let mut plan = understand("explain", base, &profiles, args.runs, &args.what)?;
    plan.begin(&args.begins)?;
    if !conditions.is_empty() {
        add_other(&mut plan, args, format!("{other}{conditions}"))?;
    }
    plan.set(|config| config.task_time = true)?;
    plan.setup.phases = Some(args.phases).filter(|&phases| phases > 1);
    Ok(plan)
}

/// Have runs keep the time of tasks in as many phases of the program as its setup says.
fn divide(plan: &mut Plan) -> Result<()> {
    let Some(phases) = plan.setup.phases else { return Ok(()) };
    let mut cell = plan.cells[0].clone();
    cell.config.task_time = false;
    let accesses = cell.run(plan.setup.seed)?.work.accesses;
    plan.set(|config| config.phase = Some(accesses.div_ceil(u64::from(phases)).max(1)))
}

/// What the other side has besides its profile, in words.
fn conditions(args: &ExplainArgs) -> String {
    let machine = args.with_machine.as_ref().map(|machine| format!(" on {machine}"));
    let memory = args.with_memory.as_ref().map(|memory| format!(" with memory {memory}"));
    let swap = args.with_swap.iter().map(|area| format!(" with swap {area}"));
    machine.into_iter().chain(memory).chain(swap).collect()
}

/// Add a side on another machine, with other memory or other swap, as `column`.
fn add_other(plan: &mut Plan, args: &ExplainArgs, column: String) -> Result<()> {
    let other = args.other.as_ref().unwrap_or(&args.base);
    let mut with = understand("explain", None, std::slice::from_ref(other), args.runs, &args.what)?;
    let cell = &mut with.cells[0];
    if let Some(name) = &args.with_machine {
        (cell.machine_name, cell.machine) = (name.clone(), Arc::new(Machine::find(name)?));
        cell.config.machine = cell.machine.config().machine;
    }
    let memory = args.with_memory.map(|memory| memory.resolve(with.setup.peak_live));
    cell.config.memory = memory.or(cell.config.memory);
    cell.check_memory()?;
    with.begin(&args.begins)?;
    let cell = &mut with.cells[0];
    if !args.with_swap.is_empty() {
        cell.config.swap.clone_from(&args.with_swap);
        cell.machine.check_swap(&cell.config)?;
    }
    cell.column = Some(column.clone());
    plan.setup.with_machine.clone_from(&args.with_machine);
    plan.setup.with_memory = memory;
    plan.setup.with_swap = args.with_swap.iter().map(SwapSpec::to_string).collect();
    plan.setup.profiles.push(column.clone());
    plan.setup.knobs.extend(with.setup.knobs.remove(other).map(|knobs| (column, knobs)));
    plan.cells.append(&mut with.cells);
    Ok(())
}

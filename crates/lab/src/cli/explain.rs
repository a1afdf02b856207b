//! `explain`: runs a program under two settings, and tells why one takes longer.

use super::experiment::{Measurement, Plan, WhatArgs, measure_at_once, understand};
use super::output;
use crate::engine::Machine;
use crate::error::{Error, Result};
use crate::explain::Explanation;
use crate::size::Memory;
use clap::Args;
use std::sync::Arc;

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The profile to start from: NAME or NAME+KNOB=VALUE+... ('pagefold list profiles', 'list knobs')
    #[arg(long, default_value = "classic", value_name = "PROFILE")]
    base: String,
    /// The profile to explain [default: the base, on another machine or with other memory]
    #[arg(long = "with", value_name = "PROFILE", required_unless_present_any = ["with_machine", "with_memory"])]
    other: Option<String>,
    /// The machine of the other side, like laptop+slow=2 [default: the same]
    #[arg(long, value_name = "PRESET|FILE.toml")]
    with_machine: Option<String>,
    /// Memory of the other side, as --memory takes it [default: the same]
    #[arg(long, value_name = "BYTES|SHARE%", allow_hyphen_values = true)]
    with_memory: Option<Memory>,
    /// The most runs of each side, with seeds SEED, SEED+1, ...; from 10 on no more are done once intervals are narrow,
    /// as 'compare' has it
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// What to run, and how.
    #[command(flatten)]
    what: WhatArgs,
    /// Print one JSON object (docs/json.md) instead of sentences and table
    #[arg(long)]
    json: bool,
}

/// `pagefold explain`.
pub(super) fn explain(args: &ExplainArgs) -> Result<()> {
    let (setup, measured) = measure_at_once(plan(args)?, &args.what)?;
    let Measurement { records, host_seconds, failed, .. } = measured;
    // With one side alone there is nothing to explain.
    failed.first()?;
    let memory = args.with_memory.map(|memory| memory.resolve(setup.peak_live));
    let explanation = Explanation::of(setup, &records, host_seconds);
    let explanation =
        Explanation { with_machine: args.with_machine.clone(), with_memory: memory, ..explanation };
    output::show(&explanation, args.json)?;
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
    let (column, conditions) = column(args, other);
    // Profiles of one name are told apart by their conditions.
    let profiles = if conditions { vec![args.base.clone()] } else { vec![args.base.clone(), other.clone()] };
    let base = Some(args.base.clone());
    let mut plan = understand("explain", base, &profiles, args.runs, &args.what)?;
    if conditions {
        let profile = std::slice::from_ref(other);
        let mut with = understand("explain", None, profile, args.runs, &args.what)?;
        let cell = &mut with.cells[0];
        if let Some(name) = &args.with_machine {
            (cell.machine_name, cell.machine) = (name.clone(), Arc::new(Machine::find(name)?));
            cell.config.machine = cell.machine.config().machine;
        }
        if let Some(memory) = args.with_memory {
            cell.config.memory = Some(memory.resolve(with.setup.peak_live));
        }
        cell.check_memory()?;
        cell.column = Some(column.clone());
        plan.setup.profiles.push(column.clone());
        plan.setup.knobs.extend(with.setup.knobs.remove(other).map(|knobs| (column, knobs)));
        plan.cells.append(&mut with.cells);
    }
    plan.set(|config| config.task_time = true)?;
    Ok(plan)
}

/// The name of the other side, and whether it has another machine or memory.
fn column(args: &ExplainArgs, other: &str) -> (String, bool) {
    let machine = args.with_machine.as_ref().map(|machine| format!(" on {machine}"));
    let memory = args.with_memory.as_ref().map(|memory| format!(" with memory {memory}"));
    let conditions: Vec<String> = machine.into_iter().chain(memory).collect();
    (format!("{other}{}", conditions.concat()), !conditions.is_empty())
}

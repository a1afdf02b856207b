//! `bound`: one run of each policy, compared with the fewest flushes that can be safe.

use super::experiment::{Measurement, WhatArgs, measure_all, understand};
use super::output;
use crate::bound::{self, BoundSummary};
use crate::error::Result;
use clap::Args;

/// Arguments of `bound`.
#[derive(Debug, Args)]
pub struct BoundArgs {
    /// A profile; may be given several times [default: one for each policy of the knob tlb.unmap]
    #[arg(long = "profile", value_name = "PROFILE")]
    profiles: Vec<String>,
    /// What to run, and how.
    #[command(flatten)]
    what: WhatArgs,
    /// Print one JSON object (docs/json.md) instead of the table
    #[arg(long)]
    json: bool,
}

/// `pagefold bound`.
pub(super) fn bound(args: BoundArgs) -> Result<()> {
    let profiles = match args.profiles.is_empty() {
        true => bound::policies().map(str::to_owned).collect(),
        false => args.profiles,
    };
    let mut plan = understand("bound", None, &profiles, 1, &args.what)?;
    plan.set(|config| config.bound = true)?;
    let (setup, measured) = measure_all(plan, &args.what, None, |_| Ok(()))?;
    let Measurement { records, host_seconds, failed, .. } = measured;
    let summary = BoundSummary::of(setup.without(&failed.why()), &records, host_seconds);
    output::either(args.json, &summary, |width| bound::render(&summary, width))?;
    failed.first()
}

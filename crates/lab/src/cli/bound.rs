//! `bound`: one run of each policy, held against the fewest flushes that can be safe.

use super::args::BoundArgs;
use super::experiment::{Measurement, interrupted, measure, understand};
use super::output;
use super::resume::{Resumed, Unwritten};
use crate::bound::{self, BoundSummary};
use crate::document::to_json;
use crate::engine::Options;
use crate::error::Result;
use crate::experiment::Ended;
use crate::interrupt;

/// `pagefold bound`.
pub(super) fn bound(args: BoundArgs) -> Result<()> {
    let profiles = match args.profiles.is_empty() {
        true => bound::policies().map(str::to_owned).collect(),
        false => args.profiles,
    };
    let mut plan = understand("bound", None, &profiles, 1, &args.what)?;
    plan.set(Options { bound: true, ..plan.options().clone() })?;
    interrupt::install()?;
    let setup = plan.setup.clone();
    let runs = Resumed::open(None, Unwritten::End)?;
    let Measurement { records, ended, host_seconds } = measure(plan, &runs, &args.what)?;
    if ended == Ended::Interrupted {
        return Err(interrupted(&setup, &records, None));
    }
    let summary = BoundSummary::of(setup, &records, host_seconds);
    output::print(&if args.json { to_json(&summary)? } else { bound::render(&summary) })
}

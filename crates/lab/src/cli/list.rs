//! `list`: names that commands accept.

use super::output;
use crate::engine::DEFAULT_MACHINE;
use crate::error::Result;
use crate::list;
use clap::{Args, ValueEnum};

/// A list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Topic {
    /// Machines that --machine knows by name
    Machines,
    /// Profiles
    Profiles,
    /// Built-in programs
    Programs,
    /// Knobs with default, range and unit
    Knobs,
    /// Counters that --all shows
    Counters,
    /// Rows of every result
    Metrics,
    /// Trace events
    Events,
    /// Published comparisons that can be repeated
    Reproductions,
    /// What each kind of work costs on a machine, with the source of the number
    Costs,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// What to list [default: what can be listed]
    #[arg(value_enum)]
    topic: Option<Topic>,
    /// The machine whose costs to list
    #[arg(long, value_name = "PRESET|FILE.toml", default_value = DEFAULT_MACHINE)]
    machine: String,
    /// Print a JSON array of objects
    #[arg(long)]
    json: bool,
}

/// `pagefold list`.
pub(super) fn list(args: &ListArgs) -> Result<()> {
    let Some(topic) = args.topic else { return output::print_listing(&topics(), args.json) };
    let listing = match topic {
        Topic::Machines => list::machines(),
        Topic::Profiles => list::profiles(),
        Topic::Programs => list::programs(),
        Topic::Knobs => list::knobs(),
        Topic::Counters => list::counters(),
        Topic::Metrics => list::metrics(),
        Topic::Events => list::events(),
        Topic::Reproductions => list::reproductions(),
        Topic::Costs => list::costs(&args.machine)?,
    };
    output::print_listing(&listing, args.json)
}

/// The topics with their help.
fn topics() -> list::Listing {
    let topics = Topic::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    list::topics(topics.map(|topic| {
        let help = topic.get_help().map(ToString::to_string).unwrap_or_default();
        (topic.get_name().to_owned(), help)
    }))
}

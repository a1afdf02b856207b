//! `list`: names that commands accept.

use super::output;
use crate::engine::DEFAULT_MACHINE;
use crate::error::Result;
use crate::list::{self, Listing};
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
    /// Print tables of Markdown; without a topic all of them, which is docs/reference.md
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// `pagefold list`.
pub(super) fn list(args: &ListArgs) -> Result<()> {
    match args.topic {
        None if args.markdown => output::print(&reference(&args.machine)?),
        None => output::print_listing(&topics(), args.json),
        Some(topic) if args.markdown => output::print(&listing(topic, &args.machine)?.to_markdown()),
        Some(topic) => output::print_listing(&listing(topic, &args.machine)?, args.json),
    }
}

/// One list.
fn listing(topic: Topic, machine: &str) -> Result<Listing> {
    Ok(match topic {
        Topic::Machines => list::machines(),
        Topic::Profiles => list::profiles(),
        Topic::Programs => list::programs(),
        Topic::Knobs => list::knobs(),
        Topic::Counters => list::counters(),
        Topic::Metrics => list::metrics(),
        Topic::Events => list::events(),
        Topic::Reproductions => list::reproductions(),
        Topic::Costs => list::costs(machine)?,
    })
}

/// All lists as a document.
fn reference(machine: &str) -> Result<String> {
    let mut text = format!(
        "# Reference\n\nAll names that commands accept, as `pagefold list TOPIC` has them; costs are those of the machine\n\
         `{machine}`. `pagefold list --markdown` makes this page.\n"
    );
    for topic in Topic::value_variants() {
        let value = topic.to_possible_value().expect("every topic has a name");
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        text += &format!("\n## {}\n\n{help}.\n\n", capital(value.get_name()));
        text += &listing(*topic, machine)?.to_markdown();
    }
    Ok(text)
}

fn capital(word: &str) -> String {
    word[..1].to_uppercase() + &word[1..]
}

/// The topics with their help.
fn topics() -> Listing {
    let topics = Topic::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    list::topics(topics.map(|topic| {
        let help = topic.get_help().map(ToString::to_string).unwrap_or_default();
        (topic.get_name().to_owned(), help)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_as_the_lists_are() {
        let page = include_str!("../../../../docs/reference.md");
        let now = reference(DEFAULT_MACHINE).unwrap();
        let differs = page.lines().zip(now.lines()).find(|(old, new)| old != new);
        assert!(page == now, "'pagefold list --markdown > docs/reference.md' makes it; first: {differs:?}");
    }
}

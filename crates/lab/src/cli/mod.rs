//! From arguments to exit code.

mod args;
mod boot;
mod bound;
mod curve;
mod doctor;
mod experiment;
mod groups;
mod linux;
mod many;
mod nodes;
mod optimum;
mod output;
mod parts;
mod reproduce;
mod resume;
mod shell;
mod sweep;
mod tracing;
mod visit;

use crate::document::to_json;
use crate::error::{Error, Result};
use crate::record::RunRecord;
use crate::{list, replay, rundir, summary, svg, table};
use args::{Cli, Command, ListArgs, ReportArgs};
use clap::{Parser, ValueEnum};
use std::ffi::OsString;

/// Do what the command line says.
pub fn main(args: impl IntoIterator<Item = OsString>) -> Result<()> {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return Err(Error::Input(one_line(&error.render().to_string()))),
        Err(help) => return output::print(&help.render().to_string()),
    };
    replay::install_panic_hook();
    match cli.command {
        Command::Run(args) => experiment::run(args),
        Command::Compare(args) => experiment::compare(args),
        Command::Reproduce(args) => reproduce::reproduce(&args),
        Command::Parts(args) => parts::parts(&args),
        Command::Bound(args) => bound::bound(args),
        Command::Optimum(args) => optimum::optimum(&args),
        Command::Curve(args) => curve::curve(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Boot(args) => boot::boot(&args),
        Command::Linux(args) => linux::linux(&args),
        Command::Truth(args) => linux::truth(&args),
        Command::Report(args) => report(&args),
        Command::Record(args) => tracing::record(args),
        Command::Import(args) => tracing::import(&args),
        Command::Info(args) => tracing::info(&args),
        Command::List(args) => list_topic(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
    }
}

/// Clap explains itself over several lines; an error of ours is one.
fn one_line(text: &str) -> String {
    let useful = text.lines().map(str::trim).take_while(|line| !line.starts_with("For more information"));
    let words: Vec<&str> = useful
        .filter(|line| !line.is_empty())
        .map(|line| line.strip_prefix("error: ").unwrap_or(line))
        .collect();
    let (usage, message): (Vec<&str>, Vec<&str>) = words.iter().partition(|line| line.starts_with("Usage:"));
    match usage.first() {
        // With nothing asked for, clap prints its whole help as an error.
        Some(_) if message.contains(&"Commands:") => {
            "no command given; 'pagefold --help' lists them".to_owned()
        }
        Some(usage) => format!("{} ({})", sentence(&message), usage.replace("Usage:", "usage:")),
        None => sentence(&message),
    }
}

fn sentence(lines: &[&str]) -> String {
    lines.join(" ").replace(" tip: ", "; ")
}

fn report(args: &ReportArgs) -> Result<()> {
    let (setup, done) = rundir::load(&args.dir)?;
    let planned = setup.runs;
    let host_seconds = done.iter().map(|done| done.host_seconds).fold(0.0, f64::max);
    let records: Vec<RunRecord> = done.into_iter().map(|done| done.record).collect();
    let summary = summary::Summary::of(setup, &records, host_seconds, args.style.all);
    if summary.setup.runs == 0 {
        return Err(Error::Input(format!("{}: no seed was finished by all profiles", args.dir.display())));
    }
    if summary.setup.runs < planned {
        eprintln!("pagefold: {}: {} of {planned} runs were finished", args.dir.display(), summary.setup.runs);
    }
    if let Some(path) = &args.svg {
        if !svg::has_changes(&summary) {
            return Err(Error::Input(format!(
                "{}: a result of 'run' has no changes to draw; 'pagefold compare' makes one",
                args.dir.display()
            )));
        }
        output::save(path, &svg::render(&summary))?;
    }
    if args.style.json { output::print(&to_json(&summary)?) } else { output::print(&table::render(&summary)) }
}

fn list_topic(args: &ListArgs) -> Result<()> {
    use args::Topic;
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

/// What can be listed.
fn topics() -> list::Listing {
    let topics = args::Topic::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    list::topics(topics.map(|topic| {
        let help = topic.get_help().map(ToString::to_string).unwrap_or_default();
        (topic.get_name().to_owned(), help)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claps_explanations_become_one_line() {
        let text = "error: unexpected argument '--memori' found\n\n  tip: a similar argument exists: '--memory'\n\n\
                    Usage: pagefold run --memory <M> <PROGRAM>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_line(text),
            "unexpected argument '--memori' found; a similar argument exists: '--memory' \
             (usage: pagefold run --memory <M> <PROGRAM>)"
        );
        assert_eq!(
            one_line("Does things\n\nUsage: pagefold <COMMAND>\n\nCommands:\n  run"),
            "no command given; 'pagefold --help' lists them"
        );
    }
}

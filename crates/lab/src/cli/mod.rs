//! The command line: from arguments to the exit code.

mod args;
mod boot;
mod bound;
mod calibrate;
mod curve;
mod defaults;
mod doctor;
mod drawing;
mod experiment;
mod explain;
mod groups;
mod importing;
mod linux;
mod list;
mod need;
mod optimum;
mod options;
mod output;
mod outside;
mod page;
mod parts;
mod pc;
mod report;
mod reproduce;
mod resume;
mod scale;
mod shell;
pub mod spread;
mod swap;
mod sweep;
mod tracing;
mod truth;
mod tune;
mod visit;

use crate::caller::Caller;
use crate::engine::set_custom_policy;
use crate::error::{Error, Result};
pub use importing::import_accesses;
pub use trace::import::Accesses;

use crate::replay;
use args::{Cli, Command};
use clap::{CommandFactory, FromArgMatches};
use mm::policy::MakePolicy;
use std::ffi::OsString;
use std::process::ExitCode;

/// The program `pagefold`: run the command that this process's arguments name, and say how it ended.
pub fn start() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let ended = match outside::hand_over(&args) {
        Ok(Some(code)) => return ExitCode::from(code),
        Ok(None) => main(args),
        Err(error) => Err(error),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, Error::BrokenPipe) {
                eprintln!("pagefold: {}", error.line());
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// The same with a replacement policy from outside, which `reclaim.policy=custom` is.
pub fn start_with(policy: MakePolicy) -> ExitCode {
    set_custom_policy(policy);
    outside::note();
    start()
}

/// Run the command that the arguments name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> Result<()> {
    let command = match parse(args)? {
        Asked::Run(command) => command,
        Asked::Help(text) => return output::print(&text),
    };
    // A caller's process does not end with a run.
    if Caller::current().is_none() {
        replay::install_panic_hook();
    }
    match *command {
        Command::Run(args) => experiment::run(&args),
        Command::Compare(args) => experiment::compare(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Reproduce(args) => reproduce::reproduce(&args),
        Command::Parts(args) => parts::parts(&args),
        Command::Bound(args) => bound::bound(args),
        Command::Optimum(args) => optimum::optimum(&args),
        Command::Curve(args) => curve::curve(&args),
        Command::Need(args) => need::need(&args),
        Command::Scale(args) => scale::scale(&args),
        Command::Swap(args) => swap::swap(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Boot(args) => boot::boot(&args),
        Command::Linux(args) => linux::linux(&args),
        Command::Truth(args) => truth::truth(&args),
        Command::Report(args) => report::report(&args),
        Command::Record(args) => tracing::record(args),
        Command::Import(args) => importing::import(&args),
        Command::Info(args) => tracing::info(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::List(args) => list::list(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Completions(args) => shell::completions(&args, Cli::command()),
        Command::Man(args) => shell::man(&args, Cli::command()),
    }
}

/// Check arguments without running what they name: those of `run`, `compare`, `explain` and `sweep` as these do; those
/// of other commands only by clap.
pub fn check(args: impl IntoIterator<Item = OsString>) -> Result<()> {
    let Asked::Run(command) = parse(args)? else { return Ok(()) };
    match *command {
        Command::Run(args) => experiment::plan_run(&args).map(drop),
        Command::Compare(args) => experiment::plan_compare(&args).map(drop),
        Command::Explain(args) => explain::plan(&args).map(drop),
        Command::Sweep(args) => sweep::plan(&args).map(drop),
        _ => Ok(()),
    }
}

/// What arguments ask for.
enum Asked {
    Run(Box<Command>),
    /// To print this.
    Help(String),
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Asked> {
    let args: Vec<OsString> = args.into_iter().collect();
    let matches = defaults::commands()?.try_get_matches_from(&args);
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => Ok(Asked::Run(Box::new(cli.command))),
        Err(error) if error.use_stderr() => {
            let source = defaults::source(&error, &args).map(|file| format!("{}: ", file.display()));
            Err(Error::Input(source.unwrap_or_default() + &one_line(&error.render().to_string())))
        }
        Err(help) => Ok(Asked::Help(help.render().to_string())),
    }
}

/// Turn an error of clap, which takes several lines, into one line.
fn one_line(text: &str) -> String {
    let useful = text.lines().map(str::trim).take_while(|line| !line.starts_with("For more information"));
    let words: Vec<&str> = useful
        .filter(|line| !line.is_empty())
        .map(|line| line.strip_prefix("error: ").unwrap_or(line))
        .collect();
    let (usage, message): (Vec<&str>, Vec<&str>) = words.iter().partition(|line| line.starts_with("Usage:"));
    match usage.first() {
        // Without a command, clap prints its whole help as an error.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_clap_become_one_line() {
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

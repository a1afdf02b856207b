//! `completions` and `man`: output for shells and man(1), generated from the declaration of arguments.

use super::output;
use crate::error::{Error, Result};
use crate::list::{self, Listing};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command};
use clap_complete::Shell;
use std::path::PathBuf;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The directory for the pages; files with other names stay
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// `pagefold completions`.
pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<()> {
    command = command.mut_subcommands(|command| command.mut_args(with_names));
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "pagefold", &mut script);
    let script = String::from_utf8_lossy(&script);
    output::print(&match args.shell {
        Shell::Zsh => script.split_inclusive('\n').map(or_a_file).collect(),
        Shell::Fish => or_files(&script) + &positionals(&command),
        _ => script.into_owned(),
    })
}

/// The argument with the names that it takes. They are only offered: files and other forms are accepted, too.
fn with_names(argument: Arg) -> Arg {
    // clap keeps names that live as long as the process, which ends soon.
    let all = |listing: Listing, end: &str| -> Vec<&'static str> {
        listing.names().map(|name| &*format!("{name}{end}").leak()).collect()
    };
    let names = match argument.get_id().as_str() {
        "profile" | "profiles" | "base" | "others" => all(list::profiles(), ""),
        "settings" | "knobs" => all(list::knobs(), "="),
        "metric" => all(list::metrics(), ""),
        "machine" => all(list::machines(), ""),
        "program" | "programs" => all(list::programs(), ""),
        "name" => all(list::reproductions(), ""),
        _ => return argument,
    };
    argument.value_parser(PossibleValuesParser::new(names))
}

/// A line of zsh's script that offers programs or machines offers files, too: traces and descriptions are.
fn or_a_file(line: &str) -> String {
    let names = line.strip_suffix(")' \\\n").and_then(|line| line.rsplit_once(":("));
    let takes_files = [":program", "--program=", "--machine="].iter().any(|start| line.contains(start));
    match names.filter(|_| takes_files) {
        Some((head, names)) => format!("{head}:{{compadd {names}; _files}}' \\\n"),
        None => line.to_owned(),
    }
}

/// The same of fish's script, where `-f` is: no files.
fn or_files(script: &str) -> String {
    let line = |line: &str| match [" -l program ", " -l machine "].iter().any(|flag| line.contains(flag)) {
        true => line.replace(" -r -f -a ", " -r -F -a "),
        false => line.to_owned(),
    };
    script.split_inclusive('\n').map(line).collect()
}

/// For fish, the values of arguments without a flag, which its generator leaves out.
fn positionals(command: &Command) -> String {
    let line = |command: &Command| {
        let values = command.get_positionals().flat_map(Arg::get_possible_values);
        let names: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
        let when = format!("__fish_pagefold_using_subcommand {}", command.get_name());
        (!names.is_empty())
            .then(|| format!("complete -c pagefold -n \"{when}\" -a \"{}\"\n", names.join(" ")))
    };
    command.get_subcommands().filter_map(line).collect()
}

/// `pagefold man`.
pub(super) fn man(args: &ManArgs, command: Command) -> Result<()> {
    std::fs::create_dir_all(&args.dir).map_err(|error| Error::output("create", &args.dir, &error))?;
    let written = clap_mangen::generate_to(command, &args.dir);
    written.map_err(|error| Error::output("write pages to", &args.dir, &error))
}

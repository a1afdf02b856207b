//! Defaults of the user: a file with values of options that the command line does not give.

use super::args::Cli;
use crate::error::{Error, Result};
use crate::{replay, suggest};
use clap::{Arg, Command, CommandFactory};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file's place in the environment. An empty one means that there is no file.
const VARIABLE: &str = "PAGEFOLD_CONFIG";

/// The commands, with the defaults of the user's file if there is one.
pub(super) fn commands() -> Result<Command> {
    let Some(path) = path() else { return Ok(Cli::command()) };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::Input(format!("{VARIABLE}: cannot read {}: {error}", path.display())))?;
    replay::note_defaults(&path);
    apply(Cli::command(), &text).map_err(|why| Error::Input(format!("{}: {why}", path.display())))
}

/// Where an option's value comes from that clap refuses: the user's file, if it is not among the arguments.
pub(super) fn source(error: &clap::Error, arguments: &[OsString]) -> Option<PathBuf> {
    let refused = error.get(clap::error::ContextKind::InvalidArg)?.to_string();
    let flag = refused.split([' ', '=']).next().filter(|flag| flag.starts_with("--"))?;
    let is_given = arguments.iter().any(|word| word.to_string_lossy().split('=').next() == Some(flag));
    if is_given { None } else { path() }
}

/// The file: the one that the environment names, else the one in the folder for settings, if it is there.
fn path() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return (!named.is_empty()).then(|| named.into());
    }
    let folder = |name: &str| std::env::var_os(name).filter(|path| Path::new(path).is_absolute());
    let settings = folder("XDG_CONFIG_HOME").map(PathBuf::from);
    let settings = settings.or_else(|| folder("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some(settings.join("pagefold/config.toml")).filter(|path| path.is_file())
}

/// The commands with the defaults of a file's text: at the top those of every command that has the option, in a table
/// with a command's name those of that command alone.
fn apply(mut commands: Command, text: &str) -> Result<Command, String> {
    let line = |span: std::ops::Range<usize>| 1 + text[..span.start.min(text.len())].matches('\n').count();
    let file = DeTable::parse(text).map_err(|error| {
        let line = error.span().map(line).unwrap_or(1);
        format!("line {line}: {}", error.message().replace('\n', " "))
    })?;
    // A command's own defaults come after those of all.
    let (tables, common): (Vec<_>, Vec<_>) =
        file.get_ref().iter().partition(|(_, value)| matches!(value.get_ref(), DeValue::Table(_)));
    for (name, value) in common {
        let at = |why| format!("line {}: {why}", line(name.span()));
        let values = texts(value).map_err(at)?;
        commands = of_all(commands, name.get_ref(), values).map_err(at)?;
    }
    for (command, table) in tables {
        let DeValue::Table(table) = table.get_ref() else { continue };
        if commands.find_subcommand(&**command.get_ref()).is_none() {
            let names = commands.get_subcommands().map(Command::get_name);
            let hint = hint(suggest::nearest(command.get_ref(), names));
            return Err(format!(
                "line {}: there is no command '{}'{hint}",
                line(command.span()),
                command.get_ref()
            ));
        }
        for (name, value) in table {
            let at = |why| format!("line {}: {why}", line(name.span()));
            let values = texts(value).map_err(at)?;
            commands = of_one(commands, command.get_ref(), name.get_ref(), values).map_err(at)?;
        }
    }
    Ok(commands)
}

/// Give every command that has the option this default.
fn of_all(commands: Command, option: &str, values: Vec<&'static str>) -> Result<Command, String> {
    let have: Vec<String> = commands
        .get_subcommands()
        .filter(|command| find(command, option).is_some())
        .map(|command| command.get_name().to_owned())
        .collect();
    if have.is_empty() {
        let options = commands.get_subcommands().flat_map(Command::get_arguments).filter_map(Arg::get_long);
        return Err(format!(
            "no command has an option '--{option}'{}",
            hint(suggest::nearest(option, options))
        ));
    }
    have.iter().try_fold(commands, |commands, command| of_one(commands, command, option, values.clone()))
}

/// Give one command this default.
fn of_one(
    commands: Command,
    command: &str,
    option: &str,
    values: Vec<&'static str>,
) -> Result<Command, String> {
    let declared = commands.find_subcommand(command).expect("the caller has looked");
    let Some(argument) = find(declared, option) else {
        let options = declared.get_arguments().filter_map(Arg::get_long);
        let hint = hint(suggest::nearest(option, options));
        return Err(format!("'{command}' has no option '--{option}'{hint}"));
    };
    if values.len() != 1 && !argument.get_action().takes_values() {
        return Err(format!("'{option}' is true or false"));
    }
    let id = argument.get_id().clone();
    // What an option must come with is asked of what is typed alone.
    Ok(commands.mut_subcommand(command, |command| {
        command.mut_arg(id, |argument| argument.default_values(values).required(false))
    }))
}

fn find<'a>(command: &'a Command, option: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|argument| argument.get_long() == Some(option))
}

fn hint(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default()
}

/// A value as words of a command line. They live as long as the process, as clap wants it.
fn texts(value: &Spanned<DeValue<'_>>) -> Result<Vec<&'static str>, String> {
    let one = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(text) => Ok(&*text.to_string().leak()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(&*number.as_str().to_owned().leak()),
        DeValue::Float(number) => Ok(&*number.as_str().to_owned().leak()),
        DeValue::Boolean(true) => Ok("true"),
        DeValue::Boolean(false) => Ok("false"),
        _ => Err("values are texts, decimal numbers, true or false, or lists of these".to_owned()),
    };
    match value.get_ref() {
        DeValue::Array(several) => several.iter().map(one).collect(),
        _ => Ok(vec![one(value)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ArgMatches;

    fn parsed(text: &str, line: &str) -> ArgMatches {
        apply(Cli::command(), text).unwrap().try_get_matches_from(line.split(' ')).unwrap()
    }

    fn of<'a>(matches: &'a ArgMatches, option: &str) -> Vec<&'a str> {
        let (_, matches) = matches.subcommand().unwrap();
        let values = matches.get_raw(option).unwrap();
        values.map(|value| value.to_str().unwrap()).collect()
    }

    #[test]
    fn what_is_typed_wins_over_a_commands_default_and_that_over_the_default_of_all() {
        let text = "machine = \"small\"\nset = [\"vm.swappiness=1\", \"vm.page-cluster=0\"]\n[compare]\nruns = 5\n\
                    machine = \"icelake-96\"\njson = true\n";
        let run = parsed(text, "pagefold run zipf:1M");
        assert_eq!((of(&run, "machine"), of(&run, "runs")), (vec!["small"], vec!["1"]));
        assert_eq!(of(&run, "settings"), ["vm.swappiness=1", "vm.page-cluster=0"]);
        let compare = parsed(text, "pagefold compare zipf:1M --with lazy");
        assert_eq!((of(&compare, "machine"), of(&compare, "runs")), (vec!["icelake-96"], vec!["5"]));
        assert!(compare.subcommand().unwrap().1.get_flag("json"));
        let typed =
            parsed(text, "pagefold compare zipf:1M --with lazy --machine laptop --set vm.swappiness=9");
        assert_eq!(
            (of(&typed, "machine"), of(&typed, "settings")),
            (vec!["laptop"], vec!["vm.swappiness=9"])
        );
    }

    #[test]
    fn wrong_file_is_told_with_its_line() {
        for (text, expected) in [
            ("\nmachin = \"small\"", "line 2: no command has an option '--machin'; did you mean 'machine'?"),
            ("[compar]\nruns = 5", "line 1: there is no command 'compar'; did you mean 'compare'?"),
            ("[run]\nwith = \"lazy\"", "line 2: 'run' has no option '--with'"),
            (
                "runs = 2020-01-01",
                "line 1: values are texts, decimal numbers, true or false, or lists of these",
            ),
            ("json = [true, true]", "line 1: 'json' is true or false"),
        ] {
            let why = apply(Cli::command(), text).unwrap_err();
            assert!(why.starts_with(expected), "{text}: {why}");
        }
        assert!(apply(Cli::command(), "runs = \n").unwrap_err().starts_with("line 1: "));
    }
}

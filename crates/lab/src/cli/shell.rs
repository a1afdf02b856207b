//! `completions` and `man`: output for shells and man(1), generated from the declaration of arguments.

use super::output;
use crate::error::{Error, Result};
use clap::{Args, Command};
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
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "pagefold", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// `pagefold man`.
pub(super) fn man(args: &ManArgs, command: Command) -> Result<()> {
    std::fs::create_dir_all(&args.dir).map_err(|error| Error::file("create", &args.dir, error))?;
    let written = clap_mangen::generate_to(command, &args.dir);
    written.map_err(|error| Error::file("write pages to", &args.dir, error))
}

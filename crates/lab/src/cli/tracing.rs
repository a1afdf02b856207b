//! Commands about traces.

use super::args::{ImportArgs, InfoArgs, RecordArgs};
use super::output;
use crate::engine;
use crate::error::{Error, Result};
use std::path::Path;

pub(super) fn record(args: RecordArgs) -> Result<()> {
    must_not_exist(&args.output)?;
    let note = engine::record(&args.output, args.command)?;
    eprintln!("pagefold: {note}");
    Ok(())
}

pub(super) fn import(args: &ImportArgs) -> Result<()> {
    must_not_exist(&args.output)?;
    let super::args::Format::Lackey = args.format;
    let note = engine::import_lackey(&args.input, &args.output)?;
    eprintln!("pagefold: {note}");
    Ok(())
}

pub(super) fn info(args: &InfoArgs) -> Result<()> {
    let info = engine::info(&args.file)?;
    if args.json { output::print(&output::json(&info)?) } else { output::print(&info.to_string()) }
}

fn must_not_exist(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(_) => Err(Error::Input(format!(
            "{} exists already; nothing is overwritten, name another file",
            path.display()
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::file("use", path, error)),
    }
}

//! Commands about traces.

use super::args::{Format, ImportArgs, InfoArgs, RecordArgs};
use super::output;
use crate::engine;
use crate::error::Result;

pub(super) fn record(args: RecordArgs) -> Result<()> {
    let RecordArgs { output, command, keep, window } = args;
    let note = engine::record(engine::RecordRequest { output, command, keep, window })?;
    eprintln!("pagefold: {note}");
    Ok(())
}

pub(super) fn import(args: &ImportArgs) -> Result<()> {
    let note = match args.format {
        Format::Lackey => engine::import_lackey(&args.input, &args.output)?,
    };
    eprintln!("pagefold: {note}");
    Ok(())
}

pub(super) fn info(args: &InfoArgs) -> Result<()> {
    let info = engine::info(&args.file)?;
    if args.json { output::print(&output::json(&info)?) } else { output::print(&crate::info::render(&info)) }
}

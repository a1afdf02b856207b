//! Commands about traces.

use super::args::{Format, ImportArgs, InfoArgs, RecordArgs};
use super::output;
use crate::document::to_json;
use crate::engine;
use crate::error::{Error, Result};
use crate::{human, interrupt};
use indicatif::ProgressBar;
use std::io::IsTerminal;
use std::time::Duration;
use trace::record::Progress;

pub(super) fn record(args: RecordArgs) -> Result<()> {
    let RecordArgs { output, command, keep, window, duration } = args;
    interrupt::install()?;
    // The program has the terminal too, so there is a line only where its output goes elsewhere.
    let bar = match std::io::stdout().is_terminal() {
        true => ProgressBar::hidden(),
        false => ProgressBar::new_spinner(),
    };
    let duration = duration.map(Duration::from_secs);
    let request = engine::RecordRequest { output, command, keep, window, duration };
    let note = engine::record(request, |Progress { accesses, processes, bytes }| {
        bar.set_message(format!(
            "{} accesses by {}, {} so far",
            human::number(accesses as f64, ""),
            human::plural(processes as u64, "process", "processes"),
            human::bytes(bytes as f64)
        ));
        bar.tick();
        !interrupt::requested()
    });
    bar.finish_and_clear();
    let note = note?;
    if interrupt::requested() {
        return Err(Error::Interrupted(format!("interrupted; {note}")));
    }
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
    if args.json { output::print(&to_json(&info)?) } else { output::print(&crate::info::render(&info)) }
}

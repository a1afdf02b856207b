//! What a kernel on the machine would show under /proc at a run's end, in Linux's shapes.

use crate::record::{PressureFiles, PressureLine, ProcFiles};
use machine_sim::{FreeMemory, Outcome, Pressure, StallTime};
use std::fmt::Write;

/// The files by their paths under /proc; none if the run was not asked for them.
pub(super) fn files(outcome: &Outcome) -> ProcFiles {
    let Some(FreeMemory { zoneinfo, state }) = &outcome.free_memory else { return ProcFiles::new() };
    let mut files = ProcFiles::from([
        ("buddyinfo".to_owned(), state.buddyinfo()),
        ("pagetypeinfo".to_owned(), state.pagetypeinfo()),
        ("vmstat".to_owned(), vmstat(outcome)),
        ("zoneinfo".to_owned(), zoneinfo.clone()),
    ]);
    for (file, lines) in pressure_files(&outcome.pressure) {
        let name = file.split('.').next().unwrap_or(&file);
        // In Linux's order: some before full.
        let lines = lines.iter().rev().map(|(word, line)| format!("{word} {line}\n"));
        files.insert(format!("pressure/{name}"), lines.collect());
    }
    files
}

/// The files of pressure of the machine, or of a control group.
pub(super) fn pressure_files(pressure: &Pressure) -> PressureFiles {
    let line = |stalls: &StallTime| {
        let [avg10, avg60, avg300] = stalls.averages.map(|average| average as f64 / 100.0);
        PressureLine { avg10, avg60, avg300, total: stalls.total as f64 }
    };
    let file = |name: &str, [some, full]: &[StallTime; 2]| {
        (name.to_owned(), [("some".to_owned(), line(some)), ("full".to_owned(), line(full))].into())
    };
    [file("memory.pressure", &pressure.memory), file("io.pressure", &pressure.io)].into()
}

/// Counters whose names have a dot are not Linux's there: theirs are files of their own.
fn vmstat(outcome: &Outcome) -> String {
    let counters = outcome.stats.iter().filter(|(stat, _)| !stat.name().contains('.'));
    counters.fold(String::new(), |mut text, (stat, value)| {
        let _ = writeln!(text, "{} {value}", stat.name());
        text
    })
}

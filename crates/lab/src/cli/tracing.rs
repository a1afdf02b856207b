//! `record` and `info`: commands for traces.

use super::output;
use crate::engine;
use crate::error::{Error, Result};
use crate::size::parse_bytes;
use crate::{human, interrupt};
use clap::Args;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trace::record::Progress;

/// The time for a program to end by itself after Ctrl-C in its terminal, before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// Arguments of `record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The trace to write; an existing one is replaced only when the recording has succeeded
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Keep the trace even if the program fails (if a signal ends it, the trace is kept in any case)
    #[arg(long)]
    keep: bool,
    /// Pages that the recorder gathers into runs at once; larger makes smaller traces with a coarser order
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    window: Option<u32>,
    /// End the recording and the program after this time
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    duration: Option<u64>,
    /// End the recording and the program when the raw output has this size, e.g. 500M; the trace is smaller
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_size: Option<u64>,
    /// Record accesses only after this many million instructions, and begin with all that was written until then
    #[arg(long, value_name = "MILLIONS", default_value_t = 0, hide_default_value = true, value_parser = clap::value_parser!(u64).range(0..1 << 32))]
    after: u64,
    /// Record one in N pages, for programs that use much memory: N times the memory of a run is what the whole program
    /// would have
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    sample: u64,
    /// Show progress each second, even if standard error is not a terminal
    #[arg(long)]
    progress: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Arguments of `info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// A trace; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// `pagefold record`.
pub(super) fn record(args: RecordArgs) -> Result<()> {
    let RecordArgs { output, command, keep, window, duration, max_size, after, sample, progress } = args;
    let after = after * 1_000_000;
    if output == Path::new("-") {
        return Err(Error::input("-o -: the program's own output goes to standard output; name a file"));
    }
    interrupt::install()?;
    let duration = duration.map(Duration::from_secs);
    // Ctrl-C in a terminal also signals the program.
    let grace = if std::io::stdin().is_terminal() { GRACE } else { Duration::ZERO };
    let request =
        engine::RecordRequest { output, command, keep, window, duration, max_size, after, sample, grace };
    let mut shown = Shown::new(progress);
    let made = engine::record(request, |progress| {
        shown.show(progress);
        !interrupt::requested()
    });
    shown.clear();
    let made = made?;
    eprintln!("pagefold: {}", made.note);
    match made.unfollowed.as_slice() {
        [] => Ok(()),
        [first] => Err(Error::Failed(format!("warning: {first}"))),
        [first, others @ ..] => {
            let others = human::plural(others.len() as u64, "program", "programs");
            Err(Error::Failed(format!("warning: {first}; {others} more are missing (pagefold info)")))
        }
    }
}

/// Progress of a recording on standard error: in a terminal one line that changes each second, otherwise a line every
/// ten seconds, or every second if that is requested.
struct Shown {
    begun: Instant,
    last: Instant,
    every: Duration,
    in_place: bool,
    is_there: bool,
}

impl Shown {
    fn new(always: bool) -> Shown {
        let in_place = std::io::stderr().is_terminal();
        let every = Duration::from_secs(if in_place || always { 1 } else { 10 });
        Shown { begun: Instant::now(), last: Instant::now(), every, in_place, is_there: false }
    }

    fn show(&mut self, progress: Progress) {
        if self.last.elapsed() < self.every {
            return;
        }
        self.last = Instant::now();
        let line = line(self.begun.elapsed(), progress);
        if self.in_place {
            // Output of the program begins at the start of the line.
            eprint!("\r\x1b[K{line}\r");
            self.is_there = true;
        } else {
            eprintln!("{line}");
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_there) {
            eprint!("\r\x1b[K");
        }
    }
}

fn line(elapsed: Duration, progress: Progress) -> String {
    // Instructions a nanosecond on a CPU of 3 GHz with one instruction a cycle: the program's own speed is unknown.
    const NATIVE: f64 = 3.0;
    let Progress { accesses, instructions, cpu_nanos, processes, bytes } = progress;
    let slower = cpu_nanos as f64 * NATIVE / instructions.max(1) as f64;
    format!(
        "pagefold: {} s: {} accesses by {}, {} raw, some {slower:.0} times slower than alone",
        elapsed.as_secs(),
        human::number(accesses as f64, ""),
        human::plural(processes as u64, "process", "processes"),
        human::bytes(bytes as f64)
    )
}

/// `pagefold info`.
pub(super) fn info(args: &InfoArgs) -> Result<()> {
    let info = engine::info(&args.file)?;
    output::either(args.json, &info, |width| crate::info::render(&info, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_one_line() {
        let progress = Progress {
            accesses: 12_000_000,
            instructions: 20_000_000,
            cpu_nanos: 300_000_000,
            processes: 2,
            bytes: 1 << 20,
        };
        assert_eq!(
            line(Duration::from_millis(3700), progress),
            "pagefold: 3 s: 12.0 M accesses by 2 processes, 1.00 MiB raw, some 45 times slower than alone"
        );
    }
}

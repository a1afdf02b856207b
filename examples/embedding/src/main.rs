//! A small kernel around Pagefold's memory manager.
//!
//! Its CPUs are threads of the host, which really run in parallel. Its MMU is software, which keeps every
//! translation until it is told to drop it. It runs the conformance suite, and then programs on all CPUs that
//! store, share, fork and unmap, and check every word that they read. `docs/embedding.md` explains the code.
//!
//! `cargo run [POLICY [ROUNDS]]`: POLICY decides when translations of pages that reclaim unmaps are flushed,
//! as in `pagefold list knobs`: eager, batch, list, lazy, abis or latr. ROUNDS is the length of the programs
//! (default 400). Exit codes: 0 success, 1 failure, 2 bad arguments.

mod disk;
mod harness;
mod kernel;
mod machine;
mod mmu;
mod programs;
mod task;

use conformance::Report;
use mm::knobs::{Knob, Knobs};
use std::process::ExitCode;

fn main() -> ExitCode {
    let (knobs, rounds) = match arguments() {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("embedding: {problem}\nUsage: embedding [POLICY [ROUNDS]]");
            return ExitCode::from(2);
        }
    };
    if let Err(why) = kernel::boot(knobs) {
        eprintln!("the machine cannot be used: {why}");
        return ExitCode::FAILURE;
    }
    // This thread becomes the first task.
    task::get_cpu();
    let daemons = task::start_daemons();
    let conforms = run_suite();
    let found = programs::run(rounds).and_then(|done| Ok([done, programs::races::run()?].join("; ")));
    kernel::machine().stop();
    task::put_cpu();
    daemons.into_iter().for_each(|daemon| daemon.join().expect("a daemon must not panic"));
    let valid = kernel::mm().validate();
    match (&found, &valid) {
        (Ok(summary), Ok(())) => println!("programs: {summary}; validate: fine"),
        _ => println!("programs: {found:?}; validate: {valid:?}"),
    }
    if conforms && found.is_ok() && valid.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Parse the command line.
fn arguments() -> Result<(Knobs, u64), String> {
    let knobs = Knobs::default();
    let mut arguments = std::env::args().skip(1);
    if let Some(policy) = arguments.next() {
        let policies = Knob::TlbUnmap.info().words;
        let unknown = || format!("no policy '{policy}'; there are {}", policies.join(", "));
        let value = policies.iter().position(|&word| word == policy).ok_or_else(unknown)?;
        knobs.set(Knob::TlbUnmap, value as u64).map_err(|error| format!("{error:?}"))?;
    }
    let rounds = arguments.next().unwrap_or("400".into());
    let rounds = rounds.parse().map_err(|_| format!("'{rounds}' is not a number of rounds"))?;
    arguments.next().map_or(Ok((knobs, rounds)), |more| Err(format!("'{more}' is one argument too many")))
}

/// Run the suite, and print its report. Returns whether no check failed.
fn run_suite() -> bool {
    let mut report = Report::new();
    conformance::run(&harness::Embedding, &mut report);
    let mut table = String::new();
    report.print(&mut table).expect("writing to a string must succeed");
    print!("{table}");
    report.passed()
}

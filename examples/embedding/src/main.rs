//! A small kernel around Pagefold's memory manager.
//!
//! Its CPUs are threads of the host, which really run at the same time; its translation hardware is software, and keeps what it
//! has seen until it is told to drop it. It runs the conformance suite, and then programs on all CPUs that store, share,
//! fork and unmap, and look at every word that they read. `docs/embedding.md` walks through it.
//!
//! `cargo run [POLICY]`: POLICY is when translations of pages that reclaim unmaps are flushed, as in `pagefold list knobs`: eager, batch, list,
//! lazy, abis or latr. Exit codes: 0 fine, 1 something was found, 2 no such policy.

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
    let knobs = Knobs::default();
    if let Some(policy) = std::env::args().nth(1) {
        let policies = Knob::TlbUnmap.info().words;
        let Some(value) = policies.iter().position(|&word| word == policy) else {
            eprintln!("no policy '{policy}'; there are {}", policies.join(", "));
            return ExitCode::from(2);
        };
        knobs.set(Knob::TlbUnmap, value as u64).expect("every word has a value");
    }
    if let Err(why) = kernel::boot(knobs) {
        eprintln!("the machine cannot be used: {why}");
        return ExitCode::FAILURE;
    }
    // This thread becomes the first task.
    task::get_cpu();
    let daemons = task::start_daemons();
    let conforms = conform();
    let found = programs::run();
    kernel::machine().stop();
    task::put_cpu();
    daemons.into_iter().for_each(|daemon| daemon.join().expect("a panic ends the process"));
    let valid = kernel::mm().validate();
    match (&found, &valid) {
        (Ok(summary), Ok(())) => println!("programs: {summary}; validate: fine"),
        _ => println!("programs: {found:?}; validate: {valid:?}"),
    }
    if conforms && found.is_ok() && valid.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Run the suite, and print what it found.
fn conform() -> bool {
    let mut report = Report::new();
    conformance::run(&harness::Embedding, &mut report);
    let mut table = String::new();
    report.print(&mut table).expect("strings can always be written to");
    print!("{table}");
    report.passed()
}

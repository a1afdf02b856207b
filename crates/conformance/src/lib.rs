//! Checks of what a machine must do for the memory manager.
//!
//! A kernel that runs the crate `mm` on its hardware implements the trait [`Machine`](mm::Machine). A mistake
//! in that implementation shows late and far away: a translation that outlives its flush becomes a wrong byte
//! in a file a week later. The checks here test each promise of the contract alone, then run the whole memory
//! manager on the machine and compare every word that programs read.
//!
//! They run inside the kernel: no `std`, no test framework. The kernel implements [`Harness`], calls [`run`]
//! from a task, and prints the [`Report`]. `docs/embedding.md` shows how, and `examples/embedding` is a
//! complete example.
#![no_std]

extern crate alloc as std_alloc;

mod compression;
mod harness;
mod kit;
mod memory;
mod program;
mod raw;
mod report;
mod shootdown;
mod storage;
mod table;
mod topology;
mod translation;
mod waiting;
mod watch;
mod whole;
mod workers;

pub use harness::{Harness, Scratch};
pub use report::{NotPassed, Report, Row, Verdict};
pub use watch::IoWatch;

use kit::Kit;

/// Run all checks, one after the other, and add their results to `report`.
pub fn run<H: Harness>(harness: &H, report: &mut Report) {
    run_some(harness, report, "");
}

/// Run the checks whose `group.name` begins with `wanted`.
pub fn run_some<H: Harness>(harness: &H, report: &mut Report, wanted: &str) {
    for check in table::checks::<H>() {
        let name = check.full_name;
        if !name.starts_with(wanted) {
            continue;
        }
        harness.progress(format_args!("{name}"));
        let verdict = (check.body)(&Kit { harness, name });
        harness.watch().forget();
        harness.progress(format_args!("{name}: {}", report::word(&verdict)));
        report.rows.push(Row { group: check.group, name: check.name, shows: check.shows, verdict });
    }
}

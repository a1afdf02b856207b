//! What a machine must do for the memory manager, as checks.
//!
//! A kernel that brings the crate `mm` to its hardware implements the trait [`Machine`](mm::Machine). Whether it does
//! so truthfully shows late and far away: a translation that outlives its flush is a wrong byte in somebody's file a
//! week later. The checks here ask for each promise of the contract alone, then put the whole memory manager on the
//! machine and look at every word that programs read.
//!
//! They run inside the kernel: no `std`, no test framework. The kernel implements [`Harness`], calls [`run`] from a
//! task, and prints the [`Report`]. `docs/embedding.md` shows how, and `examples/embedding` does it in full.
#![no_std]

extern crate alloc as std_alloc;

mod crew;
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

pub use harness::{Harness, Scratch};
pub use report::{Report, Row, Stop, Verdict};
pub use watch::IoWatch;

use kit::Kit;

/// Run all checks, one after the other, and add their ends to `report`.
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

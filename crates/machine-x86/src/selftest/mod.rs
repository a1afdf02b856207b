//! The kernel's test of its own foundations, and a crash on request.
//!
//! Everything that programs rely on is tried once on the machine as it is: each test logs one line, and the first that fails
//! ends the run.

mod program;
mod stale;
mod tasks;
mod traps;

use crate::arch::clock;
use crate::{log, machine, report};
use mm::Machine;

/// A condition of a test: if it does not hold, the run has failed.
macro_rules! check {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            $crate::report::failed(format_args!("selftest: {}", format_args!($($text)*)));
        }
    };
}
use check;

/// Test everything, report, and end the run.
pub fn run() -> ! {
    let start = clock::now();
    traps::run();
    tasks::run();
    stale::run();
    let (accesses, threads) = program::run();
    let mm = machine::mm();
    if let Err(fault) = mm.validate() {
        report::failed(format_args!("selftest: validate: {fault}"));
    }
    log!("selftest: all well on {} cpus", mm.machine().cpus());
    report::counters();
    report::metrics();
    report::done(clock::now() - start, accesses, threads, threads);
    report::end_ok()
}

/// Read what is not there: the run must end with a report of that.
pub fn crash() -> ! {
    // SAFETY: not sound, and meant so: no program's half is mapped, so the load faults, and the fault handler ends the run.
    let value = unsafe { (0x1000_0000 as *const u64).read_volatile() };
    report::failed(format_args!("a load of unmapped memory gave {value:#x}"))
}

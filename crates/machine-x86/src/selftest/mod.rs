//! The kernel's test of its own foundations, and a crash on request.

use crate::report;

/// Test everything that programs rely on, report, and end the run.
pub fn run() -> ! {
    report::counters();
    report::metrics();
    report::end_ok()
}

/// Read what is not there: the run must end with a report of that.
pub fn crash() -> ! {
    // SAFETY: not sound, and meant so: no program's half is mapped, so the load faults, and the fault handler ends the run.
    let value = unsafe { (0x1000_0000 as *const u64).read_volatile() };
    report::failed(format_args!("a load of unmapped memory gave {value:#x}"))
}

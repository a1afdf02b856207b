//! The kernel's selftest, and deliberate crashes.
//!
//! Everything that programs rely on is tried once on the machine: each test logs one line, and the first
//! failure ends the run.

mod pressure;
mod program;
mod ram_disk;
mod stale;
mod tasks;
mod traps;

use crate::arch::clock;
use crate::{log, machine, quiesce, report};
use alloc::vec;
use alloc::vec::Vec;
use machine_x86::cmdline::Crash;
use mm::Machine;

/// A condition of a test: if it is false, the run fails.
macro_rules! check {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            $crate::report::failed(format_args!("selftest: {}", format_args!($($text)*)));
        }
    };
}
use check;

/// Run all tests, report, and end the run. `swap`: pages of swap space; with 0, programs do not use more
/// memory than there is. `packs`: some of it is compressed.
pub fn run(swap: u32, packs: bool) -> ! {
    let start = clock::now();
    traps::run();
    tasks::run();
    stale::run();
    let (mut accesses, mut threads) = program::run();
    if swap > 0 {
        let (more, others) = pressure::run(swap, packs);
        accesses += more;
        threads += others;
    }
    let mm = machine::mm();
    quiesce::quiesce();
    if let Err(fault) = mm.validate() {
        report::failed(format_args!("selftest: validate: {fault}"));
    }
    log!("selftest: passed on {} cpus", mm.machine().cpus());
    report::counters(&mm.mmu().stats);
    report::metrics();
    report::done(clock::now() - start, accesses, threads, threads);
    report::end_ok()
}

/// Crash in this way; the run must end with a report.
pub fn crash(how: Crash) -> ! {
    match how {
        Crash::Load => {
            // SAFETY: deliberately unsound: no program's half is mapped, so the load faults, and the handler
            // ends the run.
            let value = unsafe { (0x1000_0000 as *const u64).read_volatile() };
            log!("a load of unmapped memory gave {value:#x}");
        }
        Crash::Stack => log!("an endless recursion returned {}", recurse_forever(1)),
        Crash::Memory => {
            let mut all: Vec<Vec<u8>> = Vec::new();
            while all.len() < usize::MAX >> 20 {
                all.push(vec![1; 1 << 20]);
            }
        }
        Crash::Program => program::crash(),
    }
    report::failed(format_args!("selftest: {how:?} did not crash"))
}

/// Needs more stack than there is.
#[inline(never)]
fn recurse_forever(depth: u64) -> u64 {
    let room = core::hint::black_box([depth; 256]);
    if depth == u64::MAX { 0 } else { room[255] + recurse_forever(depth + 1) }
}

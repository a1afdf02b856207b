//! The calls of the benchmark itself: ring 3 asks ring 0 for counts, and passes results to it.

use crate::arch::cpu;
use crate::machine::mm;
use crate::{report, sched};
use alloc::format;
use core::sync::atomic::Ordering::*;
use mm::stat::Stat;

/// Idle time of all CPUs so far, in time stamps.
pub const IDLE: u64 = u64::MAX - 16;
/// A result: index of the operation in [`OPERATIONS`], tenths of an instruction for each unit, units.
pub const RESULT: u64 = u64::MAX - 17;
/// Timer interrupts of all CPUs so far.
pub const TICKS: u64 = u64::MAX - 18;
/// Pages migrated so far.
pub const MIGRATED: u64 = u64::MAX - 19;
/// The youngest generation of the root group.
pub const YOUNGEST: u64 = u64::MAX - 20;
/// Age the youngest generation, given its number.
pub const AGE: u64 = u64::MAX - 21;

/// The names of the operations in results.
pub const OPERATIONS: [&str; 9] = [
    "anon_fault",
    "munmap_1",
    "munmap_512",
    "stream",
    "reclaim_file",
    "munmap_shared_4",
    "compact_page",
    "reclaim_file_mglru",
    "age_page",
];

/// Handle a call of the benchmark in ring 0; `None` if it is not one.
pub fn serve(number: u64, args: [u64; 6]) -> Option<[u64; 2]> {
    match number {
        IDLE => Some([sched::idle_time(), 0]),
        TICKS => Some([cpu::all().iter().map(|cpu| cpu.counts.ticks.load(Relaxed)).sum(), 0]),
        MIGRATED => Some([mm().mmu().stats.read(Stat::PgmigrateSuccess) as u64, 0]),
        YOUNGEST => {
            let generations = mm().lru_gen(false);
            let youngest = generations.lines().last().and_then(|line| line.split_whitespace().next());
            Some([youngest.and_then(|seq| seq.parse().ok()).expect("a generation must have a number"), 0])
        }
        AGE => {
            mm().lru_gen_command(&format!("+ 0 0 {} 200 1", args[0]))
                .expect("the generation must be the youngest");
            Some([0; 2])
        }
        RESULT => {
            let name = OPERATIONS.get(args[0] as usize).copied().unwrap_or("unknown");
            report::instructions(name, args[1], args[2]);
            Some([0; 2])
        }
        _ => None,
    }
}

//! Faults and interrupts in the kernel leave its state intact.

use super::check;
use crate::arch::{apic, cpu, paging, torture, trap};
use crate::log;
use core::sync::atomic::Ordering::Relaxed;

/// Timer counts between two interrupts of the tests; short, for as many interrupts as possible.
const SHORT_PERIOD: u32 = 300;
const ROUNDS: u64 = 40_000;

pub fn run() {
    check!(trap::can_read(paging::DIRECT + 0x10_0000), "a load from mapped memory faults");
    check!(!trap::can_read(0x1000_0000), "a load from unmapped memory succeeds");
    check!(!trap::can_read(paging::STACKS), "a load from the hole below a kernel stack succeeds");
    log!("selftest: faults of the kernel are caught");
    let ticks = || cpu::all().iter().map(|cpu| cpu.counts.ticks.load(Relaxed)).sum::<u64>();
    let before = ticks();
    apic::start_timer_every(SHORT_PERIOD);
    let red_zone = torture::red_zone(ROUNDS);
    let vectors = torture::vectors(ROUNDS);
    apic::start_timer();
    let count = ticks() - before;
    check!(count > 0, "no timer interrupt occurred");
    check!(red_zone == 0, "{red_zone} words of a red zone changed under {count} interrupts");
    check!(vectors == 0, "{vectors} vector registers changed under {count} interrupts");
    log!("selftest: {count} interrupts left red zones and vector registers alone");
}

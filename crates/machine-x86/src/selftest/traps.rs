//! Faults and interrupts in the kernel leave everything as it was.

use super::check;
use crate::arch::{apic, cpu, paging, torture, trap};
use crate::log;
use core::sync::atomic::Ordering::Relaxed;

/// Timer counts between two interrupts of the tests: as many as come through.
const SHORT_PERIOD: u32 = 300;
const ROUNDS: u64 = 40_000;

pub fn run() {
    check!(trap::can_read(paging::DIRECT + 0x10_0000), "mapped memory cannot be read");
    check!(!trap::can_read(0x1000_0000), "memory can be read that is not mapped");
    check!(!trap::can_read(paging::STACKS), "the hole below a kernel stack can be read");
    log!("selftest: faults of the kernel are noticed");
    let ticks = || cpu::all().iter().map(|cpu| cpu.counts.ticks.load(Relaxed)).sum::<u64>();
    let before = ticks();
    apic::start_timer_every(SHORT_PERIOD);
    let red_zone = torture::red_zone(ROUNDS);
    let vectors = torture::vectors(ROUNDS);
    apic::start_timer();
    let came = ticks() - before;
    check!(came > 0, "no tick came");
    check!(red_zone == 0, "{red_zone} words of a red zone changed under {came} interrupts");
    check!(vectors == 0, "{vectors} vector registers changed under {came} interrupts");
    log!("selftest: {came} interrupts left red zones and vector registers alone");
}

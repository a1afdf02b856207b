//! Time: the time-stamp counter, calibrated against the PIT (the timer chip of 1981), whose rate is known.
//!
//! A measurement can only be too long, if this CPU was delayed, so the shortest of several counts. This also
//! works if the counter counts instructions (an emulator's `icount`): the PIT's time is then derived from the
//! same count.

use super::apic;
use super::instructions::{in8, out8, rdtsc};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Ticks of each CPU's timer in a second: CONFIG_HZ of Debian's kernels, and the value of the simulated
/// machine.
pub const HZ: u64 = 250;

/// Rate of the PIT.
const PIT_HZ: u64 = 1_193_182;
/// Counts of one measurement: 10 ms.
const PIT_COUNTS: u16 = 11_932;
const ROUNDS: usize = 3;

static START: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds of one count, times 2^32.
static SCALE: AtomicU64 = AtomicU64::new(0);

/// Calibrate. Until then the time does not advance.
pub fn calibrate() {
    let (mut tsc, mut timer) = (u64::MAX, u32::MAX);
    for _ in 0..ROUNDS {
        let start = rdtsc();
        let counts = apic::count_during(wait_for_pit);
        (tsc, timer) = (tsc.min(rdtsc() - start), timer.min(counts));
    }
    let nanos = PIT_COUNTS as u128 * 1_000_000_000 / PIT_HZ as u128;
    SCALE.store(((nanos << 32) / tsc.max(1) as u128) as u64, Relaxed);
    START.store(rdtsc(), Relaxed);
    apic::set_period((timer as u128 * 1_000_000_000 / HZ as u128 / nanos) as u32);
}

/// Wait until channel 2 has counted down.
fn wait_for_pit() {
    // SAFETY: channel 2 drives only the speaker, which stays off, and raises no interrupt.
    unsafe {
        out8(0x61, in8(0x61) & !2 | 1);
        out8(0x43, 0xb0);
        out8(0x42, PIT_COUNTS as u8);
        out8(0x42, (PIT_COUNTS >> 8) as u8);
        while in8(0x61) & 0x20 == 0 {}
    }
}

/// Nanoseconds since the calibration.
pub fn now() -> u64 {
    let counts = rdtsc().saturating_sub(START.load(Relaxed));
    ((counts as u128 * SCALE.load(Relaxed) as u128) >> 32) as u64
}

/// Spin for `nanos`.
pub fn spin(nanos: u64) {
    let end = now() + nanos;
    while now() < end {
        core::hint::spin_loop();
    }
}

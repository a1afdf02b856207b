//! Which fault of the published versions is made, and what the faults need. Put into a copy of the crate, with the
//! patches, by `tests/copies/published.rs`.

extern crate std;

use core::cell::Cell;
use std::sync::OnceLock;

std::thread_local! {
    static TASK: Cell<u64> = const { Cell::new(0) };
    static CLAIMED: Cell<bool> = const { Cell::new(false) };
    static DRAWN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Whether this process makes the fault: the environment names one, or none.
pub(crate) fn is(fault: &str) -> bool {
    static FAULT: OnceLock<std::string::String> = OnceLock::new();
    FAULT.get_or_init(|| std::env::var("FAULT").unwrap_or_default()) == fault
}

/// F3: the later of two tags of 16 bits by the sign of their difference.
pub(crate) fn later_of_16_bits(a: u64, b: u64) -> u64 {
    let (a, b) = (a as u16, b as u16);
    (if (b.wrapping_sub(a) as i16) < 0 { a } else { b }) as u64
}

/// F4: the debt of the running task, which becomes `new`.
pub(crate) fn task_debt(new: u64) -> u64 {
    TASK.replace(new)
}

/// F11: the generation of the next debt.
pub(crate) fn draw_early(generation: u64) {
    DRAWN.set(Some(generation));
}

/// F11: what [`draw_early`] was given.
pub(crate) fn drawn_early() -> Option<u64> {
    DRAWN.take()
}

/// F12: claims the payment of a zone, or waits until the claimer is done.
///
/// # Panics
/// If the wait has no end.
pub(crate) fn claim() -> Claim {
    for _ in 0..1000 {
        if !CLAIMED.replace(true) {
            return Claim;
        }
    }
    panic!("waits for a claimer that cannot run");
}

/// F12: others wait until it is dropped.
pub(crate) struct Claim;

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.set(false);
    }
}

/// F16: whether this task has claimed a payment before.
pub(crate) fn claimed_before() -> bool {
    CLAIMED.replace(true)
}

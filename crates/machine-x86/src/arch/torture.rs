//! Functions that hold values where only a correct trap entry preserves them.

unsafe extern "C" {
    fn red_zone_torture(rounds: u64) -> u64;
    fn vector_torture(rounds: u64) -> u64;
}

/// The number of words below the stack pointer that interrupts changed.
pub fn red_zone(rounds: u64) -> u64 {
    // SAFETY: a leaf function that uses its red zone, as the ABI allows.
    unsafe { red_zone_torture(rounds) }
}

/// The number of vector registers that interrupts changed.
pub fn vectors(rounds: u64) -> u64 {
    // SAFETY: it uses only registers that a call may change.
    unsafe { vector_torture(rounds) }
}

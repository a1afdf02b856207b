//! Functions that hold values where only correct trap entry keeps them.

unsafe extern "C" {
    fn red_zone_torture(rounds: u64) -> u64;
    fn vector_torture(rounds: u64) -> u64;
}

/// Words below the stack pointer that changed while interrupts came.
pub fn red_zone(rounds: u64) -> u64 {
    // SAFETY: a leaf function that uses its red zone, as the ABI allows.
    unsafe { red_zone_torture(rounds) }
}

/// Vector registers that changed while interrupts came.
pub fn vectors(rounds: u64) -> u64 {
    // SAFETY: it uses registers that a call may change.
    unsafe { vector_torture(rounds) }
}

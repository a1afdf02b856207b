//! The clock of the CPU, and of this crate.

use crate::{arch, unsupported};
use std::hint::black_box;
use std::io;
use std::time::Instant;

/// Dependent additions of one timing: about 0.1 ms.
const ADDITIONS: u64 = 300_000;
/// Timings of which the shortest counts.
const TRIES: usize = 3;

/// Nanoseconds that `work` takes.
pub(crate) fn nanos<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    black_box(work());
    start.elapsed().as_nanos() as f64
}

/// The shortest of a few timings.
pub(crate) fn shortest(mut once: impl FnMut() -> io::Result<f64>) -> io::Result<f64> {
    (0..TRIES).try_fold(f64::INFINITY, |best, _| Ok(best.min(once()?)))
}

/// [`shortest`] of what cannot fail.
pub(crate) fn quickest(mut once: impl FnMut() -> f64) -> f64 {
    (0..TRIES).fold(f64::INFINITY, |best, _| best.min(once()))
}

/// How fast the CPU's clock ticks under load: additions that depend on each other take a cycle each.
pub struct Clock(());

impl Clock {
    /// A clock of a kind of CPU on which additions take a cycle.
    ///
    /// # Errors
    /// It is none that is known.
    pub fn new() -> io::Result<Clock> {
        match arch::KNOWN {
            true => Ok(Clock(())),
            false => Err(unsupported("only on x86-64")),
        }
    }

    /// Cycles a nanosecond (GHz).
    pub fn round(&mut self) -> f64 {
        ADDITIONS as f64 / quickest(|| nanos(|| arch::additions(ADDITIONS)))
    }
}

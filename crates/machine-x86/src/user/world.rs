//! What all tasks of a run share.

use super::check::Checker;

/// What all tasks of a run share, in the user arena.
pub struct World<P> {
    /// The program.
    pub program: P,
    /// The checker, if the run checks memory.
    pub checker: Option<Checker>,
    /// The run's seed.
    pub seed: u64,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Bytes of memory that the memory manager has.
    pub memory: u64,
}

//! What all tasks of a run share.

use super::check::Checker;

/// What all tasks of a run share. It is in the user arena.
pub struct RunState<P> {
    /// The program.
    pub program: P,
    /// The checker, if memory is checked.
    pub checker: Option<Checker>,
    /// The run's seed.
    pub seed: u64,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Bytes of memory of the memory manager.
    pub memory: u64,
}

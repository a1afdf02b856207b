//! The life of a task in ring 3, from its first instruction to its last call.

use super::Ring;
use super::check::Checker;
use super::os::UserOs;
use program::{Program, Role};

/// What all tasks of a run share. It lies in the user arena.
pub struct World<P> {
    /// The program.
    pub program: P,
    /// The checker, if memory is to be checked.
    pub checker: Option<Checker>,
    /// The run's seed.
    pub seed: u64,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Bytes of memory that the memory manager has.
    pub memory: u64,
}

/// What a new task is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskStart {
    /// Its number.
    pub task: u32,
    /// The number of its process.
    pub process: u32,
    /// Its part of the program.
    pub role: Role,
}

/// Live a task's life. On the machine the last call does not return; where it does, the task is over.
pub fn live<R: Ring, P: Program>(world: &World<P>, ring: &R, start: TaskStart) {
    let mut os = UserOs::new(world, ring, start);
    let signal = world.program.run(&mut os, start.role).err();
    os.exit(signal);
}

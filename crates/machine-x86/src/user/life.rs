//! The life of a task in ring 3, from its first instruction to its last call.

use super::Ring;
use super::check::Checker;
use super::choice::Choice;
use super::os::UserOs;
use super::world::World;
use alloc::format;
use alloc::string::String;
use kernel::TaskStart;
use program::Program;
use spin::Once;

/// Longest name of a program, in bytes.
const LONGEST_NAME: usize = 120;

/// What ring 0 leaves for ring 3 at a place that both know. It holds no pointers into a heap (a trace is at a place of
/// its own): ring 3 makes the world out of it on its own heap, when its first task begins.
pub struct Home {
    name: [u8; LONGEST_NAME],
    len: usize,
    check: bool,
    seed: u64,
    cpus: u32,
    memory: u64,
    trace: Option<&'static [u8]>,
    world: Once<World<Choice>>,
}

impl Home {
    /// A home for the tasks of a program, named as [`Choice::find`] takes it. Fails with a reason for people.
    pub fn new(
        name: &str,
        trace: Option<&'static [u8]>,
        check: bool,
        seed: u64,
        cpus: u32,
        memory: u64,
    ) -> Result<Home, String> {
        Choice::find(name, trace)?;
        let mut bytes = [0; LONGEST_NAME];
        let place =
            bytes.get_mut(..name.len()).ok_or_else(|| format!("program: {name}: the name is too long"))?;
        place.copy_from_slice(name.as_bytes());
        Ok(Home { name: bytes, len: name.len(), check, seed, cpus, memory, trace, world: Once::new() })
    }

    /// Live a task's life. To be called in ring 3; the first task does so before there is another.
    pub fn live<R: Ring>(&self, ring: &R, start: TaskStart) {
        let world = self.world.call_once(|| {
            let name = core::str::from_utf8(&self.name[..self.len]).expect("it was a text");
            World {
                program: Choice::find(name, self.trace).expect("it was found before"),
                checker: self.check.then(Checker::new),
                seed: self.seed,
                cpus: self.cpus,
                memory: self.memory,
            }
        });
        let mut os = UserOs::new(world, ring, start);
        let signal = world.program.run(&mut os, start.role).err();
        if let Some(note) = world.program.note(start.role) {
            os.note(&note);
        }
        // On the machine this call does not return; where it does, the task is over.
        os.exit(signal);
    }
}

//! The life of a task in ring 3, from its first instruction to its last call.

use super::check::Checker;
use super::choice::Choice;
use super::os::UserOs;
use super::{Ring, Settings};
use alloc::format;
use alloc::string::String;
use kernel::TaskStart;
use program::Program;
use spin::Once;

/// The longest name of a program, in bytes.
const MAX_NAME: usize = 120;

/// What ring 0 passes to ring 3 at an address that both know. It has no pointers into a heap (a trace is at
/// an address of its own): from it, the first task of ring 3 creates the state of the run on ring 3's own
/// heap.
pub struct LaunchInfo {
    name: [u8; MAX_NAME],
    len: usize,
    settings: Settings,
    trace: Option<&'static [u8]>,
    /// What all tasks share: the program, and the checker if memory is checked.
    shared: Once<(Choice, Option<Checker>)>,
}

impl LaunchInfo {
    /// The information for the tasks of a program, named as for [`Choice::find`]. Fails with a message for
    /// people.
    pub fn new(name: &str, trace: Option<&'static [u8]>, settings: Settings) -> Result<LaunchInfo, String> {
        Choice::find(name, trace)?;
        let mut bytes = [0; MAX_NAME];
        let slot =
            bytes.get_mut(..name.len()).ok_or_else(|| format!("program: {name}: the name is too long"))?;
        slot.copy_from_slice(name.as_bytes());
        Ok(LaunchInfo { name: bytes, len: name.len(), settings, trace, shared: Once::new() })
    }

    /// Run a task. Called in ring 3; the first task does so before there is another.
    pub fn run_task<R: Ring>(&self, ring: &R, start: TaskStart) {
        let (program, checker) = self.shared.call_once(|| {
            let name = core::str::from_utf8(&self.name[..self.len]).expect("the name must be valid UTF-8");
            let program = Choice::find(name, self.trace).expect("the program must exist, as in `new`");
            (program, self.settings.check.then(Checker::default))
        });
        let mut os = UserOs::new(self.settings, checker.as_ref(), ring, start);
        let signal = program.run(&mut os, start.role).err();
        if let Some(note) = program.note(start.role) {
            os.note(&note);
        }
        // On the machine this call does not return; elsewhere the task has ended.
        os.exit(signal);
    }
}

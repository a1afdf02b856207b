//! What the kernel needs from the machine besides [`mm::Machine`].

use crate::Task;
use abi::call::Tell;
use abi::{Buffer, Errno};
use alloc::sync::Arc;
use core::ops::Range;
use mm::Machine;
use mm::units::{Nanos, Pfn};

/// What a task of a program can sleep on, besides what the memory manager has it sleep on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Key {
    /// The task of that number ends.
    End(u32),
    /// A barrier opens.
    Barrier(u32),
    /// The time; woken only if the task of that number is to die.
    Sleep(u32),
    /// The last task of a program ends.
    AllEnded,
}

/// The machine, as the kernel sees it.
pub trait Host: Machine {
    /// Start a task of a program: with the space of [`Task::space`] loaded it does what its program does as
    /// [`Task::start`] says. The task is handed back with each of its calls and faults.
    fn start_task(&self, task: &Arc<Task>) -> Result<(), Errno>;

    /// The task that runs has no space from now on. `switch` is to be called, with interrupts off, on every CPU that
    /// has it loaded for this task, at the moment at which this becomes true.
    fn leave_space(&self, task: &Task, switch: &mut dyn FnMut());

    /// Let other tasks run, if any want to.
    fn give_way(&self);

    /// A mark for the next wake-up of `key`, as [`Machine::ticket`] gives.
    fn key_ticket(&self, key: Key) -> u64;
    /// Sleep until a wake-up that came after the mark, or until `deadline`; `false` if the deadline came first.
    fn key_wait(&self, key: Key, mark: u64, deadline: Option<Nanos>) -> bool;
    /// Wake all tasks that sleep on `key`.
    fn key_wake(&self, key: Key);
    /// A task is to die: if it sleeps on a key, it is woken to see that.
    fn interrupt(&self, task: &Task) {
        if let Some(key) = task.waits_for() {
            self.key_wake(key);
        }
    }

    /// Do what is not the program's: where time and work are counted, they are not for this.
    fn unseen(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Read bytes of the caller's memory, where a text lies. On a machine whose tasks say their texts there are none.
    fn read_user(&self, from: Buffer, to: &mut [u8]) -> Result<(), Errno> {
        let _ = (from, to);
        Err(Errno::Fault)
    }
}

/// A machine whose programs run in a ring of their own, and make their calls in registers.
pub trait Rings: Host {
    /// Where buffers of calls may lie in a program's memory: mapped and writable there at all times. Addresses below
    /// 2^47 are not in it.
    fn user_arena(&self) -> Range<u64>;
    /// Copy `bytes` bytes of a frame, from byte `at` on, into the arena. The range lies in it.
    fn copy_to_user(&self, to: u64, from: Pfn, at: u32, bytes: u32);
    /// Copy from the arena into a frame.
    fn copy_from_user(&self, to: Pfn, at: u32, from: u64, bytes: u32);
    /// Tell people what a task tells.
    fn tell(&self, what: Tell, text: &str);
}

//! What the kernel needs from the machine besides [`mm::Machine`].

use crate::Task;
use abi::call::Tell;
use abi::{Buffer, Errno};
use alloc::sync::Arc;
use core::ops::Range;
use mm::Machine;
use mm::units::{Nanos, Pfn};

/// An event that a task of a program can sleep on, besides those of the memory manager.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Key {
    /// The task with this number ends.
    End(u32),
    /// A barrier opens.
    Barrier(u32),
    /// A point in time. The task with this number is woken early only if it is to die.
    Sleep(u32),
    /// The last task of a program ends.
    AllEnded,
}

/// What the kernel needs from the machine.
pub trait Host: Machine {
    /// Start a task of a program: load [`Task::space`] and run the program's part for [`Task::start`]. The machine
    /// passes the task back with each of its calls and faults.
    fn start_task(&self, task: &Arc<Task>) -> Result<(), Errno>;

    /// The running task has no space from now on. The machine must call `switch`, with interrupts off, on every CPU
    /// that has the space loaded for this task, at the moment at which that becomes true.
    fn leave_space(&self, task: &Task, switch: &mut dyn FnMut());

    /// Let other runnable tasks run.
    fn give_way(&self);

    /// A mark for the next wake-up of `key`, as [`Machine::ticket`] returns.
    fn key_ticket(&self, key: Key) -> u64;
    /// Sleep until a wake-up that came after the mark, or until `deadline`; `false` if the deadline came first.
    fn key_wait(&self, key: Key, mark: u64, deadline: Option<Nanos>) -> bool;
    /// Wake all tasks that sleep on `key`.
    fn key_wake(&self, key: Key);
    /// Wake a task that is to die if it sleeps on a key.
    fn interrupt(&self, task: &Task) {
        if let Some(key) = task.waits_for() {
            self.key_wake(key);
        }
    }

    /// Do work that is not the program's. Machines that count time and work do not count this.
    fn unseen(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Read a text argument from the caller's memory. A machine whose calls carry texts has no such memory.
    fn read_user(&self, from: Buffer, to: &mut [u8]) -> Result<(), Errno> {
        let _ = (from, to);
        Err(Errno::Fault)
    }
}

/// A machine whose programs run in a ring of their own and make calls in registers.
pub trait Rings: Host {
    /// Where a program's buffers may be: mapped and writable at all times. It contains no address below 2^47.
    fn user_arena(&self) -> Range<u64>;
    /// Copy `bytes` bytes of a frame, from byte `at` on, to an address in the arena.
    fn copy_to_user(&self, to: u64, from: Pfn, at: u32, bytes: u32);
    /// Copy bytes from the arena into a frame.
    fn copy_from_user(&self, to: Pfn, at: u32, from: u64, bytes: u32);
    /// Pass a task's report on to the user.
    fn tell(&self, what: Tell, text: &str);
}

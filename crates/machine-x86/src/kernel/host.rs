//! What the kernel needs from the machine besides [`mm::Machine`].

use super::Task;
use crate::user::calls::Tell;
use alloc::sync::Arc;
use core::ops::Range;
use mm::Machine;
use mm::units::{Nanos, Pfn};
use program::Errno;

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
    /// Start a task of a program: on a stack of its own in ring 3, with the space of [`Task::space`] loaded, it does
    /// what [`crate::user::Home::live`] does for [`Task::start`]. The task is handed back with each of its calls and
    /// faults.
    fn start_task(&self, task: &Arc<Task>) -> Result<(), Errno>;

    /// The task that runs has no space from now on. `switch` is called once, with interrupts off, at the moment at
    /// which this becomes true.
    fn leave_space(&self, switch: &mut dyn FnMut());

    /// Let other tasks run, if any want to.
    fn give_way(&self);

    /// A mark for the next wake-up of `key`, as [`Machine::ticket`] gives.
    fn key_ticket(&self, key: Key) -> u64;
    /// Sleep until a wake-up that came after the mark, or until `deadline`; `false` if the deadline came first.
    fn key_wait(&self, key: Key, mark: u64, deadline: Option<Nanos>) -> bool;
    /// Wake all tasks that sleep on `key`.
    fn key_wake(&self, key: Key);

    /// Where ring 3 keeps its own data: mapped and writable there at all times. Addresses below 2^47 are not in it.
    fn user_arena(&self) -> Range<u64>;
    /// Copy `bytes` bytes of a frame, from byte `at` on, into the arena. The range lies in it.
    fn copy_to_user(&self, to: u64, from: Pfn, at: u32, bytes: u32);
    /// Copy from the arena into a frame.
    fn copy_from_user(&self, to: Pfn, at: u32, from: u64, bytes: u32);
    /// Read bytes of the arena.
    fn read_user(&self, from: u64, to: &mut [u8]);

    /// Tell people what a task tells.
    fn tell(&self, what: Tell, text: &str);
}

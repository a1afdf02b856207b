//! Waiting for other tasks and for time.

use crate::{Host, Kernel, Key, Task};
use abi::Errno;
use mm::units::Nanos;

/// The tasks that have arrived at a barrier, and how often it has opened.
#[derive(Default)]
pub(crate) struct Barrier {
    here: u32,
    opened: u64,
}

impl<H: Host> Kernel<H> {
    /// Wait on `key` until `done` returns true, the deadline passes, or the process is to end.
    fn wait(&self, task: &Task, key: Key, deadline: Option<Nanos>, done: impl Fn() -> bool) {
        loop {
            // Take the mark, set the key, then check: a task that ends the wait does so before the check, or it finds
            // the key and wakes it after the mark.
            let mark = self.host().key_ticket(key);
            task.set_waits_for(Some(key));
            if done() || task.process().is_dead() || !self.host().key_wait(key, mark, deadline) {
                break;
            }
        }
        task.set_waits_for(None);
    }

    pub(crate) fn join(&self, task: &Task, other: u32) -> Result<u64, Errno> {
        let index = other.checked_sub(self.first_task).map(|index| index as usize);
        let other = index.and_then(|index| self.tasks.lock().get(index).cloned());
        if let Some(other) = other {
            self.wait(task, Key::End(other.number()), None, || other.has_ended());
        }
        Ok(0)
    }

    pub(crate) fn sleep(&self, task: &Task, nanos: u64) -> Result<u64, Errno> {
        let until = self.host().now().saturating_add(nanos);
        self.wait(task, Key::Sleep(task.number()), Some(until), || self.host().now() >= until);
        Ok(0)
    }

    pub(crate) fn barrier(&self, task: &Task, id: u32, tasks: u32) -> Result<u64, Errno> {
        if let Some(before) = self.come_to_barrier(task, id, tasks) {
            self.wait(task, Key::Barrier(id), None, || self.has_opened(id, before));
        }
        Ok(0)
    }

    /// Arrive at a barrier. If that opens it, wake the waiting tasks; otherwise return how often it has opened
    /// before. A task that is to die does not arrive.
    pub fn come_to_barrier(&self, task: &Task, id: u32, tasks: u32) -> Option<u64> {
        assert!(!task.has_ended(), "task {} must not arrive at barrier {id} after its end", task.number());
        if task.process().is_dead() {
            return None;
        }
        {
            let mut barriers = self.barriers.lock();
            let barrier = barriers.entry(id).or_default();
            barrier.here += 1;
            if barrier.here < tasks {
                return Some(barrier.opened);
            }
            *barrier = Barrier { here: 0, opened: barrier.opened + 1 };
        }
        self.host().key_wake(Key::Barrier(id));
        None
    }

    /// Whether a barrier has opened since it had opened `before` times.
    pub fn has_opened(&self, id: u32, before: u64) -> bool {
        self.barriers.lock().get(&id).is_some_and(|barrier| barrier.opened != before)
    }
}

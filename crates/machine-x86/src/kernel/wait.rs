//! Waiting for other tasks, and for time.

use super::{Host, Kernel, Key, Task};
use mm::units::Nanos;

/// Tasks that have come to a barrier, and how often it has opened.
#[derive(Default)]
pub(super) struct Barrier {
    here: u32,
    opened: u64,
}

impl<H: Host> Kernel<H> {
    /// Wait on `key` until `done` says so, the deadline comes, or the process is to end.
    fn wait(&self, task: &Task, key: Key, deadline: Option<Nanos>, done: impl Fn() -> bool) {
        loop {
            // First the mark, then the key, then the look: whoever ends the wait either does so before the look, or
            // finds the key and wakes it after the mark.
            let mark = self.host().key_ticket(key);
            task.set_waits_for(Some(key));
            if done() || task.process().is_dead() || !self.host().key_wait(key, mark, deadline) {
                break;
            }
        }
        task.set_waits_for(None);
    }

    pub(super) fn join(&self, task: &Task, other: u32) {
        let index = other.checked_sub(self.first_task).map(|index| index as usize);
        let other = index.and_then(|index| self.tasks.lock().get(index).cloned());
        if let Some(other) = other {
            self.wait(task, Key::End(other.number()), None, || other.has_ended());
        }
    }

    pub(super) fn sleep(&self, task: &Task, nanos: u64) {
        let until = self.host().now().saturating_add(nanos);
        self.wait(task, Key::Sleep(task.number()), Some(until), || self.host().now() >= until);
    }

    pub(super) fn barrier(&self, task: &Task, id: u32, tasks: u32) {
        if task.process().is_dead() {
            return;
        }
        let before = {
            let mut barriers = self.barriers.lock();
            let barrier = barriers.entry(id).or_default();
            barrier.here += 1;
            let before = barrier.opened;
            if barrier.here >= tasks {
                barrier.here = 0;
                barrier.opened += 1;
            }
            (before == barrier.opened).then_some(before)
        };
        match before {
            None => self.host().key_wake(Key::Barrier(id)),
            Some(before) => self.wait(task, Key::Barrier(id), None, || {
                self.barriers.lock().get(&id).is_some_and(|barrier| barrier.opened != before)
            }),
        }
    }
}

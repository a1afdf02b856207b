//! What the upper half of the kernel asks of the simulated machine.

use super::SimMachine;
use crate::cpu::Class;
use crate::sched::{Key, TaskId};
use abi::Errno;
use kernel::{Host, Task};
use mm::units::Nanos;
use std::sync::Arc;

fn key(key: kernel::Key) -> Option<Key> {
    match key {
        kernel::Key::End(task) => Some(Key::End(task)),
        kernel::Key::Barrier(id) => Some(Key::Barrier(id)),
        // Sleeps are the machine's own; who drives the run looks whether all have ended.
        kernel::Key::Sleep(_) | kernel::Key::AllEnded => None,
    }
}

impl SimMachine {
    /// A new task of the scheduler's, which may run from now on, on this node if one is named.
    pub(crate) fn new_task(&self, node: Option<u8>) -> TaskId {
        let id = self.sched.borrow_mut().spawn(self.clock(), self.current.get(), node);
        self.lower_limit();
        id
    }
}

impl Host for SimMachine {
    fn start_task(&self, task: &Arc<Task>) -> Result<(), Errno> {
        assert_eq!(self.new_task(None), task.number(), "kernel and scheduler number tasks in one order");
        self.new_tasks.borrow_mut().push(task.clone());
        Ok(())
    }

    /// Left by the last task of the process alone: by no CPU that runs the space any more. Not this one; nor one that
    /// has run the end of another task of the process, whose clock is ahead, and which has not gone on to the task that
    /// waits there.
    fn leave_space(&self, task: &Task, switch: &mut dyn FnMut()) {
        if task.process().tasks() > 1 {
            return;
        }
        for (i, cpu) in self.cpus.iter().enumerate() {
            if cpu.loaded.get() == Some(task.space()) {
                self.on(i, Class::System, || {
                    self.run_space(None);
                    switch();
                });
            }
        }
    }

    fn give_way(&self) {
        self.yield_if_due();
    }

    fn key_ticket(&self, wanted: kernel::Key) -> u64 {
        key(wanted).map_or(0, |key| self.sched.borrow().mark(key))
    }

    fn key_wait(&self, wanted: kernel::Key, mark: u64, deadline: Option<Nanos>) -> bool {
        let key = key(wanted).expect("a task of a program waits for others only");
        if self.sched.borrow().mark(key) != mark {
            return true;
        }
        self.sleep(key, deadline.map(|nanos| nanos.saturating_mul(1000)))
    }

    fn key_wake(&self, wanted: kernel::Key) {
        // The scheduler tells that a task has ended when its coroutine has.
        if let Some(key @ Key::Barrier(_)) = key(wanted) {
            self.wake_key(key);
        }
    }

    fn interrupt(&self, task: &Task) {
        self.sched.borrow_mut().kick(self.clock(), task.number());
        self.lower_limit();
    }

    fn unseen(&self, work: &mut dyn FnMut()) {
        self.unaccounted(work);
    }
}

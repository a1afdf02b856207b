//! The machine as the upper half of the kernel sees it.

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
        // The machine sleeps by itself, and the run's main loop checks whether all tasks have ended.
        kernel::Key::Sleep(_) | kernel::Key::AllEnded => None,
    }
}

impl SimMachine {
    /// Add a task to the scheduler, on `node` if one is given. It may run from now on.
    pub(crate) fn new_task(&self, node: Option<u8>) -> TaskId {
        let id = self.sched.borrow_mut().spawn(self.clock(), self.current.get(), node);
        self.lower_limit();
        id
    }
}

impl Host for SimMachine {
    fn start_task(&self, task: &Arc<Task>) -> Result<(), Errno> {
        assert_eq!(
            self.new_task(None),
            task.number(),
            "the kernel and the scheduler must number tasks in the same order"
        );
        self.sched.borrow_mut().belong(self.clock(), task.number(), task.space());
        self.new_tasks.borrow_mut().push(task.clone());
        if let Some(profile) = self.observers.tasks() {
            profile.start_task(task.number(), self.clock());
        }
        Ok(())
    }

    /// The last task of a process leaves its space on every CPU that has it loaded: on this one, and on a CPU that has
    /// run the end of another task of the process, has a later clock, and has not switched to its next task.
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
        let key = key(wanted).expect("a task may wait for other tasks only");
        if self.sched.borrow().mark(key) != mark {
            return true;
        }
        self.sleep(key, deadline.map(|nanos| nanos.saturating_mul(1000)))
    }

    fn key_wake(&self, wanted: kernel::Key) {
        // The scheduler wakes the waiters for a task's end when its coroutine ends.
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

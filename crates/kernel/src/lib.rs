//! The upper half of a kernel: processes, descriptors, files, tasks, and what system calls mean.
//!
//! The kernel knows nothing of the machine but the traits of [`mm::Mm`] and [`Host`], so a program meets the same
//! system on every machine. A machine whose programs run in a ring of their own also implements [`Rings`] and passes
//! calls on as registers ([`Kernel::trap`]); other machines pass them on as values ([`Kernel::call`]).
//!
//! All functions may run on all CPUs at the same time. Locks here are short, and none is held over a call that may
//! wait. A task keeps its process alive by an [`Arc`], so a fault finds its process without a lock.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod call;
mod files;
mod groups;
mod host;
mod process;
mod range;
mod trap;
mod wait;

pub use call::Copier;
pub use files::{Disk, File};
pub use groups::{GroupOutcome, GroupSpec, Groups, PROCESSES, Processes};
pub use host::{Host, Rings};
pub use process::{Key, Open, Process, Task, TaskStart, Totals};
pub use range::{ADDRESS_BITS, range};
pub use trap::After;

use abi::call::Exit;
use abi::{AccessKind, Errno, Role, Signal};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use files::Files;
use mm::Mm;
use mm::api::FaultError;
use mm::lock::Lock;
use mm::units::{GroupId, SpaceId, Vpn};
use process::Descriptors;

/// What follows a page fault in ring 3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Retry the instruction.
    Retry,
    /// The instruction raises a signal.
    Signal(Signal),
}

/// With `mm` built for one thread, its locks belong to that thread, and so does everything that contains one.
#[allow(clippy::arc_with_non_send_sync)]
fn new_arc<T>(value: T) -> Arc<T> {
    Arc::new(value)
}

/// The kernel.
pub struct Kernel<H> {
    mm: Mm<H>,
    files: Lock<Files>,
    tasks: Lock<Vec<Arc<Task>>>,
    /// Number of the first task.
    first_task: u32,
    processes: AtomicU32,
    groups: Lock<Groups>,
    /// Tasks that have not ended.
    live: AtomicU32,
    barriers: Lock<BTreeMap<u32, wait::Barrier>>,
    signals: Lock<Vec<String>>,
    totals: Lock<Totals>,
    ended_at: AtomicU64,
}

impl<H: Host> Kernel<H> {
    /// A kernel without processes. Its first task will have number `first_task`.
    pub fn new(mm: Mm<H>, disk: Option<Disk>, first_task: u32) -> Kernel<H> {
        Kernel {
            first_task,
            mm,
            files: Lock::new(Files::new(disk)),
            tasks: Lock::default(),
            processes: AtomicU32::new(0),
            groups: Lock::default(),
            live: AtomicU32::new(0),
            barriers: Lock::default(),
            signals: Lock::default(),
            totals: Lock::default(),
            ended_at: AtomicU64::new(0),
        }
    }

    /// The memory manager.
    pub fn mm(&self) -> &Mm<H> {
        &self.mm
    }

    fn host(&self) -> &H {
        self.mm.machine()
    }

    /// Make the control groups that a run begins with. An error is for people.
    pub fn make_groups(&self, specs: &[GroupSpec]) -> Result<(), String> {
        let started = self.processes.load(Relaxed);
        assert_eq!(started, 0, "control groups must be created before the first process starts");
        let made = Groups::make(&self.mm, specs)?;
        *self.groups.lock() = made;
        Ok(())
    }

    /// The control group of a path that the run has begun with.
    pub fn group_named(&self, path: &str) -> Option<GroupId> {
        self.groups.lock().named(path)
    }

    /// What all control groups but the root have counted.
    pub fn group_outcomes(&self) -> Vec<GroupOutcome> {
        self.groups.lock().outcomes(&self.mm)
    }

    /// Start the first process, number 0, with one task in role 0. Returns its space.
    pub fn start(&self) -> Result<SpaceId, Errno> {
        assert_eq!(self.processes.load(Relaxed), 0, "the first process must be started once");
        let space = self.mm.create_space(GroupId(0))?;
        self.start_process(space, Descriptors::default(), 0).map(|_| space)
    }

    fn start_process(&self, space: SpaceId, files: Descriptors, role: Role) -> Result<Arc<Task>, Errno> {
        let number = self.processes.fetch_add(1, Relaxed);
        let process = new_arc(Process::new(number, space, files));
        let group = self.groups.lock().of_process(number);
        if let Some(group) = group {
            // This fails if the program has removed the group. Then the process stays in its parent's group.
            self.host().unseen(&mut || _ = self.mm.move_space(space, group));
        }
        let started = self.start_task(&process, role);
        if started.is_err() {
            self.mm.exit_space(space);
        }
        started
    }

    fn start_task(&self, process: &Arc<Process>, role: Role) -> Result<Arc<Task>, Errno> {
        // Hold the lock until the machine knows the task, too, so that both number tasks in the same order.
        let mut tasks = self.tasks.lock();
        let number = self.first_task + tasks.len() as u32;
        let start = TaskStart { task: number, process: process.number(), role };
        let task = new_arc(Task::new(start, process.clone()));
        process.enter();
        self.live.fetch_add(1, AcqRel);
        if let Err(errno) = self.host().start_task(&task) {
            process.leave();
            self.live.fetch_sub(1, AcqRel);
            return Err(errno);
        }
        tasks.push(task.clone());
        drop(tasks);
        self.totals.lock().tasks += 1;
        Ok(task)
    }

    /// Whether the task is the program's first.
    pub fn is_first(&self, task: &Task) -> bool {
        task.number() == self.first_task
    }

    /// Handle an access at `addr` that no translation allows.
    pub fn fault(&self, task: &Task, addr: u64, access: AccessKind) -> Outcome {
        let _in_call = task.enter_call();
        if addr >> ADDRESS_BITS != 0 {
            return Outcome::Signal(Signal::Segv { addr });
        }
        let served = self.mm.fault(task.space(), Vpn::of(addr), access);
        match served {
            _ if self.is_dying(task) => Outcome::Signal(Signal::Kill),
            Ok(_) => Outcome::Retry,
            Err(FaultError::Segv) => Outcome::Signal(Signal::Segv { addr }),
            Err(FaultError::Bus | FaultError::Io) => Outcome::Signal(Signal::Bus { addr }),
            Err(FaultError::Killed) => {
                self.killed(task);
                Outcome::Signal(Signal::Kill)
            }
        }
    }

    /// Whether the task's process is to end. Also notices that the memory manager has just chosen it.
    pub fn is_dying(&self, task: &Task) -> bool {
        if task.process().is_dead() {
            return true;
        }
        let chosen = self.mm.killed(task.space());
        if chosen {
            self.killed(task);
        }
        chosen
    }

    /// The memory manager has chosen to kill the task's process.
    pub fn killed(&self, task: &Task) {
        self.kill(task.process(), || format!("task {}: SIGKILL: out of memory", task.number()));
    }

    /// Kill a process and wake its waiting tasks to see that. `reason` is recorded if the process was alive.
    fn kill(&self, process: &Process, reason: impl FnOnce() -> String) {
        if !process.die() {
            return;
        }
        self.signals.lock().push(reason());
        let tasks: Vec<_> = {
            let tasks = self.tasks.lock();
            let of_process = |task: &&Arc<Task>| task.process().number() == process.number();
            tasks.iter().filter(of_process).cloned().collect()
        };
        tasks.iter().for_each(|task| self.host().interrupt(task));
    }

    /// End a task, on its own request or by a signal that it did not expect. Returns whether it was the last of its
    /// process; the process's memory is then gone.
    pub fn exit(&self, task: &Task, exit: &Exit) -> bool {
        let (process, number) = (task.process(), task.number());
        // The task must be in no call and must not have ended before.
        drop(task.enter_call());
        if let Some(signal) = exit.signal {
            let name = match signal {
                Signal::Segv { addr } => format!("SIGSEGV at {addr:#x}"),
                Signal::Bus { addr } => format!("SIGBUS at {addr:#x}"),
                Signal::Kill => "SIGKILL: out of memory".into(),
            };
            self.kill(process, || format!("task {number} (role {}): {name}", task.start().role));
        }
        self.totals.lock().add(exit);
        // Leave the space before the process: the last task to leave frees the space, and no CPU may use it then.
        self.host().leave_space(task, &mut || self.mm.switch(None));
        let last = process.leave();
        if last {
            self.mm.exit_space(task.space());
        }
        self.ended_at.fetch_max(self.host().now(), AcqRel);
        task.end();
        self.host().key_wake(Key::End(number));
        let live = self.live.fetch_sub(1, AcqRel);
        assert!(live > 0, "task {number} must have been counted as live");
        if live == 1 {
            self.host().key_wake(Key::AllEnded);
        }
        last
    }

    /// Wait, as a kernel task, until all tasks of programs have ended.
    pub fn wait_for_end(&self) {
        loop {
            // Take the mark before the check: the last task may end between the check and the wait.
            let mark = self.host().key_ticket(Key::AllEnded);
            if self.live() == 0 {
                return;
            }
            self.host().key_wait(Key::AllEnded, mark, None);
        }
    }

    /// Tasks that have not ended.
    pub fn live(&self) -> u32 {
        self.live.load(Acquire)
    }

    /// The sums over all tasks that have ended.
    pub fn totals(&self) -> Totals {
        Totals { ended_at: self.ended_at.load(Acquire), ..*self.totals.lock() }
    }

    /// Descriptions of the signals that ended processes.
    pub fn signals(&self) -> Vec<String> {
        self.signals.lock().clone()
    }
}

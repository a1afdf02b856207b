//! Ring 0 above the memory manager: processes, descriptors, files, tasks, and what system calls mean.
//!
//! Nothing here knows the hardware: it stands on [`mm::Mm`] and on the trait [`Host`], and is tested on the host. It
//! keeps the same rules as the simulated machine's world, so that a program meets the same system on both.
//!
//! All of it may run on all CPUs at the same time. Locks here are short; none is held over a call that may wait. A task
//! keeps its process alive as an [`Arc`], so a fault takes no lock to find out where it happened.

mod call;
mod convert;
mod files;
mod host;
mod process;
mod wait;

pub use host::{Host, Key};
pub use process::{Process, Task, Totals};

use crate::user::TaskStart;
use crate::user::calls;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use convert::ADDRESS_BITS;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use files::Files;
use mm::Mm;
use mm::api::{AccessKind, FaultError};
use mm::lock::Lock;
use mm::units::{DeviceId, GroupId, SpaceId, Vpn};
use process::Descriptors;
use program::{Errno, Role, Signal};

/// Where files live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    /// The device.
    pub device: DeviceId,
    /// Its size. All of it is zeroes when the machine starts.
    pub pages: u64,
}

/// What is to happen after a system call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum After {
    /// Return to ring 3 with this answer.
    Return([u64; 2]),
    /// The task has ended and left its space. It never runs again.
    Ended,
    /// The task has panicked, for the reason given: the run has failed.
    Panicked(String),
}

/// What is to happen after a page fault in ring 3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The instruction is tried again.
    Retry,
    /// It raised a signal.
    Signal(Signal),
}

/// The kernel.
pub struct Kernel<H> {
    mm: Mm<H>,
    files: Lock<Files>,
    tasks: Lock<Vec<Arc<Task>>>,
    /// Number of the first task.
    first_task: u32,
    processes: AtomicU32,
    /// Tasks that have not ended.
    live: AtomicU32,
    barriers: Lock<BTreeMap<u32, wait::Barrier>>,
    signals: Lock<Vec<String>>,
    totals: Lock<Totals>,
    ended_at: AtomicU64,
}

impl<H: Host> Kernel<H> {
    /// A kernel without processes.
    pub fn new(mm: Mm<H>, disk: Option<Disk>) -> Kernel<H> {
        Kernel {
            // As on the simulated machine, where the memory manager's own tasks come first: seeds depend on the number.
            first_task: mm.daemons().len() as u32,
            mm,
            files: Lock::new(Files::new(disk)),
            tasks: Lock::default(),
            processes: AtomicU32::new(0),
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

    /// Start the first process, number 0, with one task in role 0.
    pub fn start(&self) -> Result<(), Errno> {
        let space = self.mm.create_space(GroupId(0))?;
        self.start_process(space, Descriptors::default(), 0).map(drop)
    }

    fn start_process(&self, space: SpaceId, files: Descriptors, role: Role) -> Result<Arc<Task>, Errno> {
        let number = self.processes.fetch_add(1, Relaxed);
        let process = Arc::new(Process::new(number, space, files));
        let started = self.start_task(&process, role);
        if started.is_err() {
            self.mm.exit_space(space);
        }
        started
    }

    fn start_task(&self, process: &Arc<Process>, role: Role) -> Result<Arc<Task>, Errno> {
        process.enter();
        self.live.fetch_add(1, AcqRel);
        let task = {
            let mut tasks = self.tasks.lock();
            let number = self.first_task + tasks.len() as u32;
            let start = TaskStart { task: number, process: process.number(), role };
            tasks.push(Arc::new(Task::new(start, process.clone())));
            tasks.last().expect("just put there").clone()
        };
        if let Err(errno) = self.host().start_task(&task) {
            task.end();
            process.leave();
            self.live.fetch_sub(1, AcqRel);
            return Err(errno);
        }
        self.totals.lock().tasks += 1;
        Ok(task)
    }

    /// A program's access at `addr` has no translation that allows it.
    pub fn fault(&self, task: &Task, addr: u64, access: AccessKind) -> Outcome {
        if addr >> ADDRESS_BITS != 0 {
            return Outcome::Signal(Signal::Segv { addr });
        }
        let served = self.mm.fault(task.space(), Vpn::of(addr), access);
        match served {
            _ if self.is_dying(task) => Outcome::Signal(Signal::Kill),
            Ok(_) => Outcome::Retry,
            Err(FaultError::Segv) => Outcome::Signal(Signal::Segv { addr }),
            Err(FaultError::Bus) => Outcome::Signal(Signal::Bus { addr }),
            Err(FaultError::Killed) => {
                self.killed(task);
                Outcome::Signal(Signal::Kill)
            }
        }
    }

    /// Is the task's process to end? True too if the memory manager has chosen it just now.
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

    /// The memory manager has chosen the task's process to die.
    fn killed(&self, task: &Task) {
        self.kill(task.process(), || format!("task {}: SIGKILL: out of memory", task.number()));
    }

    /// The process is to end: its waiting tasks are woken to see it. `reason` is told if it was to live so far.
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
        for key in tasks.iter().filter_map(|task| task.waits_for()) {
            self.host().key_wake(key);
        }
    }

    /// A task ends, by itself or by a signal that it did not expect.
    fn exit(&self, task: &Task, exit: &calls::Exit) {
        let (process, number) = (task.process(), task.number());
        if let Some(signal) = exit.signal {
            let name = match signal {
                Signal::Segv { addr } => format!("SIGSEGV at {addr:#x}"),
                Signal::Bus { addr } => format!("SIGBUS at {addr:#x}"),
                Signal::Kill => "SIGKILL: out of memory".into(),
            };
            self.kill(process, || format!("task {number} (role {}): {name}", task.start().role));
        }
        // Left before the process is: who ends last takes the space away, and no CPU may have it in use then.
        self.host().leave_space(&mut || self.mm.switch(None));
        self.totals.lock().add(exit);
        if process.leave() {
            self.mm.exit_space(task.space());
        }
        self.ended_at.fetch_max(self.host().now(), AcqRel);
        task.end();
        self.host().key_wake(Key::End(number));
        if self.live.fetch_sub(1, AcqRel) == 1 {
            self.host().key_wake(Key::AllEnded);
        }
    }

    /// Wait, as a task of the kernel, until all tasks of programs have ended.
    pub fn wait_for_end(&self) {
        while self.live.load(Acquire) > 0 {
            let mark = self.host().key_ticket(Key::AllEnded);
            if self.live.load(Acquire) > 0 {
                self.host().key_wait(Key::AllEnded, mark, None);
            }
        }
    }

    /// What tasks that have ended have counted.
    pub fn totals(&self) -> Totals {
        Totals { ended_at: self.ended_at.load(Acquire), ..*self.totals.lock() }
    }

    /// Signals that ended processes, for people.
    pub fn signals(&self) -> Vec<String> {
        self.signals.lock().clone()
    }
}

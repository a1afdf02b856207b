//! Processes and their tasks.

use crate::Key;
use abi::call::Exit;
use abi::{Errno, Role};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use mm::lock::Lock;
use mm::space::TaskScan;
use mm::units::{Nanos, SpaceId};

/// An open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// The file's number.
    pub file: u32,
    /// Whether it was opened for writing.
    pub writable: bool,
}

/// Open files by descriptor.
#[derive(Clone, Default, Debug)]
pub(crate) struct Descriptors(Vec<Option<Open>>);

impl Descriptors {
    /// Give `open` the lowest free descriptor.
    fn add(&mut self, open: Open) -> u32 {
        let fd = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if fd == self.0.len() {
            self.0.push(None);
        }
        self.0[fd] = Some(open);
        fd as u32
    }
}

/// An address space with its descriptors and tasks.
pub struct Process {
    number: u32,
    space: SpaceId,
    files: Lock<Descriptors>,
    tasks: AtomicU32,
    /// A signal has ended the process; its tasks end when they notice.
    dead: AtomicBool,
}

impl Process {
    pub(crate) fn new(number: u32, space: SpaceId, files: Descriptors) -> Process {
        Process {
            number,
            space,
            files: Lock::new(files),
            tasks: AtomicU32::new(0),
            dead: AtomicBool::new(false),
        }
    }

    /// Its number; the first process is 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether it is to end.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Acquire)
    }

    /// Mark it to end. Returns whether it was alive.
    pub(crate) fn die(&self) -> bool {
        !self.dead.swap(true, AcqRel)
    }

    pub(crate) fn enter(&self) {
        self.tasks.fetch_add(1, AcqRel);
    }

    /// Tasks that have not left.
    pub fn tasks(&self) -> u32 {
        self.tasks.load(Acquire)
    }

    /// A task leaves. Returns whether it was the last.
    pub(crate) fn leave(&self) -> bool {
        let before = self.tasks.fetch_sub(1, AcqRel);
        assert!(before > 0, "process {} must have a task that leaves it", self.number);
        before == 1
    }

    pub(crate) fn open(&self, open: Open) -> u32 {
        self.files.lock().add(open)
    }

    /// The file of a descriptor.
    pub fn file(&self, fd: u32) -> Result<Open, Errno> {
        self.files.lock().0.get(fd as usize).copied().flatten().ok_or(Errno::BadF)
    }

    pub(crate) fn close(&self, fd: u32) -> Result<(), Errno> {
        let mut files = self.files.lock();
        let slot = files.0.get_mut(fd as usize).ok_or(Errno::BadF)?;
        slot.take().map(drop).ok_or(Errno::BadF)
    }

    pub(crate) fn descriptors(&self) -> Descriptors {
        self.files.lock().clone()
    }
}

/// The arguments of a new task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskStart {
    /// Its number.
    pub task: u32,
    /// The number of its process.
    pub process: u32,
    /// Its role in the program.
    pub role: Role,
}

/// A task of a program.
pub struct Task {
    start: TaskStart,
    process: Arc<Process>,
    waits_for: Lock<Option<Key>>,
    in_call: AtomicBool,
    ended: AtomicBool,
    scan: TaskScan,
}

/// Marks a task as in a call of the kernel until it is dropped.
pub(crate) struct InCall<'a>(&'a Task);

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        self.0.in_call.store(false, Relaxed);
    }
}

impl Task {
    pub(crate) fn new(start: TaskStart, process: Arc<Process>) -> Task {
        Task {
            start,
            process,
            waits_for: Lock::default(),
            in_call: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            scan: TaskScan::default(),
        }
    }

    /// Its arguments.
    pub fn start(&self) -> TaskStart {
        self.start
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.start.task
    }

    /// Its process.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// The space that it runs in.
    pub fn space(&self) -> SpaceId {
        self.process.space
    }

    /// The time of its last scan for NUMA balancing.
    pub fn scan(&self) -> &TaskScan {
        &self.scan
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    pub(crate) fn end(&self) {
        let before = self.ended.swap(true, AcqRel);
        assert!(!before, "task {} must not end twice", self.number());
    }

    /// Enter the kernel for a call or a fault. The task runs on one CPU, so nothing else changes the mark.
    #[inline]
    pub(crate) fn enter_call(&self) -> InCall<'_> {
        assert!(!self.has_ended(), "task {} must not enter the kernel after its end", self.number());
        assert!(!self.in_call.load(Relaxed), "task {} must not make a call during another", self.number());
        self.in_call.store(true, Relaxed);
        InCall(self)
    }

    /// The key that it sleeps on or is about to sleep on.
    pub fn waits_for(&self) -> Option<Key> {
        *self.waits_for.lock()
    }

    pub(crate) fn set_waits_for(&self, key: Option<Key>) {
        let before = core::mem::replace(&mut *self.waits_for.lock(), key);
        let number = self.number();
        assert!(
            before.is_none() || key.is_none() || before == key,
            "task {number} waits for {before:?} and must not wait for {key:?}"
        );
    }
}

/// Sums over the tasks of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Loads, stores and fetches.
    pub accesses: u64,
    /// Units of the program's own work.
    pub progress: u64,
    /// Accesses that the checker judged.
    pub checked: u64,
    /// Number of wrong ones.
    pub violations: u64,
    /// Tasks started.
    pub tasks: u64,
    /// When the last task ended.
    pub ended_at: Nanos,
}

impl Totals {
    pub(crate) fn add(&mut self, exit: &Exit) {
        self.accesses = self.accesses.saturating_add(exit.accesses);
        self.progress = self.progress.saturating_add(exit.progress);
        self.checked = self.checked.saturating_add(exit.checked);
        self.violations = self.violations.saturating_add(exit.violations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_returns_the_lowest_free_descriptor() {
        let process = Process::new(0, SpaceId(0), Descriptors::default());
        let open = |file| Open { file, writable: true };
        assert_eq!([0, 1, 2].map(|file| process.open(open(file))), [0, 1, 2]);
        assert_eq!(process.close(1), Ok(()));
        assert_eq!((process.close(1), process.file(1)), (Err(Errno::BadF), Err(Errno::BadF)));
        assert_eq!((process.open(open(7)), process.file(1)), (1, Ok(open(7))));
        assert_eq!(process.close(9), Err(Errno::BadF));
    }

    #[allow(
        clippy::arc_with_non_send_sync,
        reason = "in the one-threaded form a process stays on its thread"
    )]
    fn task() -> Task {
        let process = Arc::new(Process::new(3, SpaceId(0), Descriptors::default()));
        process.enter();
        Task::new(TaskStart { task: 5, process: 3, role: 0 }, process)
    }

    #[test]
    fn a_task_makes_calls_one_after_the_other() {
        let task = task();
        drop(task.enter_call());
        drop(task.enter_call());
        task.end();
        assert!(task.process().leave());
    }

    #[test]
    #[should_panic(expected = "task 5 must not make a call during another")]
    fn nested_calls_of_a_task_panic() {
        let task = task();
        let _first = task.enter_call();
        drop(task.enter_call());
    }

    #[test]
    #[should_panic(expected = "task 5 must not enter the kernel after its end")]
    fn a_call_after_the_end_of_a_task_panics() {
        let task = task();
        task.end();
        drop(task.enter_call());
    }

    #[test]
    #[should_panic(expected = "task 5 must not end twice")]
    fn ending_a_task_twice_panics() {
        let task = task();
        task.end();
        task.end();
    }

    #[test]
    #[should_panic(expected = "process 3 must have a task that leaves it")]
    fn leaving_an_empty_process_panics() {
        let task = task();
        assert!(task.process().leave());
        task.process().leave();
    }

    #[test]
    #[should_panic(expected = "task 5 waits for Some(End(1)) and must not wait for Some(Sleep(5))")]
    fn waiting_for_a_second_key_panics() {
        let task = task();
        task.set_waits_for(Some(Key::End(1)));
        task.set_waits_for(Some(Key::End(1)));
        task.set_waits_for(Some(Key::Sleep(5)));
    }
}

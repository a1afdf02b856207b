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
    /// Was it opened for writing?
    pub writable: bool,
}

/// Open files by descriptor.
#[derive(Clone, Default, Debug)]
pub(crate) struct Descriptors(Vec<Option<Open>>);

impl Descriptors {
    /// The lowest descriptor that is free names `open` from now on.
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
    /// A signal has ended it; its tasks end as soon as they look.
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

    /// Is it to end?
    pub fn is_dead(&self) -> bool {
        self.dead.load(Acquire)
    }

    /// It is to end. `false`: it was to end before.
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

    /// A task leaves. `true`: it was the last.
    pub(crate) fn leave(&self) -> bool {
        let before = self.tasks.fetch_sub(1, AcqRel);
        assert!(before > 0, "process {} has no task that could leave it", self.number);
        before == 1
    }

    pub(crate) fn open(&self, open: Open) -> u32 {
        self.files.lock().add(open)
    }

    /// What a descriptor names.
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

/// What a new task is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskStart {
    /// Its number.
    pub task: u32,
    /// The number of its process.
    pub process: u32,
    /// Its part of the program.
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

/// A task is in a call of the kernel until this is dropped.
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

    /// What it is told when it starts.
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

    /// When it last asked whether pages are to be marked for NUMA balancing.
    pub fn scan(&self) -> &TaskScan {
        &self.scan
    }

    /// Has it ended?
    pub fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    pub(crate) fn end(&self) {
        let before = self.ended.swap(true, AcqRel);
        assert!(!before, "task {} has ended before", self.number());
    }

    /// The task enters the kernel for a call or a fault. It is on one CPU, so nothing else changes the mark.
    #[inline]
    pub(crate) fn enter_call(&self) -> InCall<'_> {
        assert!(!self.has_ended(), "task {} enters the kernel after its end", self.number());
        assert!(!self.in_call.load(Relaxed), "task {} is in a call already", self.number());
        self.in_call.store(true, Relaxed);
        InCall(self)
    }

    /// The key that it sleeps on, or is about to.
    pub fn waits_for(&self) -> Option<Key> {
        *self.waits_for.lock()
    }

    pub(crate) fn set_waits_for(&self, key: Option<Key>) {
        let before = core::mem::replace(&mut *self.waits_for.lock(), key);
        let number = self.number();
        assert!(
            before.is_none() || key.is_none() || before == key,
            "task {number} waits for {before:?} and cannot wait for {key:?}"
        );
    }
}

/// What a run has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Loads, stores and fetches.
    pub accesses: u64,
    /// Units of the program's own work.
    pub progress: u64,
    /// What the checker has judged.
    pub checked: u64,
    /// How much of it was wrong.
    pub violations: u64,
    /// Tasks that were started.
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
    fn descriptors_are_the_lowest_free_numbers() {
        let process = Process::new(0, SpaceId(0), Descriptors::default());
        let open = |file| Open { file, writable: true };
        assert_eq!([0, 1, 2].map(|file| process.open(open(file))), [0, 1, 2]);
        assert_eq!(process.close(1), Ok(()));
        assert_eq!((process.close(1), process.file(1)), (Err(Errno::BadF), Err(Errno::BadF)));
        assert_eq!((process.open(open(7)), process.file(1)), (1, Ok(open(7))));
        assert_eq!(process.close(9), Err(Errno::BadF));
    }

    fn task() -> Task {
        let process = Arc::new(Process::new(3, SpaceId(0), Descriptors::default()));
        process.enter();
        Task::new(TaskStart { task: 5, process: 3, role: 0 }, process)
    }

    #[test]
    fn a_task_makes_one_call_after_another() {
        let task = task();
        drop(task.enter_call());
        drop(task.enter_call());
        task.end();
        assert!(task.process().leave());
    }

    #[test]
    #[should_panic(expected = "task 5 is in a call already")]
    fn a_task_is_in_one_call_at_a_time() {
        let task = task();
        let _first = task.enter_call();
        drop(task.enter_call());
    }

    #[test]
    #[should_panic(expected = "task 5 enters the kernel after its end")]
    fn a_task_makes_no_call_after_its_end() {
        let task = task();
        task.end();
        drop(task.enter_call());
    }

    #[test]
    #[should_panic(expected = "task 5 has ended before")]
    fn a_task_ends_once() {
        let task = task();
        task.end();
        task.end();
    }

    #[test]
    #[should_panic(expected = "process 3 has no task that could leave it")]
    fn a_process_is_left_by_as_many_tasks_as_entered() {
        let task = task();
        assert!(task.process().leave());
        task.process().leave();
    }

    #[test]
    #[should_panic(expected = "task 5 waits for Some(End(1)) and cannot wait for Some(Sleep(5))")]
    fn a_task_waits_for_one_key_at_a_time() {
        let task = task();
        task.set_waits_for(Some(Key::End(1)));
        task.set_waits_for(Some(Key::End(1)));
        task.set_waits_for(Some(Key::Sleep(5)));
    }
}

//! Processes and their tasks.

use super::Key;
use crate::user::TaskStart;
use crate::user::calls::Exit;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use mm::lock::Lock;
use mm::space::TaskScan;
use mm::units::{Nanos, SpaceId};
use program::Errno;

/// An open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Open {
    /// Its number.
    pub(super) file: u32,
    pub(super) writable: bool,
}

/// Open files by descriptor.
#[derive(Clone, Default, Debug)]
pub(super) struct Descriptors(Vec<Option<Open>>);

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
    pub(super) fn new(number: u32, space: SpaceId, files: Descriptors) -> Process {
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
    pub(super) fn die(&self) -> bool {
        !self.dead.swap(true, AcqRel)
    }

    pub(super) fn enter(&self) {
        self.tasks.fetch_add(1, AcqRel);
    }

    /// A task leaves. `true`: it was the last.
    pub(super) fn leave(&self) -> bool {
        self.tasks.fetch_sub(1, AcqRel) == 1
    }

    pub(super) fn open(&self, open: Open) -> u32 {
        self.files.lock().add(open)
    }

    pub(super) fn file(&self, fd: u32) -> Result<Open, Errno> {
        self.files.lock().0.get(fd as usize).copied().flatten().ok_or(Errno::BadF)
    }

    pub(super) fn close(&self, fd: u32) -> Result<(), Errno> {
        let mut files = self.files.lock();
        let slot = files.0.get_mut(fd as usize).ok_or(Errno::BadF)?;
        slot.take().map(drop).ok_or(Errno::BadF)
    }

    pub(super) fn descriptors(&self) -> Descriptors {
        self.files.lock().clone()
    }
}

/// A task of a program.
pub struct Task {
    start: TaskStart,
    process: Arc<Process>,
    waits_for: Lock<Option<Key>>,
    ended: AtomicBool,
    scan: TaskScan,
}

impl Task {
    pub(super) fn new(start: TaskStart, process: Arc<Process>) -> Task {
        let (waits_for, ended, scan) = (Lock::default(), AtomicBool::new(false), TaskScan::default());
        Task { start, process, waits_for, ended, scan }
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

    pub(super) fn end(&self) {
        self.ended.store(true, Release);
    }

    pub(super) fn waits_for(&self) -> Option<Key> {
        *self.waits_for.lock()
    }

    pub(super) fn set_waits_for(&self, key: Option<Key>) {
        *self.waits_for.lock() = key;
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
    pub(super) fn add(&mut self, exit: &Exit) {
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
}

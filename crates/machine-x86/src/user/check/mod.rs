//! The checker: what every address must read, on a machine whose CPUs run in parallel.
//!
//! The simulator's oracle knows the order of all accesses, because it runs one at a time. Here no task knows
//! it. This is known: every store leaves a unique stamp ([`stamp`]), stores to one page exclude each other,
//! and a load that begins after one store has ended and ends before the next begins must find the stamp of
//! the first. So the shadow of a page ([`page`]) has two bounds, and a load is wrong if it finds a stamp
//! outside those that were valid at its beginning and at its end. A load only reads the shadow twice for
//! this, and never waits for another.
//!
//! The checker allows what the simulator's oracle allows:
//! - Private memory reads what was last stored there (the file's content, or zero, before the first store).
//! - Shared memory reads what any task last stored in the file.
//! - After MADV_FREE, until the next store, memory reads the old content or zero, and only zero after zero
//!   was read once.
//! - While a call removes mappings or content, its range is not checked ([`space`], and [`mod@file`] for
//!   truncation): the program races with itself there. A store during such a call leaves the page with more
//!   than one possible content.
//!
//! The checker is in the user arena, and all processes share it. While a task holds one of its locks, the
//! kernel never makes it wait for another task in ring 3. Waiters spin briefly and then yield. Loads and
//! stores allocate nothing.

pub mod access;
pub mod backoff;
pub mod file;
pub mod file_io;
pub mod page;
pub mod space;
pub mod stamp;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use backoff::Backoff;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use file::File;
use program::Signal;
use space::{ForkedMap, Map};
use spin::{Mutex, RwLock};

/// Numbers of unnamed files begin here, above those of all named files.
const FIRST_UNNAMED: u32 = 1 << 11;

/// How many violations are reported with their text.
const MAX_REPORTS: u32 = 16;

/// Memory as a task accesses it, by words.
pub trait Memory {
    /// Load the word at `addr`.
    fn load(&self, addr: u64) -> Result<u64, Signal>;
    /// Store a word.
    fn store(&self, addr: u64, word: u64) -> Result<(), Signal>;
    /// Fetch an instruction from `addr`.
    fn fetch(&self, addr: u64) -> Result<(), Signal>;
    /// Whether this process was chosen to be killed. Its memory may be gone then.
    fn dying(&self) -> bool;
}

/// A wrong read or access, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(pub String);

/// The counts of one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Checked accesses, and checked pages of reads from files.
    pub checked: u64,
    /// How many of them were wrong.
    pub violations: u64,
}

/// An open file.
#[derive(Clone)]
pub struct Open {
    /// The file's shadow.
    pub file: Arc<File>,
    /// Whether it is open for writing.
    pub writable: bool,
}

/// The shadow of a process.
pub struct Process {
    /// The kernel's number of the process.
    pub number: u32,
    map: RwLock<Map>,
    /// Taken shared by calls that change the map, and exclusively by a fork: they exclude each other in the
    /// kernel, too.
    calls: RwLock<()>,
    files: Mutex<Vec<Option<Open>>>,
    tasks: AtomicU32,
    /// Its map is complete, so its tasks may run.
    ready: AtomicBool,
}

/// The checker.
pub struct Checker {
    processes: Mutex<BTreeMap<u32, Arc<Process>>>,
    files: Mutex<BTreeMap<u32, Arc<File>>>,
    unnamed: AtomicU32,
    reports: AtomicU32,
}

impl Process {
    fn new(number: u32, map: Map, files: Vec<Option<Open>>) -> Process {
        Process {
            number,
            map: RwLock::new(map),
            calls: RwLock::new(()),
            files: Mutex::new(files),
            tasks: AtomicU32::new(1),
            ready: AtomicBool::new(false),
        }
    }

    /// Held during a call that changes the map.
    pub fn call(&self, backoff: &dyn Backoff) -> spin::RwLockReadGuard<'_, ()> {
        backoff::read(&self.calls, backoff)
    }

    /// Held during a fork.
    pub fn forking(&self, backoff: &dyn Backoff) -> spin::RwLockWriteGuard<'_, ()> {
        backoff::write(&self.calls, backoff)
    }

    /// Lock the map exclusively, so that no access is being checked.
    pub fn map(&self, backoff: &dyn Backoff) -> spin::RwLockWriteGuard<'_, Map> {
        backoff::write(&self.map, backoff)
    }

    /// The file of a descriptor.
    pub fn file(&self, fd: u32, backoff: &dyn Backoff) -> Option<Open> {
        backoff::lock(&self.files, backoff).get(fd as usize).cloned().flatten()
    }

    /// Set or clear the file of a descriptor.
    pub fn set_file(&self, fd: u32, open: Option<Open>, backoff: &dyn Backoff) {
        let mut files = backoff::lock(&self.files, backoff);
        if files.len() <= fd as usize {
            files.resize(fd as usize + 1, None);
        }
        files[fd as usize] = open;
    }

    /// Called before another task of the process starts.
    pub fn enter(&self) {
        self.tasks.fetch_add(1, AcqRel);
    }
}

impl Default for Checker {
    /// A checker of one process, number 0, with one task and no mappings.
    fn default() -> Checker {
        let first = Process::new(0, Map::default(), Vec::new());
        first.ready.store(true, Release);
        Checker {
            processes: Mutex::new(BTreeMap::from([(0, Arc::new(first))])),
            files: Mutex::default(),
            unnamed: AtomicU32::new(FIRST_UNNAMED),
            reports: AtomicU32::new(0),
        }
    }
}

impl Checker {
    /// The shadow of a process, for one of its tasks. Waits until the shadow is ready.
    pub fn process(&self, number: u32, backoff: &dyn Backoff) -> Arc<Process> {
        let mut found = None;
        backoff.until(&mut || {
            let process = self.processes.try_lock().and_then(|processes| processes.get(&number).cloned());
            found = process.filter(|process| process.ready.load(Acquire));
            found.is_some()
        });
        found.expect("a process must be found")
    }

    /// Create the shadow of a child of `parent`, which the fork that began with `fork_state` has made.
    pub fn fork(&self, parent: &Process, number: u32, fork_state: &ForkedMap, backoff: &dyn Backoff) {
        let files = backoff::lock(&parent.files, backoff).clone();
        let map = {
            let _quiet = parent.map(backoff);
            fork_state.end_fork()
        };
        let child = Arc::new(Process::new(number, map, files));
        backoff::lock(&self.processes, backoff).insert(number, child.clone());
        fork_state.allow_for_truncations(&child.map(backoff), backoff);
        child.ready.store(true, Release);
    }

    /// Called when a task of the process ends, or was not started after all.
    pub fn leave(&self, process: &Process, backoff: &dyn Backoff) {
        if process.tasks.fetch_sub(1, AcqRel) == 1 {
            let removed = backoff::lock(&self.processes, backoff).remove(&process.number);
            drop(removed);
        }
    }

    /// The file with the kernel's number `number`; a new one has `size` bytes.
    pub fn file(&self, number: u32, size: u64, backoff: &dyn Backoff) -> Arc<File> {
        if let Some(file) = backoff::lock(&self.files, backoff).get(&number) {
            return file.clone();
        }
        let new = Arc::new(File::new(number, size));
        backoff::lock(&self.files, backoff).entry(number).or_insert(new).clone()
    }

    /// A new unnamed file, for shared anonymous memory.
    pub fn unnamed(&self, size: u64) -> Arc<File> {
        Arc::new(File::new(self.unnamed.fetch_add(1, Relaxed), size))
    }

    /// End the truncation of a file: private copies of its removed pages are gone, too.
    pub fn end_truncate(
        &self,
        file: &Arc<File>,
        truncation: file::Truncation,
        done: bool,
        backoff: &dyn Backoff,
    ) {
        if done {
            let all: Vec<_> = backoff::lock(&self.processes, backoff).values().cloned().collect();
            for process in all {
                process.map(backoff).truncate(file, truncation.first, backoff);
            }
        }
        file.end_truncate(truncation, done, backoff);
    }

    /// Whether to report the next violation with its text. Only the first few are.
    pub fn should_report(&self) -> bool {
        self.reports.fetch_add(1, Relaxed) < MAX_REPORTS
    }
}

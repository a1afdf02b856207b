//! The checker: what every address must read, on a machine whose CPUs really run at the same time.
//!
//! The simulator's oracle knows the order of all accesses, because it runs one at a time. Here nobody knows it. What
//! can be known: every store leaves a stamp of its own ([`stamp`]), stores to one page exclude each other, and a load
//! that began after one store had ended and ended before another began must find the stamp between. So the shadow of a
//! page ([`page`]) has two bounds, and a load is wrong if it finds a stamp outside of those that held at its beginning
//! and at its end. Nothing of this slows loads down by more than two looks at the shadow, and none waits for another.
//!
//! What is allowed is what the simulator's oracle allows:
//! - private memory reads what was last stored there (a file's content, or zero, before the first store);
//! - shared memory reads what anybody last stored in the file;
//! - after MADV_FREE, until the next store, the old content or zero, and zero for good once zero was seen;
//! - while a call that takes mappings or content away is under way, its range is not judged ([`space`], and
//!   [`mod@file`] for cuts of files): the program races with itself there. A store meanwhile leaves the page with more
//!   than one possible content.
//!
//! The checker lives in the user arena and is one for all processes. No lock of it is held by anybody whom the kernel
//! makes wait for a task in ring 3; those who wait for its locks spin a little and then let others run. Loads and
//! stores allocate nothing.

pub mod access;
pub mod file;
pub mod file_io;
pub mod page;
pub mod patience;
pub mod space;
pub mod stamp;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use file::File;
use patience::Patience;
use program::Signal;
use space::{ForkedMap, Map};
use spin::{Mutex, RwLock};

/// Numbers of nameless files begin here, above those of all files with names.
const NAMELESS: u32 = 1 << 11;

/// How many violations are told in words.
const TOLD: u32 = 16;

/// Words of memory, as a task touches them.
pub trait Memory {
    /// Load the word at `addr`.
    fn load(&self, addr: u64) -> Result<u64, Signal>;
    /// Store a word.
    fn store(&self, addr: u64, word: u64) -> Result<(), Signal>;
    /// What fetching an instruction from `addr` does.
    fn fetch(&self, addr: u64) -> Result<(), Signal>;
    /// Was this process chosen to die? Its memory may be gone then.
    fn dying(&self) -> bool;
}

/// Something was read that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(pub String);

/// What one task has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Accesses and pages read from files that were judged.
    pub checked: u64,
    /// How many of them were wrong.
    pub violations: u64,
}

/// An open file.
#[derive(Clone)]
pub struct Open {
    /// Its shadow.
    pub file: Arc<File>,
    /// Open for writing?
    pub writable: bool,
}

/// Shadow of a process.
pub struct Process {
    /// The kernel's number of it.
    pub number: u32,
    map: RwLock<Map>,
    /// Held shared by calls that change the map, alone by a fork: in the kernel, too, they exclude each other.
    calls: RwLock<()>,
    files: Mutex<Vec<Option<Open>>>,
    tasks: AtomicU32,
    /// Its map is as it was made; tasks may run.
    ready: AtomicBool,
}

/// The checker.
pub struct Checker {
    processes: Mutex<BTreeMap<u32, Arc<Process>>>,
    files: Mutex<BTreeMap<u32, Arc<File>>>,
    nameless: AtomicU32,
    told: AtomicU32,
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

    /// To be held during a call that changes the map.
    pub fn call(&self, patience: &dyn Patience) -> spin::RwLockReadGuard<'_, ()> {
        patience::read(&self.calls, patience)
    }

    /// To be held during a fork.
    pub fn forking(&self, patience: &dyn Patience) -> spin::RwLockWriteGuard<'_, ()> {
        patience::write(&self.calls, patience)
    }

    /// Look at the map, while no access is being judged.
    pub fn map(&self, patience: &dyn Patience) -> spin::RwLockWriteGuard<'_, Map> {
        patience::write(&self.map, patience)
    }

    /// What a descriptor names.
    pub fn file(&self, fd: u32, patience: &dyn Patience) -> Option<Open> {
        patience::lock(&self.files, patience).get(fd as usize).cloned().flatten()
    }

    /// A descriptor names something else now.
    pub fn set_file(&self, fd: u32, open: Option<Open>, patience: &dyn Patience) {
        let mut files = patience::lock(&self.files, patience);
        if files.len() <= fd as usize {
            files.resize(fd as usize + 1, None);
        }
        files[fd as usize] = open;
    }

    /// A task of it is about to start.
    pub fn enter(&self) {
        self.tasks.fetch_add(1, AcqRel);
    }
}

impl Default for Checker {
    fn default() -> Checker {
        Checker::new()
    }
}

impl Checker {
    /// A checker of one process, number 0, which has nothing mapped and one task.
    pub fn new() -> Checker {
        let first = Process::new(0, Map::default(), Vec::new());
        first.ready.store(true, Release);
        Checker {
            processes: Mutex::new(BTreeMap::from([(0, Arc::new(first))])),
            files: Mutex::default(),
            nameless: AtomicU32::new(NAMELESS),
            told: AtomicU32::new(0),
        }
    }

    /// The shadow of a process that one of its tasks asks for; waits until it is ready.
    pub fn process(&self, number: u32, patience: &dyn Patience) -> Arc<Process> {
        let mut found = None;
        patience.until(&mut || {
            let process = self.processes.try_lock().and_then(|processes| processes.get(&number).cloned());
            found = process.filter(|process| process.ready.load(Acquire));
            found.is_some()
        });
        found.expect("just found")
    }

    /// A child was made of `parent` by the fork that began with `begun`.
    pub fn fork(&self, parent: &Process, number: u32, begun: &ForkedMap, patience: &dyn Patience) {
        let files = patience::lock(&parent.files, patience).clone();
        let map = {
            let _quiet = parent.map(patience);
            begun.end_fork()
        };
        let child = Arc::new(Process::new(number, map, files));
        patience::lock(&self.processes, patience).insert(number, child.clone());
        begun.allow_for_cuts(&child.map(patience), patience);
        child.ready.store(true, Release);
    }

    /// A task of the process ends, or was not started after all.
    pub fn leave(&self, process: &Process, patience: &dyn Patience) {
        if process.tasks.fetch_sub(1, AcqRel) == 1 {
            let gone = patience::lock(&self.processes, patience).remove(&process.number);
            drop(gone);
        }
    }

    /// The file that the kernel knows under a number; if it was not there, it has `size` bytes.
    pub fn file(&self, number: u32, size: u64, patience: &dyn Patience) -> Arc<File> {
        if let Some(file) = patience::lock(&self.files, patience).get(&number) {
            return file.clone();
        }
        let new = Arc::new(File::new(number, size));
        patience::lock(&self.files, patience).entry(number).or_insert(new).clone()
    }

    /// A nameless file, for shared anonymous memory.
    pub fn nameless(&self, size: u64) -> Arc<File> {
        Arc::new(File::new(self.nameless.fetch_add(1, Relaxed), size))
    }

    /// A cut of a file has ended: private copies of its pages are gone with them.
    pub fn end_cut(&self, file: &Arc<File>, cut: file::Cut, done: bool, patience: &dyn Patience) {
        if done {
            let all: Vec<_> = patience::lock(&self.processes, patience).values().cloned().collect();
            for process in all {
                process.map(patience).cut(file, cut.first, patience);
            }
        }
        file.end_cut(cut, done, patience);
    }

    /// Is the next violation to be told in words? Only the first few are.
    pub fn tells(&self) -> bool {
        self.told.fetch_add(1, Relaxed) < TOLD
    }
}

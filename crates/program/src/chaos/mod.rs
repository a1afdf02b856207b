//! A program that does random operations: for finding bugs in the memory manager, not for measuring it.
//!
//! Each task (thread or forked child) knows the areas that it has mapped and does random operations on them.
//! In addition, all threads of a process use and change one range of addresses concurrently (`common`). Tasks
//! share files, which each may write, truncate or sync. What is known about an address decides the possible
//! outcomes of an access; only files that other tasks truncate may raise an unexpected signal.

mod areas;
mod change;
mod common;
mod covered;
mod others;
mod touch;

use crate::os::*;
use crate::rng::Rng;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use areas::{Area, Areas, PAGE};
use common::Common;
use covered::{Covered, Op, Outcome};
use spin::Mutex;

const FILES: [&str; 3] = ["chaos-a", "chaos-b", "chaos-shm"];

fn is_in_memory(name: &str) -> bool {
    name.ends_with("shm")
}

/// Default number of operations of each task.
const OPERATIONS: u32 = 200;
/// The most operations of each task.
pub const MAX_OPERATIONS: u32 = 1 << 20;
/// The most areas that a task has of its own.
const MAX_AREAS: usize = 10;

/// One line of help for lists of programs.
pub const HELP: &str = "random operations (chaos:SIZE:OPERATIONS, of each task): to find bugs in the memory manager, not to measure it";

/// The program `chaos`.
#[derive(Debug)]
pub struct Chaos {
    state: Mutex<State>,
    covered: Covered,
    /// Operations of each task.
    pub operations: u32,
    /// Pages of the largest area, and of the files.
    pub pages: u64,
    /// Threads of the first process besides its first.
    pub threads: u32,
    /// Children that each task of the first process may fork; theirs may fork one less.
    pub forks: u32,
}

/// What tasks tell each other.
#[derive(Default, Debug)]
struct State {
    /// Tasks that are about to start, by role.
    new_tasks: BTreeMap<Role, NewTask>,
    /// The newest role.
    last_role: Role,
    groups: Vec<Group>,
    /// Whether knobs are changed while the program runs.
    knobs: bool,
}

/// What a new task needs to know.
#[derive(Clone, Debug)]
struct NewTask {
    /// Its own areas: those of the task that forked it.
    own: Areas,
    common: Arc<Common>,
    forks: u32,
    child: bool,
}

impl Chaos {
    /// Two threads besides the first and two children of each, `operations` operations each, on areas and
    /// files of up to `pages` pages.
    pub fn new(operations: u32, pages: u64) -> Chaos {
        let (state, covered) = Default::default();
        Chaos { state, covered, operations, pages: pages.max(1), threads: 2, forks: 2 }
    }

    /// A program that touches about `footprint` bytes, and does `operations` operations in each task.
    pub fn from_footprint(footprint: u64, operations: Option<u32>) -> Chaos {
        let unit = Chaos::new(operations.unwrap_or(OPERATIONS), 1);
        Chaos { pages: (footprint / unit.footprint()).max(1), ..unit }
    }

    /// The same program before it has run. It keeps what its tasks tell each other, so each run needs one of its own.
    pub fn again(&self) -> Chaos {
        let &Chaos { operations, pages, threads, forks, .. } = self;
        Chaos { threads, forks, ..Chaos::new(operations, pages) }
    }

    /// How often each operation had each outcome, as `mmap/done`. Those that must occur in a long run are
    /// listed even if they have not.
    pub fn covered(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        self.covered.list()
    }

    /// Bytes of the files on disk at the start.
    pub fn disk(&self) -> u64 {
        self.pages * PAGE * FILES.iter().filter(|name| !is_in_memory(name)).count() as u64
    }

    fn register(&self, new: NewTask) -> Role {
        let mut state = self.state.lock();
        state.last_role += 1;
        let role = state.last_role;
        state.new_tasks.insert(role, new);
        role
    }
}

struct Task<'a, O> {
    chaos: &'a Chaos,
    os: &'a mut O,
    rng: Rng,
    own: Areas,
    common: Arc<Common>,
    files: [Option<u32>; FILES.len()],
    tasks: Vec<TaskHandle>,
    forks: u32,
    child: bool,
}

impl Program for Chaos {
    fn name(&self) -> &str {
        "chaos"
    }

    fn footprint(&self) -> u64 {
        (self.pages * 4 * (1 + self.threads as u64) + self.pages * FILES.len() as u64) * PAGE
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let mut rng = Rng::new(os.seed());
        let new = match role {
            0 => {
                self.state.lock().knobs = rng.percent(50);
                let (own, common) = Default::default();
                NewTask { own, common, forks: self.forks, child: false }
            }
            _ => {
                self.state.lock().new_tasks.remove(&role).expect("a task must be registered before it starts")
            }
        };
        let NewTask { own, common, forks, child } = new;
        let (files, tasks) = ([None; FILES.len()], Vec::new());
        let mut task = Task { chaos: self, os, rng, own, common, files, tasks, forks, child };
        (0..FILES.len()).for_each(|i| task.open_file(i));
        if role == 0 {
            (0..self.threads).for_each(|_| task.spawn());
        }
        let outcome = task.operations();
        for other in core::mem::take(&mut task.tasks) {
            task.os.join(other);
        }
        (0..FILES.len()).for_each(|i| task.close_file(i));
        outcome
    }
}

impl<O: Os> Task<'_, O> {
    fn operations(&mut self) -> Result<(), Signal> {
        for _ in 0..self.chaos.operations {
            self.operation()?;
            self.os.progress(1);
        }
        Ok(())
    }

    fn operation(&mut self) -> Result<(), Signal> {
        match self.rng.below(200) {
            0..8 => self.map(),
            8..13 => self.unmap(),
            13..17 => self.protect(),
            17..22 => self.remap(),
            22..32 => self.advise(),
            32..35 => self.lock(),
            35..38 => self.sync(),
            38..46 => self.read_write(),
            46..48 => self.truncate(),
            48..50 => self.file_advice(),
            50..52 => self.start_task(),
            52..53 => self.reopen(),
            53..56 => self.group(),
            56..57 => self.change_knob(),
            57..58 => self.pause(),
            58..78 => self.change_common(),
            78..110 => self.touch_repeatedly()?,
            110..114 => self.migrate(),
            114..160 => self.sweep()?,
            _ => self.touch()?,
        }
        Ok(())
    }

    /// Record the outcome of an operation.
    fn record<T>(&self, op: Op, result: &Result<T, Errno>) {
        let outcome = if result.is_ok() { Outcome::Done } else { Outcome::Refused };
        self.chaos.covered.add(op, outcome, 1);
    }

    /// Record the outcome of an operation that only lack of memory, the end of its process, or a device that fails can
    /// refuse.
    fn expect_success<T>(&self, op: Op, result: &Result<T, Errno>) {
        self.record(op, result);
        if let Err(errno) = result {
            let failed = *errno == Errno::Io && self.os.devices_may_fail();
            assert!(*errno == Errno::NoMem || failed, "{op:?} must not fail with {errno:?}");
        }
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.below(all.len() as u64) as usize]
    }

    fn pick(&mut self) -> Option<Area> {
        let areas = self.own.len() as u64;
        (areas > 0).then(|| self.own.get(self.rng.below(areas) as usize))
    }

    /// A number of pages: mostly few.
    fn some_pages(&mut self, max: u64) -> u64 {
        let max = if self.rng.percent(70) { max.min(48) } else { max };
        1 + self.rng.below(max)
    }

    /// A part of a range: address and pages.
    fn part(&mut self, (addr, pages): (u64, u64)) -> (u64, u64) {
        let from = self.rng.below(pages);
        (addr + from * PAGE, self.some_pages(pages - from))
    }

    fn rights(&mut self) -> Prot {
        self.one_of(&[Prot::READ, Prot::RW, Prot::RW, Prot::RW, Prot::NONE, Prot::RX, Prot::ALL])
    }
}

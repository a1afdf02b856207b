//! A program that does everything, at random: for looking for faults in the memory manager, not for measuring it.
//!
//! Tasks (threads and forked children) each keep account of the areas that they have mapped and do random operations on
//! them. Besides, all threads of a process change and use one range of addresses at the same time (`common`). They
//! share files, which any of them may write, cut or have written back. What an access must do follows from what is
//! known of its address; only files that others cut may raise a signal that the task does not foresee.

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
use covered::{Act, Came, Covered};
use spin::Mutex;

const FILES: [&str; 3] = ["chaos-a", "chaos-b", "chaos-shm"];

fn is_in_memory(name: &str) -> bool {
    name.ends_with("shm")
}

/// Operations of each task if nothing is said.
const OPERATIONS: u32 = 200;
/// Most that may be said.
pub const MOST_OPERATIONS: u32 = 1 << 20;
/// Most areas that a task has of its own.
const MOST_AREAS: usize = 10;

/// One line of help for lists of programs.
pub const HELP: &str = "do everything at random (chaos:SIZE:OPERATIONS, of each task): to look for faults of the memory manager, not to measure it";

/// What to do.
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
    /// Tasks to be, by role.
    births: BTreeMap<Role, Birth>,
    /// The role given out last.
    last_role: Role,
    groups: Vec<Group>,
    /// Are knobs changed while the program runs?
    knobs: bool,
}

/// What a new task is told.
#[derive(Clone, Debug)]
struct Birth {
    /// Areas that it has of its own: those of the task that forked it.
    own: Areas,
    common: Arc<Common>,
    forks: u32,
    child: bool,
}

impl Chaos {
    /// Two threads besides the first and two children of each, `operations` operations each, on areas and files of up
    /// to `pages` pages.
    pub fn new(operations: u32, pages: u64) -> Chaos {
        let (state, covered) = Default::default();
        Chaos { state, covered, operations, pages: pages.max(1), threads: 2, forks: 2 }
    }

    /// A program that touches about `footprint` bytes, and does so many operations in each task.
    pub fn from_footprint(footprint: u64, operations: Option<u32>) -> Chaos {
        let unit = Chaos::new(operations.unwrap_or(OPERATIONS), 1);
        Chaos { pages: (footprint / unit.footprint()).max(1), ..unit }
    }

    /// How often each operation came to what, as `mmap/done`; those that must happen sooner or later are listed even if
    /// they have not.
    pub fn covered(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        self.covered.list()
    }

    /// Bytes of files on a disk that it begins with.
    pub fn disk(&self) -> u64 {
        self.pages * PAGE * FILES.iter().filter(|name| !is_in_memory(name)).count() as u64
    }

    fn give_birth(&self, birth: Birth) -> Role {
        let mut state = self.state.lock();
        state.last_role += 1;
        let role = state.last_role;
        state.births.insert(role, birth);
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
        let birth = match role {
            0 => {
                self.state.lock().knobs = rng.percent(50);
                let (own, common) = Default::default();
                Birth { own, common, forks: self.forks, child: false }
            }
            _ => self.state.lock().births.remove(&role).expect("who was started was announced"),
        };
        let Birth { own, common, forks, child } = birth;
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
            46..48 => self.cut(),
            48..50 => self.file_advice(),
            50..52 => self.start_another(),
            52..53 => self.reopen(),
            53..56 => self.group(),
            56..57 => self.change_knob(),
            57..58 => self.rest(),
            58..78 => self.change_common(),
            78..110 => self.linger()?,
            110..114 => self.migrate(),
            114..160 => self.sweep()?,
            _ => self.touch()?,
        }
        Ok(())
    }

    /// Note what came of an operation.
    fn note<T>(&self, act: Act, result: &Result<T, Errno>) {
        let came = if result.is_ok() { Came::Done } else { Came::Refused };
        self.chaos.covered.add(act, came, 1);
    }

    /// Note what came of an operation that nothing but want of memory, or a process that is to end, can refuse.
    fn surely<T>(&self, act: Act, result: &Result<T, Errno>) {
        self.note(act, result);
        if let Err(errno) = result {
            assert!(*errno == Errno::NoMem, "{act:?} was refused: {errno:?}");
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
    fn some_pages(&mut self, most: u64) -> u64 {
        let most = if self.rng.percent(70) { most.min(48) } else { most };
        1 + self.rng.below(most)
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

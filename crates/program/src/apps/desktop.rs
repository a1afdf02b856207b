//! A desktop: programs that are opened one after the other and stay open, on a machine that is too small for
//! all of them.
//!
//! One user does one thing at a time: opens a program, or returns to an open one, most likely to one that was
//! used recently. If a program has not answered after [`TIMEOUT`], the user regards it as dead (the system
//! may have run out of memory and killed it) and ignores it from then on. The user and the programs know the
//! plan. Two files in memory tell them how far it is: their sizes are the numbers of steps started and
//! finished.

use super::AppOptions;
use super::parts::{Heap, PAGE, must, open, touch};
use crate::keys::{Distribution, Keys};
use crate::rng::Rng;
use crate::{AccessKind, FileSpec, Map, MapSource, Os, Prot, Role, Signal};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

/// Programs by default; a guess.
const PROGRAMS: u32 = 12;
/// Steps for each program: opening it, and returns to open ones; a guess.
const STEPS: usize = 3;
/// Share of a program's pages that belong to its file (code and what it reads at its start), in per cent; a
/// guess.
const FILE: u64 = 40;
/// Libraries, which all programs map, in per cent of all bytes; a guess.
const LIBRARIES: u64 = 5;
/// Instructions to set up a page at the start, and to use a page later; guesses.
const START: u64 = 20_000;
const WORK: u64 = 20_000;
/// Time between two polls of the plan's progress, and until the user gives up, in nanoseconds; guesses.
const POLL: u64 = 500_000;
const TIMEOUT: u64 = 10_000_000_000;
/// The plan is the same for all seeds.
const PLAN_SEED: u64 = 11;

/// The user and the programs.
#[derive(Clone, Debug)]
pub(super) struct Desktop {
    programs: u32,
    /// Pages of a program, and of the libraries.
    pages: u64,
    libraries: u64,
}

/// Files that tell a task how far the plan is.
struct Steps {
    started: u32,
    finished: u32,
}

impl Steps {
    fn open<O: Os>(os: &mut O) -> Result<Steps, Signal> {
        let mut file = |name| must(os.open(FileSpec { name, size: 0, in_memory: true, writable: true }));
        Ok(Steps { started: file("desktop-begun")?, finished: file("desktop-ended")? })
    }

    /// Wait until a step is noted. Returns whether that happened before `until`.
    fn wait<O: Os>(os: &mut O, file: u32, step: usize, until: u64) -> Result<bool, Signal> {
        while must(os.pread(file, step as u64, 1))? == 0 {
            if os.now() >= until {
                return Ok(false);
            }
            os.sleep(POLL);
        }
        Ok(true)
    }

    fn note<O: Os>(os: &mut O, file: u32, step: usize) -> Result<(), Signal> {
        must(os.pwrite(file, step as u64, 1)).map(drop)
    }
}

impl Desktop {
    pub(super) fn new(options: &AppOptions) -> Desktop {
        let programs = options.tasks(PROGRAMS);
        let libraries = (options.bytes / PAGE * LIBRARIES / 100).max(1);
        Desktop { programs, pages: (options.bytes / PAGE - libraries) / u64::from(programs), libraries }
    }

    pub(super) fn footprint(&self) -> u64 {
        (self.pages * u64::from(self.programs) + self.libraries) * PAGE
    }

    /// The program of each step; its first step opens it.
    fn plan(&self) -> Vec<u32> {
        let mut rng = Rng::new(PLAN_SEED);
        let (mut plan, mut used) = (Vec::new(), Vec::new());
        for program in 0..self.programs {
            used.push(program);
            plan.push(program);
            for _ in 1..STEPS {
                let age = Keys::new(Distribution::Exponential, used.len() as u64, 0).next(&mut rng);
                let again = used.remove(used.len() - 1 - age as usize);
                used.push(again);
                plan.push(again);
            }
        }
        plan
    }

    /// The user: follow the plan.
    fn user<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let (steps, plan) = (Steps::open(os)?, self.plan());
        let (mut opened, mut unresponsive) = (Vec::new(), BTreeSet::new());
        for (step, &program) in plan.iter().enumerate() {
            if unresponsive.contains(&program) {
                continue;
            }
            Steps::note(os, steps.started, step)?;
            if opened.len() == program as usize {
                opened.push(must(os.fork(1 + program))?);
            }
            let until = os.now() + TIMEOUT;
            if !Steps::wait(os, steps.finished, step, until)? {
                unresponsive.insert(program);
            }
        }
        Steps::note(os, steps.started, plan.len())?;
        opened.into_iter().for_each(|program| os.join(program));
        Ok(())
    }

    /// A program: start, do what the user wants, and wait for the end.
    fn program<O: Os>(&self, os: &mut O, program: u32) -> Result<(), Signal> {
        let (steps, plan) = (Steps::open(os)?, self.plan());
        let own_steps = plan.iter().enumerate().filter(|&(_, of)| *of == program).map(|(step, _)| step);
        let start = os.now();
        let memory = self.start(os, program)?;
        let mut rng = Rng::new(os.seed());
        for (visit, step) in own_steps.enumerate() {
            if visit == 0 {
                let took = os.now() - start;
                os.took(took);
            } else {
                Steps::wait(os, steps.started, step, u64::MAX)?;
                memory.work(os, &mut rng)?;
            }
            os.progress(1);
            Steps::note(os, steps.finished, step)?;
        }
        Steps::wait(os, steps.started, plan.len(), u64::MAX).map(drop)
    }

    /// Map the libraries and the program's file, run through their code, and fill the heap.
    fn start<O: Os>(&self, os: &mut O, program: u32) -> Result<Memory, Signal> {
        let (file, heap) = (self.pages * FILE / 100, self.pages - self.pages * FILE / 100);
        let map = |os: &mut O, name: &str, pages: u64| {
            let fd = open(os, name, pages * PAGE)?;
            let source = MapSource::File { fd, offset: 0, shared: false };
            let map = Map { source, prot: Prot::RX, ..Map::anonymous(pages * PAGE) };
            must(os.mmap(map))
        };
        let libraries = map(os, "desktop-libraries", self.libraries)?;
        let code = map(os, &format!("desktop-program-{program}"), file.max(1))?;
        let anonymous = must(os.mmap(Map::anonymous(heap * PAGE)))?;
        let code = Heap { start: code, len: file.max(1) * PAGE };
        let memory = Memory { code, heap: Heap { start: anonymous, len: heap * PAGE } };
        for page in 0..self.libraries {
            touch(os, libraries + page * PAGE, 256, AccessKind::Fetch)?;
        }
        for page in 0..file.max(1) {
            touch(os, memory.code.start + page * PAGE, 1024, AccessKind::Fetch)?;
            os.compute(START);
        }
        memory.heap.touch(os, 0, memory.heap.len, AccessKind::Store)?;
        os.compute(heap * START);
        Ok(memory)
    }
}

/// A program's memory.
struct Memory {
    code: Heap,
    heap: Heap,
}

impl Memory {
    /// Run some of the code and use some of the heap, by Zipf's law.
    fn work<O: Os>(&self, os: &mut O, rng: &mut Rng) -> Result<(), Signal> {
        for (part, mode) in
            [(self.code, AccessKind::Fetch), (self.heap, AccessKind::Load), (self.heap, AccessKind::Store)]
        {
            let pages = part.len / PAGE;
            let mut keys = Keys::new(Distribution::Zipf, pages, 0);
            for _ in 0..pages {
                part.touch(os, keys.next_scattered(rng) * PAGE, 256, mode)?;
                os.compute(WORK);
            }
        }
        Ok(())
    }
}

impl Desktop {
    pub(super) fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        match role.checked_sub(1) {
            None => self.user(os),
            Some(program) => self.program(os, program),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_opens_each_program_once_and_returns_to_some() {
        let desktop =
            Desktop::new(&AppOptions { bytes: 24 << 20, threads: None, distribution: None, writes: None });
        let plan = desktop.plan();
        assert_eq!(plan.len(), 36);
        let firsts: Vec<usize> = (0..12).map(|p| plan.iter().position(|&of| of == p).unwrap()).collect();
        assert!(firsts.iter().enumerate().all(|(program, &step)| step == program * STEPS), "{plan:?}");
        // Some of the last programs are used more than twice, some less.
        let again = |program| plan.iter().filter(|&&of| of == program).count() - 1;
        assert!((0..12).any(|program| again(program) > 2) && (0..12).any(|program| again(program) < 2));
    }
}

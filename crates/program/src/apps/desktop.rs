//! A desktop: programs that are opened one after the other and stay open, on a machine that is too small for all of
//! them.
//!
//! One user does one thing at a time: open a program, or go back to one that is open, the rather the later it was used.
//! A program that has not answered after [`PATIENCE`] is taken for ended (the system may have run out of memory and
//! killed it), and left alone. The user and the programs know the plan; files in memory, of as many bytes as steps have
//! begun and ended, tell them how far it is.

use super::Ask;
use super::parts::{Heap, PAGE, must, open, touch};
use crate::keys::{Keys, Law};
use crate::rng::Rng;
use crate::{AccessKind, FileSpec, Map, MapSource, Os, Prot, Role, Signal};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

/// Programs, if nothing is said; a guess.
const PROGRAMS: u32 = 12;
/// Steps for each program that is opened: the opening, and goings back; a guess.
const STEPS: usize = 3;
/// Share of a program's pages that are its file's (code and what it reads at its start), in per cent; a guess.
const FILE: u64 = 40;
/// Share of all bytes that are libraries, which all programs map, in per cent; a guess.
const LIBRARIES: u64 = 5;
/// Instructions to set a page up at the start, and to do something with a page; guesses.
const START: u64 = 20_000;
const WORK: u64 = 20_000;
/// Nanoseconds between two looks at how far the plan is, and until the user gives up; guesses.
const LOOK: u64 = 500_000;
const PATIENCE: u64 = 10_000_000_000;
/// The plan is the same for all seeds.
const PLAN: u64 = 11;

/// The programs.
#[derive(Clone, Debug)]
pub(super) struct Desktop {
    programs: u32,
    /// Pages of a program, and of the libraries.
    pages: u64,
    libraries: u64,
}

/// What a task needs to know how far the plan is.
struct Signs {
    begun: u32,
    ended: u32,
}

impl Signs {
    fn open<O: Os>(os: &mut O) -> Result<Signs, Signal> {
        let mut sign = |name| must(os.open(FileSpec { name, size: 0, in_memory: true, writable: true }));
        Ok(Signs { begun: sign("desktop-begun")?, ended: sign("desktop-ended")? })
    }

    /// Wait until a step is noted; is it, before `until`?
    fn wait<O: Os>(os: &mut O, sign: u32, step: usize, until: u64) -> Result<bool, Signal> {
        while must(os.pread(sign, step as u64, 1))? == 0 {
            if os.now() >= until {
                return Ok(false);
            }
            os.sleep(LOOK);
        }
        Ok(true)
    }

    fn note<O: Os>(os: &mut O, sign: u32, step: usize) -> Result<(), Signal> {
        must(os.pwrite(sign, step as u64, 1)).map(drop)
    }
}

impl Desktop {
    pub(super) fn new(ask: &Ask) -> Desktop {
        let programs = ask.tasks(PROGRAMS);
        let libraries = (ask.bytes / PAGE * LIBRARIES / 100).max(1);
        Desktop { programs, pages: (ask.bytes / PAGE - libraries) / u64::from(programs), libraries }
    }

    pub(super) fn footprint(&self) -> u64 {
        (self.pages * u64::from(self.programs) + self.libraries) * PAGE
    }

    /// Which program each step is about; its first one opens it.
    fn plan(&self) -> Vec<u32> {
        let mut rng = Rng::new(PLAN);
        let (mut plan, mut used) = (Vec::new(), Vec::new());
        for program in 0..self.programs {
            used.push(program);
            plan.push(program);
            for _ in 1..STEPS {
                let age = Keys::new(Law::Exponential, used.len() as u64, 0).next(&mut rng);
                let again = used.remove(used.len() - 1 - age as usize);
                used.push(again);
                plan.push(again);
            }
        }
        plan
    }

    /// Follow the plan: what the user does.
    fn user<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let (signs, plan) = (Signs::open(os)?, self.plan());
        let (mut opened, mut gone) = (Vec::new(), BTreeSet::new());
        for (step, &program) in plan.iter().enumerate() {
            if gone.contains(&program) {
                continue;
            }
            Signs::note(os, signs.begun, step)?;
            if opened.len() == program as usize {
                opened.push(must(os.fork(1 + program))?);
            }
            let until = os.now() + PATIENCE;
            if !Signs::wait(os, signs.ended, step, until)? {
                gone.insert(program);
            }
        }
        Signs::note(os, signs.begun, plan.len())?;
        opened.into_iter().for_each(|program| os.join(program));
        Ok(())
    }

    /// What a program does: start, do what the user wants, and wait for the end.
    fn program<O: Os>(&self, os: &mut O, program: u32) -> Result<(), Signal> {
        let (signs, plan) = (Signs::open(os)?, self.plan());
        let steps = plan.iter().enumerate().filter(|&(_, of)| *of == program).map(|(step, _)| step);
        let born = os.now();
        let window = self.start(os, program)?;
        let mut rng = Rng::new(os.seed());
        for (turn, step) in steps.enumerate() {
            if turn == 0 {
                let took = os.now() - born;
                os.took(took);
            } else {
                Signs::wait(os, signs.begun, step, u64::MAX)?;
                window.work(os, &mut rng)?;
            }
            os.progress(1);
            Signs::note(os, signs.ended, step)?;
        }
        Signs::wait(os, signs.begun, plan.len(), u64::MAX).map(drop)
    }

    /// Map the libraries and the program's file, run through them, and fill the heap.
    fn start<O: Os>(&self, os: &mut O, program: u32) -> Result<Window, Signal> {
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
        let window = Window { code, heap: Heap { start: anonymous, len: heap * PAGE } };
        for page in 0..self.libraries {
            touch(os, libraries + page * PAGE, 256, AccessKind::Fetch)?;
        }
        for page in 0..file.max(1) {
            touch(os, window.code.start + page * PAGE, 1024, AccessKind::Fetch)?;
            os.compute(START);
        }
        window.heap.touch(os, 0, window.heap.len, AccessKind::Store)?;
        os.compute(heap * START);
        Ok(window)
    }
}

/// A program's memory.
struct Window {
    code: Heap,
    heap: Heap,
}

impl Window {
    /// Something of its code, and of its heap, some of it again and again.
    fn work<O: Os>(&self, os: &mut O, rng: &mut Rng) -> Result<(), Signal> {
        for (part, mode) in
            [(self.code, AccessKind::Fetch), (self.heap, AccessKind::Load), (self.heap, AccessKind::Store)]
        {
            let pages = part.len / PAGE;
            let mut keys = Keys::new(Law::Zipf, pages, 0);
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
    fn programs_are_opened_in_turn_and_gone_back_to() {
        let desktop = Desktop::new(&Ask { bytes: 24 << 20, threads: None, law: None, writes: None });
        let plan = desktop.plan();
        assert_eq!(plan.len(), 36);
        let firsts: Vec<usize> = (0..12).map(|p| plan.iter().position(|&of| of == p).unwrap()).collect();
        assert!(firsts.iter().enumerate().all(|(program, &step)| step == program * STEPS), "{plan:?}");
        // Some of those that were opened last are used more than twice, some are left.
        let again = |program| plan.iter().filter(|&&of| of == program).count() - 1;
        assert!((0..12).any(|program| again(program) > 2) && (0..12).any(|program| again(program) < 2));
    }
}

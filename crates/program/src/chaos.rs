//! A program that does everything, at random: for looking for faults in the memory manager, not for measuring it.
//!
//! Tasks (threads and forked children) each keep a list of areas that they have mapped and do random operations on them.
//! They share files, which any of them may write, cut or have written back. What an access must do follows from what the
//! task knows (its own areas, their rights); only files that others cut may raise a signal that the task does not foresee.

use crate::os::*;
use crate::rng::Rng;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use spin::Mutex;

const PAGE: u64 = 4096;
/// Roles below this are threads of their parent's process, from it on they are children.
const CHILD: Role = 1000;
const FILES: [&str; 3] = ["chaos-a", "chaos-b", "chaos-shm"];

/// One line of help for lists of programs.
pub const HELP: &str = "do everything at random: to look for faults of the memory manager, not to measure it";

/// What to do.
#[derive(Debug)]
pub struct Chaos {
    /// Areas of a task that forks, for its child by role.
    inherited: Mutex<BTreeMap<Role, Vec<Area>>>,
    /// Operations of each task.
    pub operations: u32,
    /// Pages of the largest area, and of the files.
    pub pages: u64,
    /// Threads of the first process besides its first.
    pub threads: u32,
    /// Children that each task may fork.
    pub forks: u32,
}

#[derive(Clone, Copy, Debug)]
struct Area {
    addr: u64,
    pages: u64,
    prot: Prot,
    /// Index of the file that is shown, and its first page.
    file: Option<(usize, u64)>,
    shared: bool,
}

impl Chaos {
    /// Two threads besides the first and two children of each, `operations` operations each, on areas and files of up to
    /// `pages` pages.
    pub fn new(operations: u32, pages: u64) -> Chaos {
        Chaos { operations, pages: pages.max(1), threads: 2, forks: 2, inherited: Mutex::default() }
    }

    /// A program that touches about `footprint` bytes.
    pub fn from_footprint(footprint: u64) -> Chaos {
        let unit = Chaos::new(200, 1);
        Chaos { pages: (footprint / unit.footprint()).max(1), ..unit }
    }
}

struct Task<'a, O> {
    chaos: &'a Chaos,
    os: &'a mut O,
    rng: Rng,
    areas: Vec<Area>,
    files: [u32; FILES.len()],
    children: Vec<TaskHandle>,
    forks: u32,
    role: Role,
}

impl Program for Chaos {
    fn name(&self) -> &str {
        "chaos"
    }

    fn footprint(&self) -> u64 {
        (self.pages * 4 * (1 + self.threads as u64) + self.pages * FILES.len() as u64) * PAGE
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let rng = Rng::new(os.seed());
        let files = [0; FILES.len()];
        let areas = self.inherited.lock().remove(&role).unwrap_or_default();
        let (children, forks) = (Vec::new(), self.forks);
        let mut task = Task { chaos: self, os, rng, areas, files, children, forks, role };
        task.open_files();
        if role == 0 {
            for thread in 1..=self.threads {
                task.children.extend(task.os.spawn(thread).ok());
            }
        }
        let outcome = task.operations();
        for child in core::mem::take(&mut task.children) {
            task.os.join(child);
        }
        outcome
    }
}

impl<O: Os> Task<'_, O> {
    fn open_files(&mut self) {
        for (i, name) in FILES.into_iter().enumerate() {
            let size = self.chaos.pages * PAGE;
            let spec = FileSpec { name, size, in_memory: name.ends_with("shm"), writable: true };
            self.files[i] = self.os.open(spec).expect("a file can be made");
        }
    }

    fn operations(&mut self) -> Result<(), Signal> {
        for _ in 0..self.chaos.operations {
            self.operation()?;
            self.os.progress(1);
        }
        Ok(())
    }

    fn operation(&mut self) -> Result<(), Signal> {
        match self.rng.below(100) {
            0..5 => self.map(),
            5..9 => self.unmap(),
            9..12 => self.protect(),
            12..15 => self.remap(),
            15..22 => self.advise(),
            22..24 => self.lock(),
            24..27 => self.sync(),
            27..34 => self.read_write(),
            34..36 => self.cut(),
            36..38 => self.file_advice(),
            38..40 => self.fork(),
            40..43 => self.linger()?,
            43..60 => self.sweep()?,
            _ => self.touch()?,
        }
        Ok(())
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.areas.is_empty()).then(|| self.rng.below(self.areas.len() as u64) as usize)
    }

    /// A part of an area: address and pages.
    fn part(&mut self, area: Area) -> (u64, u64) {
        let from = self.rng.below(area.pages);
        let pages = 1 + self.rng.below(area.pages - from);
        (area.addr + from * PAGE, pages)
    }

    fn map(&mut self) {
        if self.areas.len() >= 8 {
            return self.unmap();
        }
        let pages = 1 + self.rng.below(self.chaos.pages);
        let (source, file, shared) = match self.rng.below(6) {
            0 | 1 => (MapSource::Anonymous, None, false),
            2 => (MapSource::AnonymousShared, None, true),
            n => {
                let i = self.rng.below(FILES.len() as u64) as usize;
                let first = self.rng.below(self.chaos.pages);
                let shared = n != 3;
                (
                    MapSource::File { fd: self.files[i], offset: first * PAGE, shared },
                    Some((i, first)),
                    shared,
                )
            }
        };
        // What shows a file is often read only: reclaim may put its flushes off.
        let prot = if self.rng.percent(if file.is_some() { 50 } else { 75 }) { Prot::RW } else { Prot::R };
        let populate = self.rng.percent(10) && file.is_none();
        let over = self.rng.percent(30).then(|| self.pick()).flatten();
        if let Some(i) = over {
            return self.map_over(i, prot, source, file, shared);
        }
        let map = Map { addr: None, len: pages * PAGE, prot, source, populate, locked: false };
        if let Ok(addr) = self.os.mmap(map) {
            self.areas.push(Area { addr, pages, prot, file, shared });
        }
    }

    /// Map something else exactly where an area is, which other threads may be reading.
    fn map_over(
        &mut self,
        i: usize,
        prot: Prot,
        source: MapSource,
        file: Option<(usize, u64)>,
        shared: bool,
    ) {
        let Area { addr, pages, .. } = self.areas[i];
        let map = Map { addr: Some(addr), len: pages * PAGE, prot, source, populate: false, locked: false };
        match self.os.mmap(map) {
            Ok(_) => self.areas[i] = Area { addr, pages, prot, file, shared },
            // Perhaps the old area is gone, perhaps not.
            Err(_) => {
                self.areas.swap_remove(i);
                let _ = self.os.munmap(addr, pages * PAGE);
            }
        }
    }

    /// Unmap the front, the back, the middle or all of an area.
    fn unmap(&mut self) {
        let Some(i) = self.pick() else { return };
        let area = self.areas.swap_remove(i);
        let (addr, pages) = if self.rng.percent(50) { (area.addr, area.pages) } else { self.part(area) };
        self.os.munmap(addr, pages * PAGE).expect("own areas can be unmapped");
        let before = (addr - area.addr) / PAGE;
        let after = area.pages - before - pages;
        if before > 0 {
            self.areas.push(Area { pages: before, ..area });
        }
        if after > 0 {
            let file = area.file.map(|(file, first)| (file, first + before + pages));
            self.areas.push(Area { addr: addr + pages * PAGE, pages: after, file, ..area });
        }
    }

    fn protect(&mut self) {
        let Some(i) = self.pick() else { return };
        let prot = [Prot::R, Prot::RW, Prot::NONE][self.rng.below(3) as usize];
        let area = self.areas[i];
        if self.os.mprotect(area.addr, area.pages * PAGE, prot).is_ok() {
            self.areas[i].prot = prot;
        }
    }

    fn remap(&mut self) {
        let Some(i) = self.pick() else { return };
        let area = self.areas[i];
        let pages = 1 + self.rng.below(self.chaos.pages);
        let remap = Remap {
            addr: area.addr,
            old_len: area.pages * PAGE,
            new_len: pages * PAGE,
            may_move: self.rng.percent(80),
            fixed: None,
        };
        if let Ok(addr) = self.os.mremap(remap) {
            self.areas[i] = Area { addr, pages, ..area };
        }
    }

    fn advise(&mut self) {
        let Some(i) = self.pick() else { return };
        let (addr, pages) = self.part(self.areas[i]);
        let advice = Advice::ALL[self.rng.below(Advice::ALL.len() as u64) as usize];
        // Refused for locked areas, or MADV_FREE of files: that is fine.
        let _ = self.os.madvise(addr, pages * PAGE, advice);
    }

    fn lock(&mut self) {
        let Some(i) = self.pick() else { return };
        let (addr, pages) = self.part(self.areas[i]);
        // Locking faults pages in, which fails where the area forbids it or the file is shorter.
        let _ = match self.rng.percent(40) {
            true => self.os.mlock(addr, pages.min(8) * PAGE),
            false => self.os.munlock(self.areas[i].addr, self.areas[i].pages * PAGE),
        };
    }

    fn sync(&mut self) {
        if self.rng.percent(50) {
            let file = self.files[self.rng.below(FILES.len() as u64) as usize];
            self.os.fsync(file).expect("files can be written back");
        } else if let Some(i) = self.pick() {
            let (addr, pages) = self.part(self.areas[i]);
            self.os.msync(addr, pages * PAGE).expect("own areas can be synced");
        }
    }

    fn read_write(&mut self) {
        let file = self.files[self.rng.below(FILES.len() as u64) as usize];
        let offset = self.rng.below(self.chaos.pages * PAGE);
        let len = 1 + self.rng.below(16 * PAGE);
        // For want of memory both may fail; the oracle checks what was done.
        let _ = if self.rng.percent(50) {
            self.os.pread(file, offset, len)
        } else {
            self.os.pwrite(file, offset, len)
        };
    }

    fn cut(&mut self) {
        let file = self.files[self.rng.below(FILES.len() as u64) as usize];
        let size = self.rng.below(self.chaos.pages * PAGE + 1);
        self.os.ftruncate(file, size).expect("files can be cut");
    }

    fn file_advice(&mut self) {
        const ALL: [FileAdvice; 6] = [
            FileAdvice::Normal,
            FileAdvice::Random,
            FileAdvice::Sequential,
            FileAdvice::WillNeed,
            FileAdvice::DontNeed,
            FileAdvice::NoReuse,
        ];
        let file = self.files[self.rng.below(FILES.len() as u64) as usize];
        let advice = ALL[self.rng.below(ALL.len() as u64) as usize];
        let from = self.rng.below(self.chaos.pages) * PAGE;
        self.os
            .fadvise(file, from, self.rng.below(self.chaos.pages) * PAGE, advice)
            .expect("advice is taken");
    }

    /// A child does the same as its parent, on copies of the forking task's areas.
    fn fork(&mut self) {
        if self.forks == 0 || self.role >= CHILD {
            return;
        }
        self.forks -= 1;
        let role = CHILD + self.role * 100 + self.forks;
        self.chaos.inherited.lock().insert(role, self.areas.clone());
        match self.os.fork(role) {
            Ok(child) => self.children.push(child),
            Err(_) => drop(self.chaos.inherited.lock().remove(&role)),
        }
        if self.rng.percent(50)
            && let Some(child) = self.children.pop()
        {
            self.os.join(child);
        }
    }

    fn sweep(&mut self) -> Result<(), Signal> {
        let Some(i) = self.pick() else { return Ok(()) };
        let area = self.areas[i];
        let (addr, pages) = self.part(area);
        let mode = if self.rng.percent(50) { Mode::Store } else { Mode::Load };
        (0..pages.min(64)).try_for_each(|page| self.access(area, addr + page * PAGE, mode))
    }

    /// Read a few pages on and on, so that their translations stay while others change what lies behind them.
    fn linger(&mut self) -> Result<(), Signal> {
        let Some(i) = self.pick() else { return Ok(()) };
        let area = self.areas[i];
        let (addr, pages) = self.part(area);
        for _ in 0..20 {
            (0..pages.min(8)).try_for_each(|page| self.access(area, addr + page * PAGE, Mode::Load))?;
            self.os.compute(20_000);
        }
        Ok(())
    }

    fn touch(&mut self) -> Result<(), Signal> {
        let Some(i) = self.pick() else { return Ok(()) };
        let area = self.areas[i];
        let addr = area.addr + self.rng.below(area.pages * PAGE / 8) * 8;
        let mode = if self.rng.percent(40) { Mode::Store } else { Mode::Load };
        self.access(area, addr, mode)
    }

    /// Touch memory, and see that it does what the area's rights say.
    fn access(&mut self, area: Area, addr: u64, mode: Mode) -> Result<(), Signal> {
        let allowed = if mode == Mode::Store { area.prot.write } else { area.prot.read };
        match self.os.access(Access { addr, count: 1, mode }) {
            Ok(()) => assert!(allowed, "{addr:#x} could be touched ({mode:?}), although its area forbids it"),
            Err(Signal::Segv { .. }) => assert!(!allowed, "{addr:#x} could not be touched ({mode:?})"),
            // Beyond the end of a file, or of nameless shared memory that mremap made longer.
            Err(Signal::Bus { .. }) => assert!(area.file.is_some() || area.shared, "{addr:#x} has no file"),
            Err(Signal::Kill) => return Err(Signal::Kill),
        }
        Ok(())
    }
}

//! Programs on all CPUs at once.
//!
//! Each task is a process of its own, and all map one file. A task writes only to its own pages of the file;
//! every task reads all pages. Each page holds its version, which only grows, and which is announced after
//! the store. A read of a version older than the one announced before the read has used a stale translation
//! or a stale page.

pub mod races;

use crate::kernel::{self, FILES};
use crate::machine::Threads;
use crate::task;
use mm::api::*;
use mm::knobs::Knob;
use mm::machine::Machine;
use mm::stat::Stat;
use mm::units::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Tasks on each CPU.
const TASKS: usize = 2;
/// Pages of the file that belong to each task.
const OWN_PAGES: u64 = 64;
/// The most pages of anonymous memory that a task maps at once.
const MAX_PAGES: u64 = 900;
/// First block after those that the conformance suite uses.
const BLOCK: u64 = 1 << 17;
/// Nanoseconds between two ticks of a CPU's clock.
const TICK: Nanos = 4_000_000;

/// The state that all tasks share.
struct Shared {
    file: FileId,
    pages: u64,
    /// The announced version of each page of the file.
    announced: Vec<AtomicU64>,
    /// The time of each CPU's next tick.
    ticks: Vec<AtomicU64>,
    accesses: AtomicU64,
}

/// One task.
struct Task {
    shared: Arc<Shared>,
    number: u64,
    space: SpaceId,
    random: u64,
    /// First page of the file's mapping.
    file: Vpn,
}

type Checked<T> = Result<T, String>;

/// Run the tasks for `rounds` rounds each. Returns a summary, or the first failure.
pub fn run(rounds: u64) -> Checked<String> {
    let cpus = kernel::machine().cpus();
    let tasks = cpus * TASKS;
    let pages = OWN_PAGES * tasks as u64;
    let kind = FileKind::Disk { device: FILES, block: BLOCK };
    let shared = Arc::new(Shared::new(kernel::mm().create_file(kind, pages * PAGE_SIZE), pages));
    let all = shared.clone();
    run_tasks(tasks, move |number| Task::run(all.clone(), number, rounds))?;
    let stat = |stat| kernel::mm().mmu().stats.read(stat);
    Ok(format!(
        "{tasks} tasks on {cpus} CPUs under '{}' made {} accesses, {} faults, {} flush rounds; {} pages were swapped out",
        Knob::TlbUnmap.info().words[kernel::mm().mmu().knobs.get(Knob::TlbUnmap) as usize],
        shared.accesses.load(Relaxed),
        stat(Stat::Pgfault),
        stat(Stat::NrTlbRemoteFlush),
        stat(Stat::PswpOut),
    ))
}

/// Run `tasks` tasks, spread over all CPUs, to their ends; `run` gets the number of each. Returns the first
/// failure, if any.
fn run_tasks(tasks: usize, run: impl Fn(u64) -> Checked<()> + Send + Sync + 'static) -> Checked<()> {
    let (cpus, run) = (kernel::machine().cpus(), Arc::new(run));
    let start = |number: usize| {
        let run = run.clone();
        let (sender, receiver) = std::sync::mpsc::channel();
        task::start(CpuId((number % cpus) as u16), move || {
            sender.send(run(number as u64)).expect("the receiver must exist");
        });
        receiver
    };
    let ends: Vec<_> = (0..tasks).map(start).collect();
    task::put_cpu();
    let results: Vec<Checked<()>> =
        ends.iter().map(|end| end.recv().expect("a task must not panic")).collect();
    task::get_cpu();
    results.into_iter().collect()
}

impl Shared {
    fn new(file: FileId, pages: u64) -> Shared {
        let zeroes = |count: u64| (0..count).map(|_| AtomicU64::new(0)).collect();
        let cpus = kernel::machine().cpus() as u64;
        Shared { file, pages, announced: zeroes(pages), ticks: zeroes(cpus), accesses: AtomicU64::new(0) }
    }
}

impl Task {
    fn new(shared: Arc<Shared>, number: u64, space: SpaceId) -> Task {
        Task { shared, number, space, random: number + 1, file: Vpn(0) }
    }

    fn run(shared: Arc<Shared>, number: u64, rounds: u64) -> Checked<()> {
        let mm = kernel::mm();
        let space = mm.create_space(GroupId(0)).map_err(|error| format!("create_space: {error:?}"))?;
        let mut task = Task::new(shared, number, space);
        task::enter(Some(space));
        let result = task.rounds(rounds);
        task::enter(None);
        mm.exit_space(space);
        result
    }

    fn rounds(&mut self, rounds: u64) -> Checked<()> {
        let Shared { file, pages, .. } = *self.shared;
        let backing = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
        self.file = self.map(None, pages, backing)?;
        for round in 1..=rounds {
            self.write_file(round)?;
            self.read_file()?;
            if self.below(4) == 0 {
                self.use_memory(round)?;
            }
        }
        Ok(())
    }

    /// Store the next version of one of the task's own pages.
    fn write_file(&mut self, version: u64) -> Checked<()> {
        let page = self.number * OWN_PAGES + self.below(OWN_PAGES);
        self.store(Vpn(self.file.0 + page), 7, version)?;
        self.shared.announced[page as usize].store(version, SeqCst);
        Ok(())
    }

    /// Check that no page is older than announced.
    fn read_file(&mut self) -> Checked<()> {
        for _ in 0..16 {
            let page = self.below(self.shared.pages);
            let announced = self.shared.announced[page as usize].load(SeqCst);
            let got = self.load(Vpn(self.file.0 + page), 7)?;
            if got < announced {
                return Err(
                    self.failure(&format!("page {page} of the file is of version {got}, not {announced}"))
                );
            }
        }
        Ok(())
    }

    /// Anonymous memory: map it, fill it, share it with a child, advise it, unmap it.
    fn use_memory(&mut self, round: u64) -> Checked<()> {
        let pages = 1 + self.below(MAX_PAGES);
        let start = self.map(None, pages, Backing::Anonymous)?;
        let seed = self.number << 32 | round << 16;
        self.fill(start, pages, seed)?;
        if self.below(3) == 0 {
            self.with_child(start, pages, seed)?;
        }
        match self.below(4) {
            0 => self.call("madvise", |mm, space| mm.madvise(space, start, pages, Advice::PageOut))?,
            1 => {
                let half = pages / 2;
                if half > 0 {
                    self.call("madvise", |mm, space| mm.madvise(space, start, half, Advice::DontNeed))?;
                    self.expect(start, half, |_| 0)?;
                    self.fill(start, half, seed)?;
                }
            }
            2 => {
                self.call("mprotect", |mm, space| mm.mprotect(space, start, pages, Prot::READ))?;
                let refused = self.reach(start, 0, AccessKind::Store, 1);
                if refused != Err(FaultError::Segv) {
                    return Err(
                        self.failure(&format!("a store to a page made read-only ends in {refused:?}"))
                    );
                }
            }
            _ => {}
        }
        self.expect(start, pages, |page| seed + page)?;
        self.call("munmap", |mm, space| mm.munmap(space, start, pages))?;
        match self.reach(start, 0, AccessKind::Load, 0) {
            Err(FaultError::Segv) => Ok(()),
            reached => Err(self.failure(&format!("a load of an unmapped page ends in {reached:x?}"))),
        }
    }

    /// A child has its parent's content, and its stores are private. The task runs as the one and then the
    /// other.
    fn with_child(&mut self, start: Vpn, pages: u64, seed: u64) -> Checked<()> {
        let mm = kernel::mm();
        let parent = self.space;
        self.space = mm.fork(parent).map_err(|error| self.failure(&format!("fork: {error:?}")))?;
        task::enter(Some(self.space));
        let own = seed + (1 << 40);
        let result = self
            .expect(start, pages, |page| seed + page)
            .and_then(|()| self.fill(start, pages.div_ceil(2), own))
            .and_then(|()| self.expect(start, pages.div_ceil(2), |page| own + page));
        task::enter(Some(parent));
        mm.exit_space(std::mem::replace(&mut self.space, parent));
        result
    }

    fn fill(&self, start: Vpn, pages: u64, seed: u64) -> Checked<()> {
        (0..pages).try_for_each(|page| self.store(Vpn(start.0 + page), page as usize % 512, seed + page))
    }

    fn expect(&self, start: Vpn, pages: u64, value: impl Fn(u64) -> u64) -> Checked<()> {
        for page in 0..pages {
            let (got, value) = (self.load(Vpn(start.0 + page), page as usize % 512)?, value(page));
            if got != value {
                return Err(self.failure(&format!("page {page} from {start} holds {got:x}, not {value:x}")));
            }
        }
        Ok(())
    }

    fn map(&self, at: Option<Vpn>, pages: u64, backing: Backing) -> Checked<Vpn> {
        let prot = Prot::READ | Prot::WRITE;
        let request = MapRequest { at, pages, prot, backing, locked: false, populate: false };
        self.call("mmap", |mm, space| mm.mmap(space, &request))
    }

    /// Make a system call that must succeed.
    fn call<T>(
        &self,
        name: &str,
        call: impl FnOnce(&mm::Mm<Threads>, SpaceId) -> Result<T, Error>,
    ) -> Checked<T> {
        call(kernel::mm(), self.space).map_err(|error| self.failure(&format!("{name}: {error:?}")))
    }

    fn load(&self, page: Vpn, word: usize) -> Checked<u64> {
        let loaded = self.reach(page, word, AccessKind::Load, 0);
        loaded.map_err(|signal| self.failure(&format!("a load of {page} ends in {signal:?}")))
    }

    fn store(&self, page: Vpn, word: usize, value: u64) -> Checked<()> {
        let stored = self.reach(page, word, AccessKind::Store, value);
        stored.map(drop).map_err(|signal| self.failure(&format!("a store to {page} ends in {signal:?}")))
    }

    /// Access memory as a program: handle faults until the access succeeds.
    fn reach(&self, page: Vpn, word: usize, access: AccessKind, value: u64) -> Result<u64, FaultError> {
        self.shared.accesses.fetch_add(1, Relaxed);
        self.return_to_program();
        loop {
            if let Some(value) = kernel::machine().access(page, word, access, value) {
                return Ok(value);
            }
            kernel::mm().fault(self.space, page, access)?;
        }
    }

    /// Before returning to the program: ticks, and other tasks. No lock of the memory manager is held here.
    fn return_to_program(&self) {
        let (machine, mm) = (kernel::machine(), kernel::mm());
        let next = &self.shared.ticks[machine.cpu().index()];
        let now = machine.now();
        if now >= next.load(Relaxed) {
            next.store(now + TICK, Relaxed);
            if mm.wants_ticks() {
                mm.tick();
            }
            task::yield_cpu();
        }
    }

    fn failure(&self, what: &str) -> String {
        format!("task {} in {} on {}: {what}", self.number, self.space, task::current_cpu())
    }

    /// A number below `end`, from xorshift64.
    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }
}

//! A kernel in motion: what each CPU is doing, what pages must show, and what is in swap.

use super::kernel::*;
use pagefold_flush::inside::Inside;
use pagefold_flush::spec::Cache;
use pagefold_flush::*;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::take;
use std::sync::atomic::Ordering::Relaxed;

/// What a CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// The program that it runs, if any, reads a page, or stores to it.
    Read(Vpn),
    Write(Vpn),
    /// Reclaim takes a page of a space.
    Reclaim(SpaceId, Vpn),
    /// A call drops a page's content: it shows zeroes of its own.
    Unmap(SpaceId, Vpn),
    /// A call takes the right to write.
    Protect(SpaceId, Vpn),
    /// It switches to a space, or to a kernel task.
    Come(SpaceId),
    Idle,
    Tick,
}

/// One fault, in the kernel or in its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    FrameIsNotPaidFor,
    TagIsLost,
    DebtIsNotAdopted,
    AddressIsNotPaidFor,
    AddressIsPaidForTooLate,
    TableTagIsWiped,
    SavedBeforeTheFlush,
    WritableIsCalledReadOnly,
    OtherPageIsFlushed,
    OtherSpaceIsFlushed,
    FlushedHereAlone,
    LazyCpuRunsThePrograms,
    LoadIsNotTold,
    DeafFully,
    DeafAfterTheFirst,
    DeafAtLoads,
}

impl Wrong {
    pub const ALL: [Wrong; 16] = [
        Wrong::FrameIsNotPaidFor,
        Wrong::TagIsLost,
        Wrong::DebtIsNotAdopted,
        Wrong::AddressIsNotPaidFor,
        Wrong::AddressIsPaidForTooLate,
        Wrong::TableTagIsWiped,
        Wrong::SavedBeforeTheFlush,
        Wrong::WritableIsCalledReadOnly,
        Wrong::OtherPageIsFlushed,
        Wrong::OtherSpaceIsFlushed,
        Wrong::FlushedHereAlone,
        Wrong::LazyCpuRunsThePrograms,
        Wrong::LoadIsNotTold,
        Wrong::DeafFully,
        Wrong::DeafAfterTheFirst,
        Wrong::DeafAtLoads,
    ];

    fn deafness(self) -> Option<Deaf> {
        match self {
            Wrong::DeafFully => Some(Deaf::Fully),
            Wrong::DeafAfterTheFirst => Some(Deaf::AfterTheFirst),
            Wrong::DeafAtLoads => Some(Deaf::AtLoads),
            _ => None,
        }
    }
}

/// A kernel: its policy, whether it allocates frames that owe nothing before others, and what is wrong with it.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub shape: Shape,
    pub clean_first: bool,
    pub wrong: Option<Wrong>,
}

/// What a CPU does without another in between. Those of a fault and of reclaim follow `Lock`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
enum Step {
    Access(Vpn, bool),
    Lock(SpaceId),
    Allocate(SpaceId, Vpn),
    Settle(SpaceId),
    Install(SpaceId, Vpn, bool),
    Clear(SpaceId, Vpn),
    Pay,
    Save(SpaceId, Vpn),
    Unlock(SpaceId),
    Unmap(SpaceId, Vpn),
    Protect(SpaceId, Vpn),
    Come(SpaceId),
    Idle,
    Tick,
}

/// What a CPU is in.
struct Task {
    left: u32,
    steps: VecDeque<Step>,
    /// The space whose program it runs.
    runs: Option<SpaceId>,
    frame: Option<Pfn>,
    batch: Option<UnmapBatch>,
    refs: Option<Refs>,
}

pub struct World {
    kernel: Kernel,
    ledger: Tlb,
    wrong: Option<Wrong>,
    tasks: [Task; CPUS],
    /// The CPU that has the lock of a space's tables.
    locked: [Option<usize>; SPACES],
    /// The content of pages that are not mapped.
    swap: [[u64; PAGES as usize]; SPACES],
    /// What pages must show.
    shows: [[u64; PAGES as usize]; SPACES],
    /// Contents are numbers.
    newest: u64,
}

fn of(table: &mut [[u64; PAGES as usize]; SPACES], space: SpaceId, page: Vpn) -> &mut u64 {
    &mut table[space.0 as usize][page.0 as usize]
}

impl World {
    /// CPU 1 and 2 have read all pages of space A, and stored to the second; CPU 0 has run space B, and is idle.
    pub fn new(kind: Kind, each: u32) -> World {
        let (mut kernel, ledger) = Kernel::new(kind.shape);
        kernel.clean_first = kind.clean_first;
        let wrong = kind.wrong;
        let task = |runs| {
            let (steps, frame, batch, refs) = (VecDeque::new(), None, None, None);
            Task { left: each, steps, runs, frame, batch, refs }
        };
        kernel.map(A, Q, kernel.entry(A, Q).unwrap().frame, true);
        ledger.switch(&kernel, B, kernel.root(B));
        assert_eq!(kernel.read(P), Some(103));
        ledger.enter_lazy(&kernel);
        for cpu in 1..CPUS as u16 {
            kernel.on(cpu);
            assert!(kernel.read(P).is_some() && kernel.read(R).is_some() && kernel.write(Q, 101));
        }
        kernel.deaf = wrong.and_then(Wrong::deafness);
        let shows = [[100, 101, 102], [103, 104, 105]];
        let tasks = [task(None), task(Some(A)), task(Some(A))];
        World { kernel, ledger, wrong, tasks, locked: [None; SPACES], swap: shows, shows, newest: 200 }
    }

    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// Whether a CPU can begin an operation.
    pub fn is_between(&self, cpu: usize) -> bool {
        self.tasks[cpu].steps.is_empty() && self.tasks[cpu].left > 0
    }

    /// Whether it is in one, and does not wait for a lock.
    pub fn can_step(&self, cpu: usize) -> bool {
        match self.tasks[cpu].steps.front() {
            Some(Step::Lock(space)) => self.locked[space.0 as usize].is_none(),
            Some(_) => true,
            None => false,
        }
    }

    /// A CPU begins an operation, and makes its first step if it can.
    pub fn begin(&mut self, cpu: usize, op: Op) {
        let locked = |space, steps: &[Step]| -> VecDeque<Step> {
            [Step::Lock(space)].iter().chain(steps).chain(&[Step::Unlock(space)]).copied().collect()
        };
        let task = &mut self.tasks[cpu];
        task.left -= 1;
        task.steps = match op {
            Op::Read(page) => [Step::Access(page, false)].into(),
            Op::Write(page) => [Step::Access(page, true)].into(),
            Op::Reclaim(space, page) => locked(space, &[Step::Clear(space, page)]),
            Op::Unmap(space, page) => locked(space, &[Step::Unmap(space, page)]),
            Op::Protect(space, page) => locked(space, &[Step::Protect(space, page)]),
            Op::Come(space) => [Step::Come(space)].into(),
            Op::Idle => [Step::Idle].into(),
            Op::Tick => [Step::Tick].into(),
        };
        if self.can_step(cpu) {
            self.step(cpu);
        }
    }

    /// A CPU makes the next step of its operation. Taking and giving a lock are part of the steps beside them.
    pub fn step(&mut self, cpu: usize) {
        self.kernel.on(cpu as u16);
        if let Some(&Step::Lock(space)) = self.tasks[cpu].steps.front() {
            self.locked[space.0 as usize] = Some(cpu);
            self.tasks[cpu].steps.pop_front();
        }
        let step = self.tasks[cpu].steps.pop_front().expect("the CPU must be in an operation");
        self.make(cpu, step);
        if let Some(&Step::Unlock(space)) = self.tasks[cpu].steps.front() {
            self.locked[space.0 as usize] = None;
            self.tasks[cpu].steps.pop_front();
        }
    }

    fn make(&mut self, cpu: usize, step: Step) {
        match step {
            Step::Lock(_) | Step::Unlock(_) => unreachable!("a lock is taken with the next step"),
            Step::Access(page, store) => self.access(cpu, page, store),
            Step::Allocate(space, page) => self.allocate(cpu, space, page),
            Step::Settle(space) => self.settle(space),
            Step::Install(space, page, store) => self.install(cpu, space, page, store),
            Step::Clear(space, page) => self.clear(cpu, space, page),
            Step::Pay => self.tasks[cpu].batch.as_mut().unwrap().settle(&self.kernel, &self.ledger),
            Step::Save(space, page) => self.save(cpu, space, page),
            Step::Unmap(space, page) => self.unmap(space, page),
            Step::Protect(space, page) => self.protect(space, page),
            Step::Come(space) => self.come(cpu, space),
            Step::Idle => self.idle(cpu),
            Step::Tick => self.ledger.tick(&self.kernel),
        }
    }

    fn access(&mut self, cpu: usize, page: Vpn, store: bool) {
        let Some(space) = self.tasks[cpu].runs else { return };
        let done = if store {
            let content = self.newest + 1;
            let stored = self.kernel.write(page, content);
            if stored {
                (self.newest, *of(&mut self.shows, space, page)) = (content, content);
            }
            stored
        } else {
            self.kernel.read(page).is_some()
        };
        if !done {
            let mut pay = [Step::Settle(space), Step::Install(space, page, store)];
            if self.is(Wrong::AddressIsPaidForTooLate) {
                pay.reverse();
            }
            let fault = [Step::Lock(space), Step::Allocate(space, page), pay[0], pay[1], Step::Unlock(space)];
            self.tasks[cpu].steps.extend(fault);
            self.tasks[cpu].steps.push_back(Step::Access(page, store));
        }
    }

    /// The frame for a fault: the page's own, or another with its content.
    fn allocate(&mut self, cpu: usize, space: SpaceId, page: Vpn) {
        let kernel = &self.kernel;
        let frame = kernel.entry(space, page).map(|entry| entry.frame).unwrap_or_else(|| {
            if self.is(Wrong::FrameIsNotPaidFor) {
                kernel.set_tag(kernel.next_free(), 0);
            }
            let frame = kernel.allocate(&self.ledger);
            kernel.fill(frame, self.swap[space.0 as usize][page.0 as usize]);
            frame
        });
        self.tasks[cpu].frame = Some(frame);
    }

    fn settle(&mut self, space: SpaceId) {
        if self.is(Wrong::AddressIsNotPaidFor) {
            return;
        }
        if self.is(Wrong::TableTagIsWiped) {
            self.kernel.set_tag(self.kernel.table(space), 0);
        }
        self.kernel.settle(&self.ledger, space);
    }

    fn install(&mut self, cpu: usize, space: SpaceId, page: Vpn, store: bool) {
        let frame = take(&mut self.tasks[cpu].frame).expect("a frame must be allocated");
        let writable = store || self.kernel.entry(space, page).is_some_and(|entry| entry.writable);
        self.kernel.map(space, page, frame, writable);
    }

    /// Whether a CPU has a page cached, under any number.
    fn may_hold(&self, cache: &Cache, space: SpaceId, page: Vpn) -> bool {
        (0..ASIDS).any(|number| {
            let mut cache = cache.clone();
            cache.load(self.kernel.root(space), Asid(number), true);
            cache.usable().any(|kept| kept.page == page)
        })
    }

    /// What an emptied entry tells the ledger.
    fn emptied(&self, space: SpaceId, page: Vpn) -> Emptied {
        let emptied = self.kernel.clear(space, page);
        let mut what = *emptied.what();
        what.never_used =
            !self.kernel.caches.iter().any(|cache| self.may_hold(&cache.lock().unwrap(), space, page));
        match self.wrong {
            Some(Wrong::WritableIsCalledReadOnly) => (what.writable, what.dirty) = (false, false),
            Some(Wrong::OtherPageIsFlushed) => what.page = Vpn(page.0 + PAGES),
            Some(Wrong::OtherSpaceIsFlushed) => what.space = SpaceId(1 - space.0),
            _ => {}
        }
        let table = emptied.table();
        emptied.put_back();
        Emptied::new(what, (table, 0), 0)
    }

    /// Reclaim takes a page out. A clean one is freed at once, and its batch pays later.
    fn clear(&mut self, cpu: usize, space: SpaceId, page: Vpn) {
        let Some(entry) = self.kernel.entry(space, page) else { return };
        let mut batch = UnmapBatch::new(&self.kernel);
        *of(&mut self.swap, space, page) = self.kernel.content(entry.frame);
        let refs = batch.take(&self.kernel, &self.ledger, self.emptied(space, page));
        self.tasks[cpu].batch = Some(batch);
        let mut rest = vec![Step::Pay, Step::Save(space, page), Step::Unlock(space)];
        if !entry.writable || self.is(Wrong::WritableIsCalledReadOnly) {
            // What is in swap is the page's content whatever CPUs do.
            rest = vec![Step::Unlock(space), Step::Pay];
            self.free(refs);
        } else {
            self.tasks[cpu].refs = Some(refs);
            if self.is(Wrong::SavedBeforeTheFlush) {
                rest.swap(0, 1);
            }
        }
        self.tasks[cpu].steps = rest.into();
    }

    fn save(&mut self, cpu: usize, space: SpaceId, page: Vpn) {
        let refs = take(&mut self.tasks[cpu].refs).expect("the page must have been emptied");
        *of(&mut self.swap, space, page) = self.kernel.content(refs.head());
        self.free(refs);
    }

    fn free(&self, refs: Refs) {
        let (frame, _) = refs.release(&self.kernel);
        match self.wrong {
            Some(Wrong::TagIsLost) => self.kernel.set_tag(frame, 0),
            Some(Wrong::DebtIsNotAdopted) => return self.kernel.free.lock().unwrap().insert(0, frame),
            _ => {}
        }
        self.kernel.free_frame(&self.ledger, frame);
    }

    fn unmap(&mut self, space: SpaceId, page: Vpn) {
        let (kernel, ledger) = (&self.kernel, &self.ledger);
        if kernel.entry(space, page).is_some() && self.is(Wrong::FlushedHereAlone) {
            let emptied = kernel.clear(space, page);
            kernel.flush(Flush::Pages { start: page, count: 1, stride: Order::ZERO });
            kernel.free_frame(ledger, emptied.what().pfn);
            emptied.put_back();
        } else if kernel.entry(space, page).is_some() {
            let change = |gather: &mut Gather| {
                gather.changes(page, Vpn(page.0 + 1));
                let emptied = self.emptied(space, page);
                if emptied.what().space == space {
                    gather.emptied(kernel, emptied);
                } else {
                    emptied.put_back();
                }
            };
            let release = |finished: Finished<'_>| {
                finished.folios.iter().for_each(|&(frame, _)| kernel.free_frame(ledger, frame));
            };
            ledger.gather(kernel, space, change, release);
        } else {
            ledger.settle_space(kernel, space);
        }
        self.newest += 1;
        (*of(&mut self.shows, space, page), *of(&mut self.swap, space, page)) = (self.newest, self.newest);
    }

    fn protect(&mut self, space: SpaceId, page: Vpn) {
        if self.kernel.entry(space, page).is_some_and(|entry| entry.writable) {
            let (kernel, ledger) = (&self.kernel, &self.ledger);
            ledger.tighten(kernel, space, |tightening| {
                tightening.tightened(kernel, kernel.forbid_stores(space, page));
            });
        }
    }

    fn come(&mut self, cpu: usize, space: SpaceId) {
        let root = self.kernel.root(space);
        if self.is(Wrong::LoadIsNotTold) {
            self.kernel.load_root(root, Asid(1), true);
        } else {
            self.ledger.switch(&self.kernel, space, root);
        }
        self.tasks[cpu].runs = Some(space);
    }

    fn idle(&mut self, cpu: usize) {
        self.ledger.enter_lazy(&self.kernel);
        if !self.is(Wrong::LazyCpuRunsThePrograms) {
            self.tasks[cpu].runs = None;
        }
    }

    /// What programs could read now is what pages show.
    pub fn is_right(&self) -> Result<(), String> {
        for (cpu, task) in self.tasks.iter().enumerate() {
            let Some(space) = task.runs else { continue };
            for kept in self.kernel.caches[cpu].lock().unwrap().usable() {
                let shows = self.shows[space.0 as usize][kept.page.0 as usize];
                let reads = self.kernel.content(kept.frame);
                if reads != shows {
                    return Err(format!(
                        "CPU {cpu} reads {reads} from {} of {space}, not {shows}",
                        kept.page
                    ));
                }
            }
        }
        Ok(())
    }

    /// All operations have ended: each page has its last store.
    pub fn is_complete(&self) -> Result<(), String> {
        for (space, page) in (0..SPACES as u32).flat_map(|space| (0..PAGES).map(move |page| (space, page))) {
            let shows = self.shows[space as usize][page as usize];
            let has = match self.kernel.entry(SpaceId(space), Vpn(page)) {
                Some(entry) => self.kernel.content(entry.frame),
                None => self.swap[space as usize][page as usize],
            };
            if has != shows {
                return Err(format!("page {page} of space {space} has {has}, not {shows}"));
            }
        }
        match self.tasks.iter().all(|task| task.steps.is_empty()) {
            true => Ok(()),
            false => Err("CPUs wait for each other".to_string()),
        }
    }

    /// A number for the state.
    pub fn state(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let kernel = &self.kernel;
        for (task, cache) in self.tasks.iter().zip(&kernel.caches) {
            (task.left, &task.steps, task.runs.map(|space| space.0), task.frame).hash(&mut hasher);
            task.batch.as_ref().map(|batch| batch.state(&self.ledger)).hash(&mut hasher);
            task.refs.as_ref().map(Refs::head).hash(&mut hasher);
            cache.lock().unwrap().hash(&mut hasher);
        }
        kernel.trees.lock().unwrap().hash(&mut hasher);
        kernel.free.lock().unwrap().hash(&mut hasher);
        let newest = self.ledger.newest();
        for frame in (0..FRAMES + SPACES as u32).map(Pfn) {
            let owed = Generation::of_tag(kernel.tag(frame), newest);
            let tag = kernel.tag(frame);
            (if tag == 0 || tag >> 31 == 1 { u64::from(tag) } else { newest.0 - owed.0 + 1 })
                .hash(&mut hasher);
        }
        kernel.memory.iter().for_each(|content| content.load(Relaxed).hash(&mut hasher));
        (self.locked, self.swap, self.shows, self.ledger.state()).hash(&mut hasher);
        hasher.finish()
    }

    /// Give up what operations have begun.
    pub fn end(mut self) {
        self.kernel.deaf = None;
        for task in &mut self.tasks {
            take(&mut task.batch).into_iter().for_each(|mut batch| batch.settle(&self.kernel, &self.ledger));
            take(&mut task.refs).into_iter().for_each(|refs| {
                refs.into_parts();
            });
        }
    }
}

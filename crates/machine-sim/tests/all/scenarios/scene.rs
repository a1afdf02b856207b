//! What the scenarios share: a machine whose TLBs keep translations, tasks that keep reading, and memory pressure.
//!
//! All of them need a page that reclaim unmaps while other CPUs hold its translation and do not fault again.
//! MADV_PAGEOUT does not give one: it flushes when it clears the young bit, before it reclaims. Pressure does: the scan
//! clears young bits without a flush, a CPU that keeps reading through its TLB never sets them again, and so the most
//! used page looks unused and is reclaimed.

use crate::acts::{stolen, without_flush};
use machine_sim::{MachineSpec, Outcome, RunConfig, run};
use mm::knobs::{FlushPolicy, Knob};
use program::{FileSpec, Map, MapSource, Os, Program, Prot, Role, Signal, TaskHandle};
use std::cell::Cell;
use std::ops::Range;

pub const PAGE: u64 = 4096;
/// The address of the pages.
pub const AT: u64 = 0x5000_0000;
/// The number of pages.
pub const PAGES: u64 = 48;
/// Their bytes.
pub const LEN: u64 = PAGES * PAGE;
/// How often a scenario does its deed.
pub const ROUNDS: u32 = 8;
/// Instructions between two changes: more than a CPU may run ahead of the others.
pub const WHILE: u64 = 150_000;
/// Bytes that pressure reads at a time, and the file that it reads.
const GUST: u64 = 1 << 20;
const STREAM: u64 = 24 << 20;
/// Bytes that are mlocked, so that little is left to reclaim.
const BALLAST: u64 = 4 << 20;
/// Values of the knob `tlb.unmap`.
pub const POLICIES: Range<u64> = 0..FlushPolicy::COUNT;
/// The flushes of which each is dropped once to check that a scenario is effective.
const TRIED: u64 = 60;

/// Six CPUs whose TLBs hardly evict, and little memory.
const MACHINE: &str = "
description = 'six CPUs that forget no translation, 16 MB'
[cpu]
ghz = 3.0
asids = 6
hw_young = true
hw_nonleaf_young = true
source = 'made up'
[tlb]
l1d_4k = { entries = 512, ways = 8 }
l1d_2m = { entries = 32, ways = 4 }
l1i_4k = { entries = 128, ways = 8 }
l1i_2m = { entries = 8, ways = 8 }
l2 = { entries = 16384, ways = 16 }
pde = { entries = 32, ways = 4 }
pdpte = { entries = 4, ways = 4 }
pml4e = { entries = 2, ways = 2 }
lines = 1024
source = 'made up'
[[node]]
cpus = 6
memory = [{ size = '8M', zone = 'normal' }]
latency_ns = 80
bandwidth_gbs = 12
source = 'made up'
[[device]]
name = 'disk'
size = '100G'
read_us = 5
write_us = 5
read_mbs = 8000
write_mbs = 8000
queue_depth = 64
source = 'made up'
[storage]
files = 'disk'
swap = 'disk'
swap_size = '64M'
";

/// What a task of a scenario does.
pub type Act = fn(&Scene, &mut dyn Os, Role) -> Result<(), Signal>;

/// A scenario. Its tasks synchronise through cells, which are not memory of the machine.
pub struct Scene {
    act: Act,
    done: Cell<bool>,
    ready: Cell<u32>,
    streamed: Cell<u64>,
    asked: Cell<u32>,
    answered: Cell<u32>,
}

impl Program for Scene {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if role == 0 {
            let (source, prot) = (MapSource::AnonymousShared, Prot::RW);
            os.mmap(Map { source, prot, locked: true, ..Map::anonymous(BALLAST) }).unwrap();
            // A neighbour in the same page table, so that the table is not freed, which would flush in any case.
            let neighbour = AT - 16 * PAGE;
            os.mmap(Map { addr: Some(neighbour), ..Map::anonymous(PAGE) }).unwrap();
            os.store(neighbour)?;
        }
        let outcome = (self.act)(self, os, role);
        if role == 0 {
            self.done.set(true);
        }
        outcome
    }
}

impl Scene {
    fn new(act: Act) -> Scene {
        Scene {
            act,
            done: Cell::new(false),
            ready: Cell::new(0),
            streamed: Cell::new(0),
            asked: Cell::new(0),
            answered: Cell::new(0),
        }
    }

    /// Whether the first task has finished.
    pub fn is_done(&self) -> bool {
        self.done.get()
    }

    /// One more task has arrived.
    pub fn arrive(&self) {
        self.ready.set(self.ready.get() + 1);
    }

    /// Compute until `count` tasks have arrived.
    pub fn wait_for(&self, os: &mut dyn Os, tasks: u32) {
        while self.ready.get() < tasks {
            os.compute(1000);
        }
    }

    /// Read pages until the first task has finished. The CPU is never idle: an idle CPU gets no flush requests.
    pub fn read_on(&self, os: &mut dyn Os, at: u64, pages: u64) -> Result<(), Signal> {
        let mut arrived = false;
        while !self.is_done() {
            for page in 0..pages {
                if os.load(at + page * PAGE) == Err(Signal::Kill) {
                    return Err(Signal::Kill);
                }
            }
            if !std::mem::replace(&mut arrived, true) {
                self.arrive();
            }
            os.compute(20_000);
        }
        Ok(())
    }

    /// The first task prepares the pages at [`AT`], lets three threads read them, and does a deed after every burst of
    /// pressure; all other roles read.
    pub fn among_readers(
        &self,
        os: &mut dyn Os,
        role: Role,
        prepare: &mut dyn FnMut(&mut dyn Os),
        deed: &mut dyn FnMut(&mut dyn Os, u32),
    ) -> Result<(), Signal> {
        if role > 0 {
            return self.read_on(os, AT, PAGES);
        }
        prepare(os);
        let readers = threads(os, 3);
        self.wait_for(os, 3);
        self.rounds(os, deed);
        join_all(self, os, readers);
        Ok(())
    }

    /// The same with file "text", mapped as `map` says; `deed` gets its descriptor, too.
    pub fn among_readers_of(
        &self,
        os: &mut dyn Os,
        role: Role,
        map: fn(u32) -> Map,
        deed: &mut dyn FnMut(&mut dyn Os, u32, u32),
    ) -> Result<(), Signal> {
        let fd = Cell::new(0);
        let mut prepare = |os: &mut dyn Os| {
            fd.set(open(os, "text", LEN));
            os.mmap(map(fd.get())).unwrap();
        };
        self.among_readers(os, role, &mut prepare, &mut |os, round| deed(os, fd.get(), round))
    }

    /// The first task forks the roles `others`, maps file "text" for reading, starts threads, and does a deed after
    /// every burst of pressure.
    pub fn beside(
        &self,
        os: &mut dyn Os,
        others: Range<Role>,
        count: u32,
        deed: &mut dyn FnMut(&mut dyn Os, u32, u32),
    ) -> Result<(), Signal> {
        let mut tasks: Vec<_> = others.map(|role| os.fork(role).unwrap()).collect();
        let fd = open(os, "text", LEN);
        os.mmap(read_only(fd)).unwrap();
        tasks.extend(threads(os, count));
        self.wait_for(os, tasks.len() as u32);
        self.rounds(os, &mut |os, round| deed(os, fd, round));
        join_all(self, os, tasks);
        Ok(())
    }

    /// Do a deed whenever the first task asks for it. For another process than the first, which must be forked before:
    /// fork itself flushes its parent.
    pub fn serve(&self, os: &mut dyn Os, deed: &mut dyn FnMut(&mut dyn Os)) {
        self.arrive();
        while !self.is_done() {
            if self.asked.get() > self.answered.get() {
                deed(os);
                self.answered.set(self.asked.get());
            }
            os.compute(1000);
        }
    }

    /// Request the deed, and wait until it is done.
    pub fn ask(&self, os: &mut dyn Os) {
        self.asked.set(self.asked.get() + 1);
        while self.answered.get() < self.asked.get() {
            os.compute(1000);
        }
    }

    /// Read a part of a large file, so that reclaim looks for pages.
    pub fn press(&self, os: &mut dyn Os) {
        let fd = open(os, "stream", STREAM);
        let from = self.streamed.get();
        for _ in 0..2 {
            os.pread(fd, from, GUST).unwrap();
        }
        self.streamed.set((from + GUST) % STREAM);
        os.close(fd).unwrap();
    }

    /// Three bursts: they reclaim even pages that were used once after their fault.
    pub fn press_hard(&self, os: &mut dyn Os) {
        (0..3).for_each(|_| self.press(os));
    }

    /// Repeatedly create pressure and do a deed. After each deed the others have time to see its effect.
    pub fn rounds(&self, os: &mut dyn Os, deed: &mut dyn FnMut(&mut dyn Os, u32)) {
        for round in 0..ROUNDS {
            self.press(os);
            deed(os, round);
            os.compute(WHILE);
        }
    }
}

/// Open a file on disk for writing; it is created with `size` bytes.
pub fn open(os: &mut dyn Os, name: &str, size: u64) -> u32 {
    os.open(FileSpec { name, size, in_memory: false, writable: true }).unwrap()
}

/// A mapping of the first pages of a file at [`AT`].
pub fn view(fd: u32, prot: Prot, shared: bool) -> Map {
    let source = MapSource::File { fd, offset: 0, shared };
    Map { addr: Some(AT), len: LEN, prot, source, populate: false, locked: false }
}

/// A shared mapping for reading.
pub fn read_only(fd: u32) -> Map {
    view(fd, Prot::READ, true)
}

/// Private memory at [`AT`].
pub fn anonymous(prot: Prot) -> Map {
    Map { addr: Some(AT), prot, ..Map::anonymous(LEN) }
}

/// Threads in the roles `1..=count`.
pub fn threads(os: &mut dyn Os, count: u32) -> Vec<TaskHandle> {
    (1..=count).map(|role| os.spawn(role).unwrap()).collect()
}

/// Wait for all of them. The first task has done its deeds.
pub fn join_all(scene: &Scene, os: &mut dyn Os, tasks: Vec<TaskHandle>) {
    scene.done.set(true);
    tasks.into_iter().for_each(|task| os.join(task));
}

/// Store to each of `pages` pages; ignore faults.
pub fn store_pages(os: &mut dyn Os, at: u64, pages: u64) {
    (0..pages).for_each(|page| {
        let _ = os.store(at + page * PAGE);
    });
}

/// Store to every page; ignore faults.
pub fn store_all(os: &mut dyn Os, at: u64) {
    store_pages(os, at, PAGES);
}

/// Load every page; ignore faults.
pub fn load_all(os: &mut dyn Os, at: u64) {
    (0..PAGES).for_each(|page| {
        let _ = os.load(at + page * PAGE);
    });
}

fn config(policy: u64, validate: bool) -> RunConfig {
    // No age limit, and no early settlement: debts are paid only when they must be.
    // Exact list sizes: a scene ends before per-CPU statistics are folded for the first time.
    let knobs = vec![
        (Knob::TlbUnmap, policy),
        (Knob::TlbAgeLimitMs, 0),
        (Knob::TlbPayAll, 0),
        (Knob::MemcgFlushMs, 0),
    ];
    let machine = MachineSpec::from_toml("scene", MACHINE).unwrap();
    RunConfig { knobs, verify: true, validate_every_op: validate, ..RunConfig::new(machine) }
}

/// Run a scenario under every policy; where flushes are deferred, validate all after every operation.
pub fn under_all_policies(act: Act) -> Vec<Outcome> {
    play(act, true)
}

/// The same without validation, for scenarios with too many operations.
pub fn runs_under_all_policies(act: Act) -> Vec<Outcome> {
    play(act, false)
}

fn play(act: Act, validate: bool) -> Vec<Outcome> {
    POLICIES
        .map(|policy| {
            let validate = validate && LAZY.contains(&(policy as usize));
            let outcome = run(&config(policy, validate), &Scene::new(act))
                .unwrap_or_else(|error| panic!("tlb.unmap={policy}: {error}"));
            assert_eq!(outcome.oracle.violations, 0, "tlb.unmap={policy}");
            outcome
        })
        .collect()
}

/// The same; reclaim must have taken pages, and the OOM killer must not have run.
pub fn reclaims_under_all_policies(act: Act) {
    must_reclaim(under_all_policies(act));
}

/// Check that reclaim has taken pages and that the OOM killer has not run.
pub fn must_reclaim(outcomes: Vec<Outcome>) {
    for outcome in outcomes {
        let stolen = stolen(&outcome);
        assert!(stolen > 1000, "reclaim must take pages: {stolen}");
        assert_eq!(outcome.signals, Vec::<String>::new());
    }
}

/// The policies that defer flushes.
const LAZY: [usize; 2] = [FlushPolicy::Lazy as usize, FlushPolicy::Latr as usize];

/// As [`reclaims_under_all_policies`]; where flushes are deferred, programs must really have used translations that the
/// page table no longer had, just before the deed.
pub fn defers_under_lazy_policies(act: Act) {
    let outcomes = under_all_policies(act);
    for policy in LAZY {
        let stale = outcomes[policy].oracle.stale;
        assert!(stale > 100, "only {stale} translations that tlb.unmap={policy} had left were used");
    }
    must_reclaim(outcomes);
}

/// Check that the scenario depends on a flush: under some policy, the oracle must report a wrong access without it.
pub fn assert_live(act: Act) {
    let caught = |policy, nth| {
        let reason = without_flush(nth, config(policy, false), &Scene::new(act)).err();
        reason.inspect(|reason| assert!(reason.contains("oracle: cpu"), "{reason}")).is_some()
    };
    let live = [0, 1, 3].into_iter().any(|policy| (1..TRIED).any(|nth| caught(policy, nth)));
    assert!(live, "some flush of this scenario must matter");
}

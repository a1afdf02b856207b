//! Searches for races in the memory manager, with CPUs that are stopped in the middle of its work (`RunConfig::preempt`),
//! and programs that do little besides the racing operations. Each found its bug within seconds; its comment describes the
//! bug.
//!
//! `RACE_SEED=N..M` runs other seeds, `RACE_POINTS=N` stops at one point in N.

use super::acts::PAGE;
use crate::chaos::seeds_of;
use machine_sim::{MachineSpec, RunConfig, run};
use mm::knobs::{FlushPolicy, Knob};
use program::rng::Rng;
use program::{Advice, FileAdvice, FileSpec, Map, Os, Program, Prot, Role, Signal};
use std::ops::Range;

/// What several tasks do to one file at the same time.
#[derive(Clone, Copy)]
struct Race {
    /// Pages of the file.
    pages: u64,
    in_memory: bool,
    rounds: u64,
    tasks: Role,
    /// Whether tasks share one space; else each is a process.
    threads: bool,
    act: fn(&mut dyn Os, &Racer) -> Result<(), Signal>,
}

/// One of them.
struct Racer {
    race: Race,
    role: Role,
    fd: u32,
}

impl Program for Race {
    unnamed!();

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let spec = FileSpec { name: "f", size: self.pages * PAGE, in_memory: self.in_memory, writable: true };
        let fd = os.open(spec).unwrap();
        if role > 0 {
            return (self.act)(os, &Racer { race: *self, role, fd });
        }
        let start = |role| if self.threads { os.spawn(role) } else { os.fork(role) };
        let tasks: Vec<_> = (1..=self.tasks).map(start).collect();
        tasks.into_iter().for_each(|task| os.join(task.unwrap()));
        Ok(())
    }
}

/// Run it with each of the seeds, and the configuration as `vary` changes it.
fn race(race: Race, usual: Range<u64>, memory: u64, vary: fn(&mut RunConfig, &mut Rng)) {
    let points: u32 =
        std::env::var("RACE_POINTS").map_or(8, |text| text.parse().expect("RACE_POINTS is a number"));
    for seed in seeds_of("RACE_SEED", usual) {
        let mut config = RunConfig::new(MachineSpec::preset("laptop").unwrap());
        (config.seed, config.verify, config.preempt) = (seed, true, Some(points));
        config.memory = Some(memory);
        config.knobs.push((Knob::TlbUnmap, seed % FlushPolicy::COUNT));
        vary(&mut config, &mut Rng::new(seed));
        let outcome = run(&config, &race)
            .unwrap_or_else(|error| panic!("{error}: RACE_SEED={seed}, RACE_POINTS={points}"));
        assert_eq!(outcome.signals.len(), 0, "{:?}", outcome.signals);
    }
}

/// Folios of all sizes, and 2 MiB entries.
fn large_folios(config: &mut RunConfig, rng: &mut Rng) {
    let order = [0, 2, 9][rng.below(3) as usize];
    config.knobs.extend([
        (Knob::FileMaxOrder, order),
        (Knob::ShmemMaxOrder, order),
        (Knob::ThpFilePmd, rng.below(2)),
    ]);
    config.knobs.push((Knob::ReadAheadKb, [16, 128, 2048][rng.below(3) as usize]));
}

/// The first task truncates and extends the file; others load from it or store to it, and drop it.
fn cut_beside_faults(os: &mut dyn Os, racer: &Racer) -> Result<(), Signal> {
    let Racer { race: Race { pages, rounds, .. }, role, fd } = *racer;
    let mut rng = Rng::new(os.seed());
    let prot = if role == 2 { Prot::RW } else { Prot::READ };
    let at = os.mmap(Map::file_shared(fd, pages * PAGE, prot)).unwrap();
    for _ in 0..rounds {
        if role == 1 {
            os.ftruncate(fd, rng.below(pages * PAGE)).unwrap();
            os.ftruncate(fd, pages * PAGE).unwrap();
            continue;
        }
        for _ in 0..4 {
            let addr = at + rng.below(pages) * PAGE;
            // Beyond the end of the file: the signal is right.
            let _ = if role == 2 { os.store(addr) } else { os.load(addr) };
        }
        os.madvise(at, pages * PAGE, Advice::DontNeed).unwrap();
    }
    Ok(())
}

/// A fault checked the owner of a cached page without its lock, and mapped it after a truncation had removed it from the
/// file: "is mapped as if it were not new", "is of another file", or an entry that rmap did not find.
#[test]
fn faults_race_with_truncation() {
    for (pages, in_memory) in [(64, false), (64, true), (600, false), (600, true)] {
        let threads = in_memory;
        let program = Race { pages, in_memory, rounds: 60, tasks: 4, threads, act: cut_beside_faults };
        race(program, 0..12, 64 << 20, large_folios);
    }
}

/// Where threads map the file that they share.
const AT: u64 = 0x5000_0000;

/// One thread pages shmem out; the others load from it and store to it, and drop its entries.
fn store_beside_swapping(os: &mut dyn Os, racer: &Racer) -> Result<(), Signal> {
    let Racer { race: Race { pages, rounds, .. }, role, fd } = *racer;
    let mut rng = Rng::new(os.seed());
    if role == 1 {
        os.mmap(Map { addr: Some(AT), ..Map::file_shared(fd, pages * PAGE, Prot::RW) }).unwrap();
    }
    os.barrier(1, racer.race.tasks);
    for _ in 0..rounds {
        if role == 1 {
            os.madvise(AT, pages * PAGE, Advice::PageOut).unwrap();
            continue;
        }
        for _ in 0..pages {
            let addr = AT + rng.below(pages) * PAGE;
            os.load(addr)?;
            if rng.percent(50) {
                os.store(addr)?;
            }
        }
        os.madvise(AT, pages * PAGE, Advice::DontNeed).unwrap();
    }
    Ok(())
}

/// Reclaim considered a page of shmem unused, and moved it to swap while a fault mapped it writable: stores were lost with
/// the entry.
#[test]
fn stores_race_with_swapout_of_shmem() {
    let program =
        Race { pages: 8, in_memory: true, rounds: 60, tasks: 4, threads: true, act: store_beside_swapping };
    race(program, 0..20, 64 << 20, large_folios);
}

/// One thread stores to pages that another writes back and a third removes from the page table. Then clean pages are
/// dropped, and all are checked.
fn write_back_beside_unmapping(os: &mut dyn Os, racer: &Racer) -> Result<(), Signal> {
    let Racer { race: Race { pages, rounds, tasks, .. }, role, fd } = *racer;
    let mut rng = Rng::new(os.seed());
    let len = pages * PAGE;
    if role == 1 {
        os.mmap(Map { addr: Some(AT), ..Map::file_shared(fd, len, Prot::RW) }).unwrap();
    }
    os.barrier(0, tasks);
    for round in 0..rounds as u32 {
        if role == 3 {
            (0..pages).try_for_each(|page| os.store(AT + page * PAGE))?;
        }
        os.barrier(2 * round + 1, tasks);
        match role {
            1 => os.fsync(fd).unwrap(),
            2 => os.madvise(AT, len, Advice::DontNeed).unwrap(),
            _ => {
                for _ in 0..rng.below(4 * pages) {
                    os.compute(rng.below(10_000));
                    os.store(AT + rng.below(pages) * PAGE)?;
                }
            }
        }
        os.barrier(2 * round + 2, tasks);
        if role == 3 {
            os.fadvise(fd, 0, len, FileAdvice::DontNeed).unwrap();
            (0..pages).try_for_each(|page| os.load(AT + page * PAGE))?;
        }
    }
    Ok(())
}

/// A page was written back after a call had cleared its entry and before the flush: nothing mapped the page, so write-back
/// did not flush, and what a CPU stored after that was lost with the page, which was clean.
#[test]
fn stores_race_with_writeback_and_unmap() {
    let program = Race {
        pages: 8,
        in_memory: false,
        rounds: 60,
        tasks: 4,
        threads: true,
        act: write_back_beside_unmapping,
    };
    race(program, 0..20, 64 << 20, large_folios);
}

/// Threads use a file that is larger than memory, and change the protection of parts of it.
fn ranges_beside_aging(os: &mut dyn Os, racer: &Racer) -> Result<(), Signal> {
    let Racer { race: Race { pages, rounds, tasks, .. }, role, fd } = *racer;
    let mut rng = Rng::new(os.seed());
    if role == 1 {
        os.mmap(Map { addr: Some(AT), ..Map::file_shared(fd, pages * PAGE, Prot::RW) }).unwrap();
    }
    os.barrier(0, tasks);
    for _ in 0..rounds {
        for _ in 0..200 {
            // Only the upper half ever becomes read-only.
            os.load(AT + rng.below(pages) * PAGE)?;
            os.store(AT + rng.below(pages / 2) * PAGE)?;
        }
        let first = pages / 2 + rng.below(pages / 2 - 8);
        let prot = if rng.percent(50) { Prot::READ } else { Prot::RW };
        os.mprotect(AT + first * PAGE, 8 * PAGE, prot).unwrap();
    }
    Ok(())
}

/// MGLRU's walk asked for the next range with the tables locked. A split of a range links it to its file with the ranges
/// locked, and write-back locks tables with the list of that file locked: the three could deadlock.
#[test]
fn mprotect_races_with_aging() {
    let program =
        Race { pages: 3000, in_memory: false, rounds: 4, tasks: 4, threads: true, act: ranges_beside_aging };
    race(program, 0..3, 9 << 20, |config, rng| {
        config.knobs.push((Knob::ReclaimPolicy, 1));
        large_folios(config, rng);
    });
}

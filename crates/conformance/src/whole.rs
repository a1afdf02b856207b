//! The whole memory manager on the machine: programs on all CPUs; every word that they read is checked.

use crate::harness::Harness;
use crate::kit::{Kit, ensure, validate};
use crate::program::{AccessError, Program, create, succeeded};
use crate::report::{NotPassed, Verdict};
use mm::api::{Backing, FaultError, FileKind, GroupLimits, Prot};
use mm::machine::Machine;
use mm::primitive::{AtomicU32, AtomicU64, Ordering::*};
use mm::stat::Stat;
use mm::units::*;

const ROOT: GroupId = GroupId(0);
const SEGV: AccessError = AccessError::Signal(FaultError::Segv);
/// Pages that one CPU uses.
const PAGES_PER_CPU: u64 = 32;
/// Checks that fill all memory are skipped on machines with more than this.
const MAX_MEMORY: u64 = (256 << 20) / PAGE_SIZE;

pub(crate) fn pages<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    // Twice, so that the second run gets frames that have been used.
    (0..2).try_for_each(|_| pages_on_each(kit))?;
    validate(kit)
}

fn pages_on_each<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each_in_turn(|_| {
        let space = create(kit, ROOT)?;
        {
            let program = Program::enter(kit, space);
            let start = program.map(None, PAGES_PER_CPU, Backing::Anonymous)?;
            let all = || (start.0..start.0 + PAGES_PER_CPU).map(Vpn);
            all().try_for_each(|page| program.holds_zeroes(page))?;
            all().try_for_each(|page| program.fill(page, 1, page.0 as usize & 0xfff))?;
            all().try_for_each(|page| program.holds(page, 1, page.0 as usize & 0xfff))?;
            if kit.harness.words() > 4 {
                let rest = all().try_fold(0, |rest, page| program.load(page, 1).map(|word| rest | word));
                ensure!(rest == Ok(0), "the other words of a new page hold {rest:x?}");
            }
            program.unmap(start, PAGES_PER_CPU)?;
            for page in all() {
                let got = program.load(page, 0);
                ensure!(got == Err(SEGV), "a load of {page} after munmap ends in {got:x?}");
            }
        }
        kit.harness.mm().exit_space(space);
        Ok(())
    })
}

/// All CPUs in one space: each sees the stores of the others, and what one CPU unmaps is gone for all.
pub(crate) fn one_space<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let (cpus, mm) = (kit.cpus(), kit.harness.mm());
    let count = PAGES_PER_CPU * cpus.len() as u64;
    let space = create(kit, ROOT)?;
    let start = AtomicU64::new(0);
    let barriers: [AtomicU32; 4] = Default::default();
    let verdict = kit.on_each(&cpus, |cpu| {
        let program = Program::enter(kit, space);
        let first = cpu == cpus[0];
        if first {
            start.store(program.map(None, count, Backing::Anonymous)?.0, Release);
        }
        kit.barrier(&barriers[0], cpus.len())?;
        let page = |index: u64| Vpn(start.load(Acquire) + index);
        for index in (0..count).filter(|index| index % cpus.len() as u64 == cpu.0.into()) {
            program.fill(page(index), 1, index as usize)?;
        }
        kit.barrier(&barriers[1], cpus.len())?;
        (0..count).try_for_each(|index| program.holds(page(index), 1, index as usize))?;
        kit.barrier(&barriers[2], cpus.len())?;
        if first {
            succeeded("mprotect", mm.mprotect(space, page(0), count / 2, Prot::READ))?;
            program.unmap(page(count / 2), count - count / 2)?;
        }
        kit.barrier(&barriers[3], cpus.len())?;
        for index in 0..count {
            let stored = program.store(page(index), 0, 1);
            ensure!(
                stored == Err(SEGV),
                "on {cpu}, a store to a protected or unmapped page ends in {stored:?}"
            );
            if index < count / 2 {
                program.holds(page(index), 1, index as usize)?;
            } else {
                let got = program.load(page(index), 0);
                ensure!(got == Err(SEGV), "on {cpu}, a load of an unmapped page ends in {got:x?}");
            }
        }
        Ok(())
    });
    mm.exit_space(space);
    verdict.and_then(|()| validate(kit))
}

/// What the pages hold in each phase: after a store, and after MADV_DONTNEED or a new mapping.
fn content_in(phase: u64) -> u64 {
    if phase.is_multiple_of(2) { phase / 2 } else { 0 }
}

/// One CPU stores to pages and unmaps them, again and again, while the others read them.
pub(crate) fn concurrent_unmap<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    const DONE: u64 = u64::MAX;
    let cpus = kit.cpus();
    let space = create(kit, ROOT)?;
    let (phase, start) = (AtomicU64::new(0), AtomicU64::new(0));
    let arrived = AtomicU32::new(0);
    let driver = |program: &Program<'_, H>| -> Verdict {
        let first = Vpn(start.load(Acquire));
        for now in 1..=u64::from(kit.times(60)) {
            match now % 4 {
                0 | 2 => {
                    for page in first.0..first.0 + 8 {
                        let stored = program.store(Vpn(page), 0, content_in(now));
                        ensure!(stored.is_ok(), "a store ends in {stored:?}");
                    }
                }
                1 => program.forget(first, 8)?,
                _ => _ = program.map(Some(first), 8, Backing::Anonymous)?,
            }
            phase.store(now, Release);
            (0..4).for_each(|_| kit.harness.spin());
        }
        Ok(())
    };
    let reader = |cpu: CpuId, program: &Program<'_, H>| -> Verdict {
        for turn in 0.. {
            let before = phase.load(Acquire);
            if before == DONE {
                break;
            }
            let page = Vpn(start.load(Acquire) + turn % 8);
            let got = program.load(page, 0);
            let after = phase.load(Acquire);
            if after != DONE {
                // The content at some moment between the two loads of `phase`, or of the next phase, which
                // may have begun.
                let right = (before..=after + 1).any(|phase| got == Ok(content_in(phase)));
                ensure!(right, "{cpu} reads {got:x?} between phases {before} and {after}");
            }
            kit.harness.spin();
        }
        Ok(())
    };
    let verdict = kit.on_each(&cpus, |cpu| {
        let program = Program::enter(kit, space);
        if cpu == cpus[0] {
            start.store(program.map(None, 8, Backing::Anonymous)?.0, Release);
        }
        kit.barrier(&arrived, cpus.len())?;
        if cpu != cpus[0] {
            return reader(cpu, &program);
        }
        let verdict = driver(&program);
        phase.store(DONE, Release);
        verdict
    });
    kit.harness.mm().exit_space(space);
    verdict.and_then(|()| validate(kit))
}

/// Children on all CPUs at once, with children of their own: each has its parent's content, and none sees
/// another's stores.
pub(crate) fn fork<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let (cpus, mm) = (kit.cpus(), kit.harness.mm());
    let parent = create(kit, ROOT)?;
    let start = AtomicU64::new(0);
    let page = |index: u64| Vpn(start.load(Acquire) + index);
    let verdict = kit
        .on(cpus[0], || {
            let program = Program::enter(kit, parent);
            start.store(program.map(None, PAGES_PER_CPU, Backing::Anonymous)?.0, Release);
            (0..PAGES_PER_CPU).try_for_each(|index| program.fill(page(index), 1, index as usize))
        })
        .and_then(|()| {
            kit.on_each(&cpus, |cpu| {
                for round in 0..u64::from(kit.times(2)) {
                    let child = succeeded("fork", mm.fork(parent))?;
                    let seed = 2 + u64::from(cpu.0) * 64 + round;
                    let verdict = run_child(kit, child, seed, &page);
                    mm.exit_space(child);
                    verdict?;
                }
                // The parent stores nothing and keeps its content.
                let program = Program::enter(kit, parent);
                (0..PAGES_PER_CPU).try_for_each(|index| program.holds(page(index), 1, index as usize))
            })
        });
    mm.exit_space(parent);
    verdict.and_then(|()| validate(kit))
}

fn run_child<H: Harness>(kit: &Kit<'_, H>, child: SpaceId, seed: u64, page: &dyn Fn(u64) -> Vpn) -> Verdict {
    let program = Program::enter(kit, child);
    let holds = |program: &Program<'_, H>, seed_of: &dyn Fn(u64) -> u64| {
        (0..PAGES_PER_CPU).try_for_each(|index| program.holds(page(index), seed_of(index), index as usize))
    };
    holds(&program, &|_| 1)?;
    for index in (0..PAGES_PER_CPU).step_by(2) {
        program.fill(page(index), seed, index as usize)?;
    }
    let grandchild = succeeded("fork", kit.harness.mm().fork(child))?;
    let own = |index: u64| if index.is_multiple_of(2) { seed } else { 1 };
    // The child stores to pages that it shares with the grandchild.
    for index in (0..PAGES_PER_CPU).step_by(4) {
        program.fill(page(index), seed + (1 << 16), index as usize)?;
    }
    drop(program);
    let verdict = {
        let program = Program::enter(kit, grandchild);
        holds(&program, &own)
    };
    kit.harness.mm().exit_space(grandchild);
    verdict?;
    let program = Program::enter(kit, child);
    holds(&program, &|index| if index.is_multiple_of(4) { seed + (1 << 16) } else { own(index) })
}

/// More spaces than a CPU has numbers for, created and ended on all CPUs.
pub(crate) fn spaces<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let mm = kit.harness.mm();
    kit.on_each(&kit.cpus(), |cpu| {
        for round in 0..kit.times(6) as usize {
            let several = [create(kit, ROOT)?, create(kit, ROOT)?, create(kit, ROOT)?];
            // The same address in all, so that mixed-up translations show.
            let at = Vpn(0x40_0000 >> 2);
            let mut verdict = Ok(());
            for turn in 0..2 {
                for (number, &space) in several.iter().enumerate() {
                    let program = Program::enter(kit, space);
                    let name = cpu.index() * 64 + round * 4 + number;
                    verdict = verdict.and_then(|()| {
                        if turn == 0 {
                            program.map(Some(at), 4, Backing::Anonymous)?;
                            program.holds_zeroes(at)?;
                            return program.fill(at, 1, name);
                        }
                        program.holds(at, 1, name)?;
                        program.holds_zeroes(Vpn(at.0 + 1))
                    });
                }
            }
            several.into_iter().for_each(|space| mm.exit_space(space));
            verdict?;
        }
        Ok(())
    })?;
    validate(kit)
}

/// A control group, so small that the check must reclaim in it, and the pages that each CPU uses.
fn small_group<H: Harness>(kit: &Kit<'_, H>) -> Result<(GroupId, u64), NotPassed> {
    let cpus = kit.machine().cpus() as u64;
    let limits = GroupLimits { max: 128 + 32 * cpus, ..GroupLimits::default() };
    let group = succeeded("create_group", kit.harness.mm().create_group(ROOT, limits))?;
    Ok((group, 4 * limits.max / cpus))
}

/// Each CPU fills `each` pages of a mapping of its own twice. When all have finished, it reads them all.
fn fill_and_read<H: Harness>(
    kit: &Kit<'_, H>,
    group: GroupId,
    each: u64,
    backing: &(dyn Fn(CpuId) -> Backing + Sync),
) -> Verdict {
    let filled = AtomicU32::new(0);
    kit.on_each(&kit.cpus(), |cpu| {
        let space = create(kit, group)?;
        let verdict = fill_and_read_in(kit, space, each, backing(cpu), cpu.index(), &filled);
        kit.harness.mm().exit_space(space);
        verdict
    })
}

fn fill_and_read_in<H: Harness>(
    kit: &Kit<'_, H>,
    space: SpaceId,
    each: u64,
    backing: Backing,
    name: usize,
    filled: &AtomicU32,
) -> Verdict {
    let program = Program::enter(kit, space);
    let start = program.map(None, each, backing)?;
    let name = |index: u64| (name * 8191 + index as usize) & 0xfff_ffff;
    for seed in [1, 2] {
        (0..each).try_for_each(|index| program.fill(Vpn(start.0 + index), seed, name(index)))?;
    }
    kit.barrier(filled, kit.machine().cpus())?;
    (0..each).try_for_each(|index| program.holds(Vpn(start.0 + index), 2, name(index)))
}

/// Each CPU maps a part of one file shared, with reclaim in a group.
pub(crate) fn file<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let (group, each) = small_group(kit)?;
    in_file(kit, group, each)
}

fn in_file<H: Harness>(kit: &Kit<'_, H>, group: GroupId, each: u64) -> Verdict {
    let (mm, pages) = (kit.harness.mm(), each * kit.machine().cpus() as u64);
    let scratch = kit.harness.scratch().ok_or(NotPassed::Skipped("the kernel has no scratch device"))?;
    if scratch.blocks < pages {
        return Err(NotPassed::Skipped("the scratch device is too small for the file"));
    }
    let kind = FileKind::Disk { device: scratch.device, block: scratch.block };
    let file = mm.create_file(kind, pages * PAGE_SIZE);
    let backing = |cpu: CpuId| Backing::File {
        file,
        offset: PageIndex(u64::from(cpu.0) * each),
        shared: true,
        writable: true,
    };
    let verdict = fill_and_read(kit, group, each, &backing);
    let ended = succeeded("fsync", mm.fsync(file)).and(succeeded("ftruncate", mm.ftruncate(file, 0)));
    verdict.and(ended).and_then(|()| validate(kit))
}

/// Each CPU uses anonymous memory, with reclaim in a group.
pub(crate) fn swap<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let (group, each) = small_group(kit)?;
    in_swap(kit, group, each)
}

fn in_swap<H: Harness>(kit: &Kit<'_, H>, group: GroupId, each: u64) -> Verdict {
    let free = kit.harness.mm().core().swap.free_slots();
    if free < each * kit.machine().cpus() as u64 {
        return Err(NotPassed::Skipped("there is not enough swap space"));
    }
    let stats = &kit.harness.mm().mmu().stats;
    let before = stats.read(Stat::PswpOut);
    fill_and_read(kit, group, each, &|_| Backing::Anonymous)?;
    ensure!(stats.read(Stat::PswpOut) > before, "nothing was swapped out: all of it fitted in memory");
    validate(kit)
}

/// Each CPU's share of more pages than memory has.
fn more_than_memory<H: Harness>(kit: &Kit<'_, H>) -> Result<u64, NotPassed> {
    let memory: u64 = kit.machine().memory().iter().map(|range| u64::from(range.frames)).sum();
    if memory > MAX_MEMORY {
        return Err(NotPassed::Skipped("the machine has more than 256 MiB"));
    }
    Ok(memory * 5 / 4 / kit.machine().cpus() as u64)
}

pub(crate) fn short_of_memory_file<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    in_file(kit, ROOT, more_than_memory(kit)?)
}

pub(crate) fn short_of_memory_swap<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    in_swap(kit, ROOT, more_than_memory(kit)?)
}

/// After all spaces have ended, nothing of them is left.
pub(crate) fn all_released<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let stats = &kit.harness.mm().mmu().stats;
    for stat in [Stat::NrAnonPages, Stat::NrMapped, Stat::NrPageTablePages, Stat::NrDirty, Stat::NrWriteback]
    {
        ensure!(
            kit.until(|| stats.read(stat) == 0),
            "{stat:?} is {} after all spaces have ended",
            stats.read(stat)
        );
    }
    validate(kit)
}

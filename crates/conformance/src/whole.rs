//! The whole memory manager on the machine: programs on all CPUs, and every word that they read.

use crate::harness::Harness;
use crate::kit::{Kit, ensure, validate};
use crate::program::{Program, Trouble, create, served};
use crate::report::{Stop, Verdict};
use mm::api::{Backing, FaultError, FileKind, GroupLimits, Prot};
use mm::machine::Machine;
use mm::primitive::{AtomicU32, AtomicU64, Ordering::*};
use mm::stat::Stat;
use mm::units::*;

const ROOT: GroupId = GroupId(0);
const SEGV: Trouble = Trouble::Signal(FaultError::Segv);
/// Pages that one CPU uses.
const EACH: u64 = 32;
/// Memory beyond this is not filled by a check.
const MOST_MEMORY: u64 = (256 << 20) / PAGE_SIZE;

pub(crate) fn pages<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    // Twice, so that frames come back which have held something.
    (0..2).try_for_each(|_| pages_on_each(kit))?;
    validate(kit)
}

fn pages_on_each<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each_in_turn(|_| {
        let space = create(kit, ROOT)?;
        {
            let program = Program::enter(kit, space);
            let start = program.map(None, EACH, Backing::Anonymous)?;
            let all = || (start.0..start.0 + EACH).map(Vpn);
            all().try_for_each(|page| program.holds_zeroes(page))?;
            all().try_for_each(|page| program.fill(page, 1, page.0 as usize & 0xfff))?;
            all().try_for_each(|page| program.holds(page, 1, page.0 as usize & 0xfff))?;
            if kit.harness.words() > 4 {
                let rest = all().try_fold(0, |rest, page| program.load(page, 1).map(|word| rest | word));
                ensure!(rest == Ok(0), "beside what was stored to a new page stands {rest:x?}");
            }
            program.unmap(start, EACH)?;
            for page in all() {
                let got = program.load(page, 0);
                ensure!(got == Err(SEGV), "a load of {page} after munmap ends in {got:x?}");
            }
        }
        kit.harness.mm().exit_space(space);
        Ok(())
    })
}

/// All CPUs in one space: each sees what the others store, and what one takes away is gone for all.
pub(crate) fn one_space<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let (cpus, mm) = (kit.cpus(), kit.harness.mm());
    let count = EACH * cpus.len() as u64;
    let space = create(kit, ROOT)?;
    let start = AtomicU64::new(0);
    let meetings: [AtomicU32; 4] = Default::default();
    let verdict = kit.on_each(&cpus, |cpu| {
        let program = Program::enter(kit, space);
        let first = cpu == cpus[0];
        if first {
            start.store(program.map(None, count, Backing::Anonymous)?.0, Release);
        }
        kit.meet(&meetings[0], cpus.len())?;
        let page = |index: u64| Vpn(start.load(Acquire) + index);
        for index in (0..count).filter(|index| index % cpus.len() as u64 == cpu.0.into()) {
            program.fill(page(index), 1, index as usize)?;
        }
        kit.meet(&meetings[1], cpus.len())?;
        (0..count).try_for_each(|index| program.holds(page(index), 1, index as usize))?;
        kit.meet(&meetings[2], cpus.len())?;
        if first {
            served("mprotect", mm.mprotect(space, page(0), count / 2, Prot::READ))?;
            program.unmap(page(count / 2), count - count / 2)?;
        }
        kit.meet(&meetings[3], cpus.len())?;
        for index in 0..count {
            let stored = program.store(page(index), 0, 1);
            ensure!(stored == Err(SEGV), "on {cpu}, a store that was forbidden ends in {stored:?}");
            if index < count / 2 {
                program.holds(page(index), 1, index as usize)?;
            } else {
                let got = program.load(page(index), 0);
                ensure!(got == Err(SEGV), "on {cpu}, a load of a page that was unmapped ends in {got:x?}");
            }
        }
        Ok(())
    });
    mm.exit_space(space);
    verdict.and_then(|()| validate(kit))
}

/// What the pages hold in each phase: they are stored to, then forgotten or mapped anew.
fn in_phase(phase: u64) -> u64 {
    if phase.is_multiple_of(2) { phase / 2 } else { 0 }
}

/// One CPU stores to pages and takes them away, again and again; the others read them all the while.
pub(crate) fn under_fire<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    const OVER: u64 = u64::MAX;
    let cpus = kit.cpus();
    let space = create(kit, ROOT)?;
    let (phase, start) = (AtomicU64::new(0), AtomicU64::new(0));
    let meeting = AtomicU32::new(0);
    let driver = |program: &Program<'_, H>| -> Verdict {
        let first = Vpn(start.load(Acquire));
        for now in 1..=u64::from(kit.times(60)) {
            match now % 4 {
                0 | 2 => {
                    for page in first.0..first.0 + 8 {
                        let stored = program.store(Vpn(page), 0, in_phase(now));
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
            if before == OVER {
                break;
            }
            let page = Vpn(start.load(Acquire) + turn % 8);
            let got = program.load(page, 0);
            let after = phase.load(Acquire);
            if after != OVER {
                // What it held at some moment since, or is about to.
                let right = (before..=after + 1).any(|phase| got == Ok(in_phase(phase)));
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
        kit.meet(&meeting, cpus.len())?;
        if cpu != cpus[0] {
            return reader(cpu, &program);
        }
        let verdict = driver(&program);
        phase.store(OVER, Release);
        verdict
    });
    kit.harness.mm().exit_space(space);
    verdict.and_then(|()| validate(kit))
}

/// Children on all CPUs at once, with children of their own: each has what its parent had, and nobody sees another's
/// stores.
pub(crate) fn fork<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let (cpus, mm) = (kit.cpus(), kit.harness.mm());
    let parent = create(kit, ROOT)?;
    let start = AtomicU64::new(0);
    let page = |index: u64| Vpn(start.load(Acquire) + index);
    let verdict = kit
        .on(cpus[0], || {
            let program = Program::enter(kit, parent);
            start.store(program.map(None, EACH, Backing::Anonymous)?.0, Release);
            (0..EACH).try_for_each(|index| program.fill(page(index), 1, index as usize))
        })
        .and_then(|()| {
            kit.on_each(&cpus, |cpu| {
                for round in 0..u64::from(kit.times(2)) {
                    let child = served("fork", mm.fork(parent))?;
                    let seed = 2 + u64::from(cpu.0) * 64 + round;
                    let verdict = child_lives(kit, child, seed, &page);
                    mm.exit_space(child);
                    verdict?;
                }
                // The parent stores nothing, and has what it had.
                let program = Program::enter(kit, parent);
                (0..EACH).try_for_each(|index| program.holds(page(index), 1, index as usize))
            })
        });
    mm.exit_space(parent);
    verdict.and_then(|()| validate(kit))
}

fn child_lives<H: Harness>(
    kit: &Kit<'_, H>,
    child: SpaceId,
    seed: u64,
    page: &dyn Fn(u64) -> Vpn,
) -> Verdict {
    let program = Program::enter(kit, child);
    let holds = |program: &Program<'_, H>, seed_of: &dyn Fn(u64) -> u64| {
        (0..EACH).try_for_each(|index| program.holds(page(index), seed_of(index), index as usize))
    };
    holds(&program, &|_| 1)?;
    for index in (0..EACH).step_by(2) {
        program.fill(page(index), seed, index as usize)?;
    }
    let grandchild = served("fork", kit.harness.mm().fork(child))?;
    let own = |index: u64| if index.is_multiple_of(2) { seed } else { 1 };
    // Parent and child store to the same pages.
    for index in (0..EACH).step_by(4) {
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

/// More spaces than a CPU has numbers for, coming and going on all CPUs.
pub(crate) fn spaces<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let mm = kit.harness.mm();
    kit.on_each(&kit.cpus(), |cpu| {
        for round in 0..kit.times(6) as usize {
            let several = [create(kit, ROOT)?, create(kit, ROOT)?, create(kit, ROOT)?];
            // The same address in all, so that translations that are mixed up show.
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

/// A control group, so small that what is checked in it must be reclaimed; and how many pages each CPU is to use.
fn small_group<H: Harness>(kit: &Kit<'_, H>) -> Result<(GroupId, u64), Stop> {
    let cpus = kit.machine().cpus() as u64;
    let limits = GroupLimits { max: 128 + 32 * cpus, ..GroupLimits::default() };
    let group = served("create_group", kit.harness.mm().create_group(ROOT, limits))?;
    Ok((group, 4 * limits.max / cpus))
}

/// Each CPU fills `each` pages of a mapping of its own, twice; when all have, it reads them all.
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
    kit.meet(filled, kit.machine().cpus())?;
    (0..each).try_for_each(|index| program.holds(Vpn(start.0 + index), 2, name(index)))
}

/// Each CPU a part of one file, through shared mappings, reclaimed in a group.
pub(crate) fn file<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let (group, each) = small_group(kit)?;
    in_file(kit, group, each)
}

fn in_file<H: Harness>(kit: &Kit<'_, H>, group: GroupId, each: u64) -> Verdict {
    let (mm, pages) = (kit.harness.mm(), each * kit.machine().cpus() as u64);
    let scratch = kit.harness.scratch().ok_or(Stop::Skipped("the kernel has no device for it"))?;
    if scratch.blocks < pages {
        return Err(Stop::Skipped("the device is too small for a file that is larger than memory"));
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
    let ended = served("fsync", mm.fsync(file)).and(served("ftruncate", mm.ftruncate(file, 0)));
    verdict.and(ended).and_then(|()| validate(kit))
}

/// Each CPU anonymous memory, reclaimed in a group.
pub(crate) fn swap<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let (group, each) = small_group(kit)?;
    in_swap(kit, group, each)
}

fn in_swap<H: Harness>(kit: &Kit<'_, H>, group: GroupId, each: u64) -> Verdict {
    let free = kit.harness.mm().core().swap.free_slots();
    if free < each * kit.machine().cpus() as u64 {
        return Err(Stop::Skipped("there is not enough swap space"));
    }
    let stats = &kit.harness.mm().mmu().stats;
    let before = stats.read(Stat::PswpOut);
    fill_and_read(kit, group, each, &|_| Backing::Anonymous)?;
    ensure!(stats.read(Stat::PswpOut) > before, "nothing was swapped out: there was room for it all");
    validate(kit)
}

/// For each CPU, a share of somewhat more than all memory.
fn more_than_memory<H: Harness>(kit: &Kit<'_, H>) -> Result<u64, Stop> {
    let memory: u64 = kit.machine().memory().iter().map(|range| u64::from(range.frames)).sum();
    if memory > MOST_MEMORY {
        return Err(Stop::Skipped("the machine has more than 256 MiB; the suite wants a small one"));
    }
    Ok(memory * 5 / 4 / kit.machine().cpus() as u64)
}

pub(crate) fn short_of_memory_file<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    in_file(kit, ROOT, more_than_memory(kit)?)
}

pub(crate) fn short_of_memory_swap<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    in_swap(kit, ROOT, more_than_memory(kit)?)
}

/// When all spaces have ended, nothing of them is left.
pub(crate) fn nothing_left<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let stats = &kit.harness.mm().mmu().stats;
    for stat in [Stat::NrAnonPages, Stat::NrMapped, Stat::NrPageTablePages, Stat::NrDirty, Stat::NrWriteback]
    {
        ensure!(kit.until(|| stats.read(stat) == 0), "{stat:?} is {} when nothing is left", stats.read(stat));
    }
    validate(kit)
}

//! Other CPUs are made to do something, wherever they are, and have done it when the call returns.

use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::raw::{ORDINARY, Tree};
use crate::report::{Stop, Verdict};
use mm::api::{Backing, MapRequest, Prot};
use mm::machine::{Asid, CpuSet, Flush, Machine};
use mm::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering::*, Shared};
use mm::units::*;
use std_alloc::vec::Vec;

fn others<H: Harness>(kit: &Kit<'_, H>, here: CpuId) -> CpuSet {
    let mut set = CpuSet::EMPTY;
    kit.cpus().into_iter().filter(|&cpu| cpu != here).for_each(|cpu| set.insert(cpu));
    set
}

fn needs_two<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    if kit.machine().cpus() < 2 { Err(Stop::Skipped("the machine has one CPU")) } else { Ok(()) }
}

/// Ask `targets` from `here`, and look whether the right CPUs did the right thing the right number of times.
fn ask<H: Harness>(kit: &Kit<'_, H>, here: CpuId, targets: &CpuSet, round: u64) -> Verdict {
    let ran: Vec<AtomicU32> = kit.cpus().iter().map(|_| AtomicU32::new(0)).collect();
    let (told, astray, late) = (AtomicU64::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let over = AtomicBool::new(false);
    told.store(round, Relaxed);
    let remote = |cpu: CpuId| {
        ran[cpu.index()].fetch_add(1, Relaxed);
        if kit.machine().cpu() != cpu || told.load(Relaxed) != round {
            astray.fetch_add(1, Relaxed);
        }
        if over.load(Relaxed) {
            late.fetch_add(1, Relaxed);
        }
    };
    let mut local = 0;
    let mut local_elsewhere = false;
    kit.machine().shootdown(targets, &remote, &mut || {
        local += 1;
        local_elsewhere |= kit.machine().cpu() != here;
    });
    over.store(true, Relaxed);
    for cpu in kit.cpus() {
        let (ran, should) = (ran[cpu.index()].load(Relaxed), u32::from(targets.contains(cpu)));
        ensure!(
            ran == should,
            "{here} asked: when the call returned, {cpu} had run it {ran} times, not {should}"
        );
    }
    ensure!(local == 1, "{here} asked, and ran its own part {local} times");
    ensure!(!local_elsewhere, "{here}'s own part ran on another CPU");
    let wrong = astray.load(Relaxed);
    ensure!(wrong == 0, "{wrong} CPUs ran it for another, or did not see what {here} had written before");
    ensure!(late.load(Relaxed) == 0, "a CPU ran it after the call had returned");
    ensure!(kit.machine().cpu() == here, "who asked on {here} finds itself elsewhere");
    Ok(())
}

/// All others, none, each alone, and some mixtures.
fn ask_all_ways<H: Harness>(kit: &Kit<'_, H>, here: CpuId) -> Verdict {
    let all = others(kit, here);
    ask(kit, here, &all, 1)?;
    ask(kit, here, &CpuSet::EMPTY, 2)?;
    for cpu in all.iter() {
        let mut one = CpuSet::EMPTY;
        one.insert(cpu);
        ask(kit, here, &one, 3)?;
    }
    for round in 0..kit.times(16) as u64 {
        let mut some = CpuSet::EMPTY;
        all.iter().filter(|cpu| round >> (cpu.0 % 5) & 1 == 0).for_each(|cpu| some.insert(cpu));
        ask(kit, here, &some, 4 + round)?;
    }
    Ok(())
}

/// From each CPU, while the others have nothing to do.
pub(crate) fn idle<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    needs_two(kit)?;
    kit.on_each_in_turn(|cpu| ask_all_ways(kit, cpu))
}

/// From the first CPU, while tasks on the others do `busy` until the flag is set.
fn while_others<H: Harness, F: Fn(CpuId, &AtomicBool) -> Verdict + Shared>(
    kit: &Kit<'_, H>,
    busy: F,
) -> Verdict {
    needs_two(kit)?;
    let (stop, begun) = (AtomicBool::new(false), AtomicU32::new(0));
    let cpus = kit.cpus();
    kit.on_each(&cpus, |cpu| {
        begun.fetch_add(1, AcqRel);
        if cpu != cpus[0] {
            return busy(cpu, &stop);
        }
        let came = kit.until(|| begun.load(Acquire) as usize == cpus.len());
        let verdict = if came { ask_all_ways(kit, cpu) } else { Ok(()) };
        stop.store(true, Release);
        ensure!(came, "a task on another CPU does not begin");
        verdict
    })
}

pub(crate) fn in_kernel<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    while_others(kit, |cpu, stop| {
        ensure!(kit.spin_until(|| stop.load(Acquire)), "{cpu} waits in vain");
        Ok(())
    })
}

pub(crate) fn in_program<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    needs_two(kit)?;
    let mm = kit.harness.mm();
    let failed = |error| Stop::Failed(std_alloc::format!("a space of one page: {error:?}"));
    let space = mm.create_space(GroupId(0)).map_err(failed)?;
    let prot = Prot::READ | Prot::WRITE;
    let request =
        MapRequest { at: None, pages: 1, prot, backing: Backing::Anonymous, locked: true, populate: true };
    let page = mm.mmap(space, &request).map_err(failed)?;
    let can = AtomicBool::new(true);
    let (begun, cpus) = (AtomicU32::new(0), kit.cpus());
    let verdict = kit.on_each(&cpus, |cpu| {
        kit.harness.enter(Some(space));
        begun.fetch_add(1, AcqRel);
        if cpu != cpus[0] {
            if !kit.harness.spin_as_program(page) {
                can.store(false, Release);
            }
            kit.harness.enter(None);
            return Ok(());
        }
        let came = kit.until(|| begun.load(Acquire) as usize == cpus.len());
        let verdict = if came && can.load(Acquire) { ask_all_ways(kit, cpu) } else { Ok(()) };
        let stored = kit.harness.store(page, 0, 1);
        kit.harness.enter(None);
        ensure!(came, "a task on another CPU does not begin");
        ensure!(stored, "a store to a page that is locked in memory faults");
        verdict
    });
    mm.exit_space(space);
    if !can.load(Acquire) {
        return Err(Stop::Skipped("the kernel has no program for it"));
    }
    verdict
}

/// All ask all others at once. Who waits must go on answering.
pub(crate) fn crossing<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    needs_two(kit)?;
    let (cpus, meeting) = (kit.cpus(), AtomicU32::new(0));
    kit.on_each(&cpus, |cpu| {
        kit.meet(&meeting, cpus.len())?;
        (0..u64::from(kit.times(200))).try_for_each(|round| ask(kit, cpu, &others(kit, cpu), round))
    })
}

/// Who asks holds a lock that the others want.
pub(crate) fn lock_held<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    needs_two(kit)?;
    let (cpus, meeting, held) = (kit.cpus(), AtomicU32::new(0), AtomicBool::new(false));
    kit.on_each(&cpus, |cpu| {
        kit.meet(&meeting, cpus.len())?;
        for round in 0..u64::from(kit.times(20)) {
            ensure!(kit.spin_until(|| !held.swap(true, AcqRel)), "{cpu} never gets the lock");
            let verdict = ask(kit, cpu, &others(kit, cpu), round);
            held.store(false, Release);
            verdict?;
        }
        Ok(())
    })
}

/// A page is turned over again and again, between two frames that hold 0 and 1; `flush` makes every CPU drop its
/// translation. Whoever reads after it has returned reads the new frame. The next turn comes when all have read.
fn all_read_the_new<H: Harness, F: Fn(CpuId, Flush) + Shared>(kit: &Kit<'_, H>, flush: F) -> Verdict {
    let (tree, cpus) = (Tree::new(kit)?, kit.cpus());
    let frames = [tree.frames.one()?, tree.frames.one()?];
    let (turn, read) = (AtomicU32::new(0), AtomicU32::new(0));
    let readers = cpus.len() as u32 - 1;
    let driver = || {
        for (value, &frame) in frames.iter().enumerate() {
            tree.map(1 + value, frame, ORDINARY);
            ensure!(tree.store(1 + value, value as u64), "a store faults");
        }
        for next in 1..=kit.times(50) {
            tree.map(0, frames[next as usize % 2], ORDINARY);
            flush(cpus[0], Flush::Pages { start: tree.page(0), count: 1, stride: Order::ZERO });
            turn.store(next, Release);
            let got = tree.load(0);
            ensure!(got == Some(u64::from(next % 2)), "{} made all flush and reads the old page", cpus[0]);
            let all = kit.spin_until(|| read.load(Acquire) == next * readers);
            ensure!(all, "a CPU does not read the page after turn {next}, or reads the old one");
        }
        Ok(())
    };
    let reader = |cpu: CpuId| {
        let mut last = 0;
        while last != OVER {
            let now = turn.load(Acquire);
            let got = tree.load(0);
            if now != last && now != OVER {
                let right = got == Some(u64::from(now % 2));
                ensure!(
                    right,
                    "{cpu} reads {got:x?} after all were made to flush: the page as it was before"
                );
                read.fetch_add(1, AcqRel);
            }
            last = now;
            kit.harness.spin();
        }
        Ok(())
    };
    kit.on_each(&cpus, |cpu| {
        let _loaded = tree.load_root(Asid(0), false);
        if cpu != cpus[0] {
            return reader(cpu);
        }
        let verdict = driver();
        turn.store(OVER, Release);
        verdict
    })
}

/// The turn after the last.
const OVER: u32 = u32::MAX;

pub(crate) fn translations<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    needs_two(kit)?;
    all_read_the_new(kit, |cpu, what| {
        kit.machine().shootdown(&others(kit, cpu), &|_| kit.machine().flush(what), &mut || {
            kit.machine().flush(what);
        });
    })
}

pub(crate) fn broadcast<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    if !kit.machine().has_broadcast_flush() {
        return Err(Stop::Skipped("the machine does not claim it"));
    }
    all_read_the_new(kit, |_, _| kit.machine().flush_everywhere())
}

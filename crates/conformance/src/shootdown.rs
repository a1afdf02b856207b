//! Other CPUs run a function, whatever they are doing, and have run it when the call returns.

use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::raw::{ORDINARY, Tree};
use crate::report::{NotPassed, Verdict};
use mm::api::{Backing, MapRequest, Prot};
use mm::machine::{Asid, Broadcast, CpuSet, Flush, Machine};
use mm::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering::*, Shared};
use mm::units::*;
use std_alloc::vec::Vec;

fn others<H: Harness>(kit: &Kit<'_, H>, here: CpuId) -> CpuSet {
    let mut set = CpuSet::EMPTY;
    kit.cpus().into_iter().filter(|&cpu| cpu != here).for_each(|cpu| set.insert(cpu));
    set
}

fn needs_two<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    if kit.machine().cpus() < 2 { Err(NotPassed::Skipped("the machine has one CPU")) } else { Ok(()) }
}

/// Call `shootdown` on `here` and check that the right CPUs ran the right thing the right number of times.
fn check_shootdown<H: Harness>(kit: &Kit<'_, H>, here: CpuId, targets: &CpuSet, round: u64) -> Verdict {
    let ran: Vec<AtomicU32> = kit.cpus().iter().map(|_| AtomicU32::new(0)).collect();
    let (published, misplaced, late) = (AtomicU64::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let returned = AtomicBool::new(false);
    published.store(round, Relaxed);
    let remote = |cpu: CpuId| {
        ran[cpu.index()].fetch_add(1, Relaxed);
        if kit.machine().cpu() != cpu || published.load(Relaxed) != round {
            misplaced.fetch_add(1, Relaxed);
        }
        if returned.load(Relaxed) {
            late.fetch_add(1, Relaxed);
        }
    };
    let mut local = 0;
    let mut local_elsewhere = false;
    kit.machine().shootdown(targets, &remote, &mut || {
        local += 1;
        local_elsewhere |= kit.machine().cpu() != here;
    });
    returned.store(true, Relaxed);
    for cpu in kit.cpus() {
        let (ran, should) = (ran[cpu.index()].load(Relaxed), u32::from(targets.contains(cpu)));
        ensure!(
            ran == should,
            "when shootdown() on {here} returned, {cpu} had run the remote call {ran} times, not {should}"
        );
    }
    ensure!(local == 1, "{here} ran its own part {local} times");
    ensure!(!local_elsewhere, "the local part of {here} ran on another CPU");
    let wrong = misplaced.load(Relaxed);
    ensure!(
        wrong == 0,
        "{wrong} CPUs ran the call for another CPU, or did not see what {here} had stored before"
    );
    ensure!(late.load(Relaxed) == 0, "a CPU ran the remote call after shootdown() had returned");
    ensure!(kit.machine().cpu() == here, "the initiator on {here} runs on another CPU after the call");
    Ok(())
}

/// All others, none, each alone, and mixtures.
fn check_all_target_sets<H: Harness>(kit: &Kit<'_, H>, here: CpuId) -> Verdict {
    let all = others(kit, here);
    check_shootdown(kit, here, &all, 1)?;
    check_shootdown(kit, here, &CpuSet::EMPTY, 2)?;
    for cpu in all.iter() {
        let mut one = CpuSet::EMPTY;
        one.insert(cpu);
        check_shootdown(kit, here, &one, 3)?;
    }
    for round in 0..kit.times(16) as u64 {
        let mut some = CpuSet::EMPTY;
        all.iter().filter(|cpu| round >> (cpu.0 % 5) & 1 == 0).for_each(|cpu| some.insert(cpu));
        check_shootdown(kit, here, &some, 4 + round)?;
    }
    Ok(())
}

/// From each CPU, while the others are idle.
pub(crate) fn idle<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    needs_two(kit)?;
    kit.on_each_in_turn(|cpu| check_all_target_sets(kit, cpu))
}

/// From the first CPU, while tasks on the others run `busy` until the flag is set.
fn while_others<H: Harness, F: Fn(CpuId, &AtomicBool) -> Verdict + Shared>(
    kit: &Kit<'_, H>,
    busy: F,
) -> Verdict {
    needs_two(kit)?;
    let (stop, started) = (AtomicBool::new(false), AtomicU32::new(0));
    let cpus = kit.cpus();
    kit.on_each(&cpus, |cpu| {
        started.fetch_add(1, AcqRel);
        if cpu != cpus[0] {
            return busy(cpu, &stop);
        }
        let all_started = kit.until(|| started.load(Acquire) as usize == cpus.len());
        let verdict = if all_started { check_all_target_sets(kit, cpu) } else { Ok(()) };
        stop.store(true, Release);
        ensure!(all_started, "a task on another CPU does not start");
        verdict
    })
}

pub(crate) fn in_kernel<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    while_others(kit, |cpu, stop| {
        ensure!(kit.spin_until(|| stop.load(Acquire)), "{cpu} is never told to stop");
        Ok(())
    })
}

pub(crate) fn in_program<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    needs_two(kit)?;
    let mm = kit.harness.mm();
    let failed = |error| NotPassed::Failed(std_alloc::format!("a space of one page: {error:?}"));
    let space = mm.create_space(GroupId(0)).map_err(failed)?;
    let prot = Prot::READ | Prot::WRITE;
    let request =
        MapRequest { at: None, pages: 1, prot, backing: Backing::Anonymous, locked: true, populate: true };
    let page = mm.mmap(space, &request).map_err(failed)?;
    let can = AtomicBool::new(true);
    let (started, cpus) = (AtomicU32::new(0), kit.cpus());
    let verdict = kit.on_each(&cpus, |cpu| {
        kit.harness.enter(Some(space));
        started.fetch_add(1, AcqRel);
        if cpu != cpus[0] {
            if !kit.harness.spin_as_program(page) {
                can.store(false, Release);
            }
            kit.harness.enter(None);
            return Ok(());
        }
        let all_started = kit.until(|| started.load(Acquire) as usize == cpus.len());
        let verdict = if all_started && can.load(Acquire) { check_all_target_sets(kit, cpu) } else { Ok(()) };
        let stored = kit.harness.store(page, 0, 1);
        kit.harness.enter(None);
        ensure!(all_started, "a task on another CPU does not start");
        ensure!(stored, "a store to a page that is locked in memory faults");
        verdict
    });
    mm.exit_space(space);
    if !can.load(Acquire) {
        return Err(NotPassed::Skipped("the kernel has no program that spins"));
    }
    verdict
}

/// All CPUs call `shootdown` for all others at once. A CPU that waits must go on answering.
pub(crate) fn concurrent<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    needs_two(kit)?;
    let (cpus, arrived) = (kit.cpus(), AtomicU32::new(0));
    kit.on_each(&cpus, |cpu| {
        kit.barrier(&arrived, cpus.len())?;
        (0..u64::from(kit.times(200)))
            .try_for_each(|round| check_shootdown(kit, cpu, &others(kit, cpu), round))
    })
}

/// The initiator holds a lock that the others spin for.
pub(crate) fn lock_held<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    needs_two(kit)?;
    let (cpus, arrived, held) = (kit.cpus(), AtomicU32::new(0), AtomicBool::new(false));
    kit.on_each(&cpus, |cpu| {
        kit.barrier(&arrived, cpus.len())?;
        for round in 0..u64::from(kit.times(20)) {
            ensure!(kit.spin_until(|| !held.swap(true, AcqRel)), "{cpu} never takes the lock");
            let verdict = check_shootdown(kit, cpu, &others(kit, cpu), round);
            held.store(false, Release);
            verdict?;
        }
        Ok(())
    })
}

/// A page is mapped to two frames alternately, which hold 0 and 1; `flush` makes every CPU drop its
/// translation. Every load after it has returned must read the new frame. The next round begins when all CPUs
/// have read.
fn all_see_the_new_frame<H: Harness, F: Fn(CpuId, Pfn, Flush) + Shared>(
    kit: &Kit<'_, H>,
    flush: F,
) -> Verdict {
    let (tree, cpus) = (Tree::new(kit)?, kit.cpus());
    let frames = [tree.frames.one()?, tree.frames.one()?];
    let (round, read) = (AtomicU32::new(0), AtomicU32::new(0));
    let readers = cpus.len() as u32 - 1;
    let driver = || {
        for (value, &frame) in frames.iter().enumerate() {
            tree.map(1 + value, frame, ORDINARY);
            ensure!(tree.store(1 + value, value as u64), "a store faults");
        }
        for next in 1..=kit.times(50) {
            tree.map(0, frames[next as usize % 2], ORDINARY);
            flush(cpus[0], tree.root(), Flush::Pages { start: tree.page(0), count: 1, stride: Order::ZERO });
            round.store(next, Release);
            let got = tree.load(0);
            ensure!(got == Some(u64::from(next % 2)), "{} reads the old page after the flush", cpus[0]);
            let all = kit.spin_until(|| read.load(Acquire) == next * readers);
            ensure!(all, "a CPU does not read the page after round {next}, or reads the old one");
        }
        Ok(())
    };
    let reader = |cpu: CpuId| {
        let mut last = 0;
        while last != DONE {
            let now = round.load(Acquire);
            let got = tree.load(0);
            if now != last && now != DONE {
                let right = got == Some(u64::from(now % 2));
                ensure!(right, "{cpu} reads {got:x?} after the flush: the old frame");
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
        round.store(DONE, Release);
        verdict
    })
}

/// The round after the last.
const DONE: u32 = u32::MAX;

pub(crate) fn translations<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    needs_two(kit)?;
    all_see_the_new_frame(kit, |cpu, _, what| {
        kit.machine().shootdown(&others(kit, cpu), &|_| kit.machine().flush(what), &mut || {
            kit.machine().flush(what);
        });
    })
}

pub(crate) fn broadcast<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    if !kit.machine().has_broadcast_flush() {
        return Err(NotPassed::Skipped("the machine has no broadcast flush"));
    }
    all_see_the_new_frame(kit, |_, _, _| kit.machine().flush_everywhere(Broadcast::All))?;
    all_see_the_new_frame(kit, |_, root, what| kit.machine().flush_everywhere(Broadcast::Of(root, what)))
}

//! Tickets: a waiter is woken by a wake-up after its ticket, and by nothing else.

use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::raw::Frames;
use crate::report::{NotPassed, Verdict};
use crate::workers;
use mm::machine::{Machine, Ticket, WaitKey, Work};
use mm::primitive::{AtomicBool, AtomicU32, Ordering::*};
use mm::units::*;
use std_alloc::vec::Vec;

/// How long a wait takes that is expected to end by its deadline, in nanoseconds.
const SHORT: Nanos = 5_000_000;

/// Wait, with a deadline that a wake-up must not need.
fn wait<H: Harness>(kit: &Kit<'_, H>, ticket: Ticket) -> bool {
    let deadline = kit.machine().now().saturating_add(kit.harness.patience());
    kit.machine().wait(ticket, Some(deadline))
}

fn wait_shortly<H: Harness>(kit: &Kit<'_, H>, ticket: Ticket) -> bool {
    kit.machine().wait(ticket, Some(kit.machine().now() + SHORT))
}

pub(crate) fn not_lost<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let frames = Frames::new(kit);
    let key = WaitKey::Frame(frames.one()?);
    let (drawn, woken) = (AtomicU32::new(0), AtomicU32::new(0));
    let cpus = kit.cpus();
    let pair = [cpus[0], cpus[cpus.len() - 1]];
    let rounds = kit.times(50);
    // The first task to arrive draws the tickets.
    let first = AtomicBool::new(false);
    kit.on_each(&pair, |_| {
        let waits = !first.swap(true, AcqRel);
        for round in 1..=rounds {
            if waits {
                let ticket = kit.machine().ticket(key);
                drawn.store(round, Release);
                ensure!(kit.until(|| woken.load(Acquire) >= round), "the waking task makes no progress");
                ensure!(wait(kit, ticket), "a wake-up between ticket() and wait() is lost");
            } else {
                ensure!(kit.until(|| drawn.load(Acquire) >= round), "the waiting task makes no progress");
                kit.machine().wake(key);
                woken.store(round, Release);
            }
        }
        Ok(())
    })
}

pub(crate) fn deadline<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let frames = Frames::new(kit);
    let key = WaitKey::Frame(frames.one()?);
    kit.on_each(&kit.cpus(), |_| {
        let machine = kit.machine();
        for key in [key, WaitKey::Timer] {
            let until = machine.now() + SHORT;
            let woken = machine.wait(machine.ticket(key), Some(until));
            ensure!(!woken, "a wait for {key:?} without a wake-up reports one");
            let early = until.saturating_sub(machine.now());
            ensure!(early == 0, "a wait ended {early} ns before its deadline");
        }
        let past = machine.wait(machine.ticket(key), Some(machine.now().saturating_sub(1)));
        ensure!(!past, "a wait whose deadline had passed reports a wake-up");
        Ok(())
    })
}

pub(crate) fn old_wakes<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let frames = Frames::new(kit);
    let key = WaitKey::Frame(frames.one()?);
    kit.on(CpuId(0), || {
        for _ in 0..kit.times(2) {
            kit.machine().wake(key);
            let ticket = kit.machine().ticket(key);
            ensure!(!wait_shortly(kit, ticket), "a wake-up before the ticket ends the wait");
        }
        Ok(())
    })
}

/// Two tasks on each CPU, and a task that wakes them all at once.
pub(crate) fn wakes_all<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let frames = Frames::new(kit);
    let key = WaitKey::Frame(frames.one()?);
    let cpus = kit.cpus();
    let sleepers = 2 * cpus.len();
    let tasks: Vec<CpuId> = cpus.iter().copied().cycle().take(sleepers + 1).collect();
    for round in 0..kit.times(4) {
        let (waker, ready) = (AtomicBool::new(false), AtomicU32::new(0));
        kit.on_each(&tasks, |cpu| {
            if !waker.swap(true, AcqRel) {
                let all = kit.until(|| ready.load(Acquire) as usize == sleepers);
                // Some rounds wake tasks that sleep, others wake tasks that are about to sleep.
                (0..round * 16).for_each(|_| kit.harness.pause());
                kit.machine().wake(key);
                ensure!(all, "a sleeping task keeps others from its CPU");
                return Ok(());
            }
            let ticket = kit.machine().ticket(key);
            ready.fetch_add(1, AcqRel);
            ensure!(wait(kit, ticket), "a task on {cpu} is not woken with the others");
            Ok(())
        })?;
    }
    Ok(())
}

pub(crate) fn keys<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let frames = Frames::new(kit);
    let pfn = frames.one()?;
    let key = WaitKey::Frame(pfn);
    // Keys with the same or a near number, which may collide in a small hash table.
    let near = [1, 2, 64, 256, 1024, 4096].map(|by| WaitKey::Frame(Pfn(pfn.0 ^ by)));
    let equal = [WaitKey::Space(SpaceId(pfn.0)), WaitKey::File(FileId(pfn.0)), WaitKey::Timer];
    let done = AtomicBool::new(false);
    let first = AtomicBool::new(false);
    let cpus = kit.cpus();
    kit.on_each(&[cpus[0], cpus[cpus.len() - 1]], |_| {
        if first.swap(true, AcqRel) {
            let wake = || near.into_iter().chain(equal).for_each(|key| kit.machine().wake(key));
            let done = kit.until(|| {
                wake();
                done.load(Acquire)
            });
            ensure!(done, "a task whose wait has a deadline does not return");
            return Ok(());
        }
        let woken = (0..8).any(|_| wait_shortly(kit, kit.machine().ticket(key)));
        done.store(true, Release);
        ensure!(!woken, "a wake-up of another key ends a wait for {key:?}");
        Ok(())
    })
}

/// Two tasks pass a turn to each other; each sleeps during the other's turn.
pub(crate) fn in_turn<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let cpus = kit.cpus();
    for pair in [[cpus[0], cpus[cpus.len() - 1]], [cpus[0]; 2]] {
        let frames = Frames::new(kit);
        let keys = [WaitKey::Frame(frames.one()?), WaitKey::Frame(frames.one()?)];
        let (numbers, turn) = (AtomicU32::new(0), AtomicU32::new(0));
        let turns = kit.times(200);
        kit.on_each(&pair, |_| {
            let me = numbers.fetch_add(1, AcqRel) % 2;
            loop {
                while turn.load(Acquire) % 2 != me && turn.load(Acquire) < turns {
                    let ticket = kit.machine().ticket(keys[me as usize]);
                    if turn.load(Acquire) % 2 == me || turn.load(Acquire) >= turns {
                        break;
                    }
                    ensure!(wait(kit, ticket), "a task that its partner woke sleeps on");
                }
                let now = turn.fetch_add(1, AcqRel);
                kit.machine().wake(keys[1 - me as usize]);
                if now >= turns {
                    return Ok(());
                }
            }
        })?;
    }
    Ok(())
}

pub(crate) fn in_io_context<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let frames = Frames::new(kit);
    let key = WaitKey::Frame(frames.one()?);
    let (ready, first, can) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(true));
    let cpus = kit.cpus();
    kit.on_each(&[cpus[0], cpus[0]], |_| {
        if first.swap(true, AcqRel) {
            ensure!(kit.until(|| ready.load(Acquire)), "a sleeping task keeps others from its CPU");
            can.store(workers::in_io_context(kit.harness, &|_| kit.machine().wake(key)), Release);
            if !can.load(Acquire) {
                kit.machine().wake(key);
            }
            return Ok(());
        }
        let ticket = kit.machine().ticket(key);
        ready.store(true, Release);
        ensure!(wait(kit, ticket), "a wake-up in the io_done() context does not wake");
        Ok(())
    })?;
    if can.load(Acquire) {
        Ok(())
    } else {
        Err(NotPassed::Skipped("the kernel cannot run code in that context on request"))
    }
}

pub(crate) fn resched<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each_in_turn(|cpu| {
        let (first, ran) = (AtomicBool::new(false), AtomicBool::new(false));
        kit.on_each(&[cpu, cpu], |_| {
            if first.swap(true, AcqRel) {
                ran.store(true, Release);
                return Ok(());
            }
            let end = kit.machine().now().saturating_add(kit.harness.patience());
            while !ran.load(Acquire) {
                ensure!(kit.machine().now() <= end, "resched() on {cpu} does not let another task run");
                // As in the loops of the memory manager: some work, then a point where switching is allowed.
                kit.machine().charge(Work::EntryScan, 1);
                kit.machine().resched();
            }
            Ok(())
        })
    })
}

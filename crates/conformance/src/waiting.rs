//! Tickets: who waits is woken by what comes after its ticket, and by nothing else.

use crate::crew;
use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::raw::Frames;
use crate::report::{Stop, Verdict};
use mm::machine::{Machine, Ticket, WaitKey, Work};
use mm::primitive::{AtomicBool, AtomicU32, Ordering::*};
use mm::units::*;
use std_alloc::vec::Vec;

/// A wait that is expected to end by its deadline, in nanoseconds.
const SHORT: Nanos = 5_000_000;

/// Sleep as long as a wake-up may take.
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
    // The one that draws tickets is whichever task comes first.
    let first = AtomicBool::new(false);
    kit.on_each(&pair, |_| {
        let waits = !first.swap(true, AcqRel);
        for round in 1..=rounds {
            if waits {
                let ticket = kit.machine().ticket(key);
                drawn.store(round, Release);
                ensure!(kit.until(|| woken.load(Acquire) >= round), "the other task does not come");
                ensure!(wait(kit, ticket), "a wake-up between the ticket and the wait is lost");
            } else {
                ensure!(kit.until(|| drawn.load(Acquire) >= round), "the task that waits does not come");
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
            ensure!(!woken, "a wait for {key:?}, which nobody woke, says that it was woken");
            let early = until.saturating_sub(machine.now());
            ensure!(early == 0, "a wait ended {early} ns before its deadline");
        }
        let past = machine.wait(machine.ticket(key), Some(machine.now().saturating_sub(1)));
        ensure!(!past, "a wait whose deadline had passed says that it was woken");
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
            ensure!(!wait_shortly(kit, ticket), "a wake-up from before the ticket ends the wait");
        }
        Ok(())
    })
}

/// Two tasks on each CPU, and one that wakes them all at once.
pub(crate) fn wakes_all<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let frames = Frames::new(kit);
    let key = WaitKey::Frame(frames.one()?);
    let cpus = kit.cpus();
    let sleepers = 2 * cpus.len();
    let crew: Vec<CpuId> = cpus.iter().copied().cycle().take(sleepers + 1).collect();
    for round in 0..kit.times(4) {
        let (waker, ready) = (AtomicBool::new(false), AtomicU32::new(0));
        kit.on_each(&crew, |cpu| {
            if !waker.swap(true, AcqRel) {
                let all = kit.until(|| ready.load(Acquire) as usize == sleepers);
                // Some rounds wake tasks that sleep, others such as are about to.
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
    // Alike in number, or near it; as a key in a small hash table may be.
    let near = [1, 2, 64, 256, 1024, 4096].map(|by| WaitKey::Frame(Pfn(pfn.0 ^ by)));
    let alike = [WaitKey::Space(SpaceId(pfn.0)), WaitKey::File(FileId(pfn.0)), WaitKey::Timer];
    let over = AtomicBool::new(false);
    let first = AtomicBool::new(false);
    let cpus = kit.cpus();
    kit.on_each(&[cpus[0], cpus[cpus.len() - 1]], |_| {
        if first.swap(true, AcqRel) {
            let wake = || near.into_iter().chain(alike).for_each(|key| kit.machine().wake(key));
            let over = kit.until(|| {
                wake();
                over.load(Acquire)
            });
            ensure!(over, "a task whose wait has a deadline does not come back");
            return Ok(());
        }
        let woken = (0..8).any(|_| wait_shortly(kit, kit.machine().ticket(key)));
        over.store(true, Release);
        ensure!(!woken, "a wait for {key:?} is ended by a wake-up of another key");
        Ok(())
    })
}

/// Two tasks hand a turn to each other, each asleep while it is the other's.
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
                    ensure!(wait(kit, ticket), "of tasks that wake each other, one sleeps on");
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

pub(crate) fn where_io_ends<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let frames = Frames::new(kit);
    let key = WaitKey::Frame(frames.one()?);
    let (ready, first, can) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(true));
    let cpus = kit.cpus();
    kit.on_each(&[cpus[0], cpus[0]], |_| {
        if first.swap(true, AcqRel) {
            ensure!(kit.until(|| ready.load(Acquire)), "a sleeping task keeps others from its CPU");
            can.store(crew::where_io_ends(kit.harness, &|_| kit.machine().wake(key)), Release);
            if !can.load(Acquire) {
                kit.machine().wake(key);
            }
            return Ok(());
        }
        let ticket = kit.machine().ticket(key);
        ready.store(true, Release);
        ensure!(wait(kit, ticket), "a wake-up from where transfers end does not wake");
        Ok(())
    })?;
    if can.load(Acquire) { Ok(()) } else { Err(Stop::Skipped("the kernel cannot call it on request")) }
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
                // As in the loops of the memory manager: some work, then a good moment.
                kit.machine().charge(Work::EntryScan, 1);
                kit.machine().resched();
            }
            Ok(())
        })
    })
}

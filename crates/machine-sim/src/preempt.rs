//! Other CPUs in the middle of a CPU's work: looking for races in the memory manager.
//!
//! Problem: one thread of the host plays all CPUs, and goes from one to another only where a task waits or has passed its
//! limit between two accesses. So what the memory manager does between two waits, real CPUs do beside each other, and the
//! simulated ones one after the other: no run would ever meet the moment between a look and what follows from it.
//!
//! Rule: with [`RunConfig::preempt`](crate::RunConfig::preempt) every call of the machine by a task that holds no lock (work
//! that is charged, a scope that is entered or left, a frame that is copied or zeroed, a transfer, a wake-up) is a *point*.
//! At about one point in so many, as the seed has it, the CPU stops for a while: its clock jumps, and the scheduler goes on
//! with those that are now behind it, which may come to points of their own. Stops are of all lengths, from one that
//! another CPU just gets past a line in to one in which it cuts a file and reclaim passes twice. At every point a CPU that has
//! passed its limit lets the others catch up, so that whoever looks on and on for what another is about to do gets it.
//!
//! What does not happen: another task on the *same* CPU. The memory manager is not preempted on real CPUs either
//! ([`Machine`](mm::Machine), "contract on context"): a CPU that stops keeps its task. Interrupts come to it meanwhile. No point is
//! where a lock is held (others would wait for it, which nobody can tell from outside), nor where an interrupt is answered, a
//! CPU changes its address space, or the run itself looks: all that is one step on a real CPU or none of its work.
//!
//! The clocks of such a run say nothing about speed. Everything else holds: a run is a pure function of seed,
//! configuration and commit.

use crate::coroutine;
use crate::machine::SimMachine;
use program::rng::Rng;
use std::cell::{Cell, RefCell};

/// The shortest stop, in picoseconds: about what a few steps of another CPU take.
const SHORTEST: u64 = 250_000;
/// Stops are at most two to this times as long: 4 ms.
const DOUBLINGS: u64 = 14;

/// When CPUs stop.
pub(crate) struct Preempt {
    /// One point in so many, on average.
    every: u64,
    rng: RefCell<Rng>,
    /// Points until the next stop.
    left: Cell<u64>,
    /// Does a task run, and may it be stopped?
    open: Cell<bool>,
}

impl Preempt {
    /// Stops at one point in `every` on average, as `seed` has it.
    pub(crate) fn new(every: u32, seed: u64) -> Preempt {
        // Not the numbers that a program with this seed gets.
        let rng = RefCell::new(Rng::new(seed ^ 0x70be_e71e_57a6_ce5d));
        Preempt { every: u64::from(every.max(1)), rng, left: Cell::new(1), open: Cell::new(false) }
    }

    /// How long to stop at this point, if at all.
    fn stop(&self) -> Option<u64> {
        self.left.set(self.left.get() - 1);
        if self.left.get() > 0 {
            return None;
        }
        let mut rng = self.rng.borrow_mut();
        self.left.set(1 + rng.below(2 * self.every - 1));
        let longest = SHORTEST << rng.below(DOUBLINGS + 1);
        Some(longest / 2 + rng.below(longest))
    }
}

impl SimMachine {
    /// Do `work`, during which no task is stopped, or (`open`) the one that runs may be.
    #[inline]
    pub(crate) fn stoppable<T>(&self, open: bool, work: impl FnOnce() -> T) -> T {
        let Some(preempt) = &self.preempt else { return work() };
        let before = preempt.open.replace(open);
        let result = work();
        preempt.open.set(before);
        result
    }

    /// The task that runs may be stopped here.
    #[cold]
    #[inline(never)]
    pub(crate) fn point(&self) {
        let Some(preempt) = self.preempt.as_deref() else { return };
        if !preempt.open.get() || mm::lock::held() > 0 {
            return;
        }
        let here = self.here();
        let stop = preempt.stop();
        if let Some(picos) = stop {
            here.spend(picos);
        }
        if stop.is_none() && here.clock.get() < self.limit.get() {
            return;
        }
        self.sched.borrow_mut().keep(self.current.get());
        let since = here.clock.get();
        coroutine::suspend();
        self.profiled(|profile| profile.was_away(self.here().clock.get().saturating_sub(since)));
    }
}

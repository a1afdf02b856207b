//! Stops CPUs in the middle of their work, to find races in the memory manager.
//!
//! Problem: one host thread plays all CPUs, and switches between them only where a task waits or has passed its limit
//! between two accesses. What real CPUs do concurrently between two waits, the simulated ones do one after the other:
//! no run would ever hit the moment between a check and the action that follows from it.
//!
//! Rule: with [`RunConfig::preempt`](crate::RunConfig::preempt) every call of the machine by a task (charged work, a
//! scope that is entered or left, a frame that is copied or zeroed, a transfer, a wake-up) is a *point*, and so are the
//! moments before a lock is taken and after it is released. At one point in `preempt` on average, drawn from the seed,
//! the CPU stops for a while: its clock jumps, and the scheduler continues with the CPUs that are behind it now, which
//! may reach points of their own. Stops have all lengths, from one in which another CPU just gets past a line to one in
//! which it truncates a file and reclaim runs twice. At every point a CPU that has passed its limit lets the others
//! catch up, so that a CPU that polls for what another is about to do gets it.
//!
//! *Locks are kept*, as by a CPU that runs on: what a lock protects is not safe from code that does not take it. A CPU
//! that wants the lock spins, a little time for each try. The *order* in which kinds of locks are taken is recorded,
//! and a cycle stops the run: two CPUs could deadlock there, whether or not they ever do.
//!
//! What does not happen: another task on the *same* CPU. Real CPUs do not preempt the memory manager either
//! ([`Machine`](mm::Machine), "contract on context"): a CPU that stops keeps its task. Shootdowns reach it all the
//! same; the end of a transfer, which takes locks, waits until no CPU is stopped with one, as it waits for a kernel
//! task on the booted machine. There are no points where an interrupt is answered, where a CPU switches its address
//! space, or where the run itself checks something: each of these is one step on a real CPU, or not its work at all.
//!
//! *A run ends.* Stops stretch all work, that of daemons, too, which begin again when their time has come. If they
//! and the program's own tasks then spend all of their time waiting for stopped CPUs, the run takes thousands of
//! seconds and more. So operations pay for stops: each that a program's task ends, a call or a fault, is good for
//! [`PER_OPERATION`], and the run begins with [`AT_START`]. Where nothing is left, no CPU is stopped until an operation
//! has ended. Until then the schedule is that of a run without stops: CPUs go on in the order of their clocks, and each
//! gets its turn. An operation has 10 to 30 stops as a rule, so most runs never come to that.
//!
//! The clocks of such a run say nothing about speed. All else holds: a run is a pure function of seed, configuration
//! and commit.

mod order;

use crate::coroutine;
use mm::lock::{self, HeldLocks};
use order::Order;
use program::rng::Rng;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The shortest stop, in picoseconds: about what a few steps of another CPU take.
const SHORTEST: u64 = 250_000;
/// Stops are at most two to the power of this times as long: 4 ms.
const DOUBLINGS: u64 = 14;
/// How long to wait between the first two tries of a lock, in picoseconds, and how often that doubles: a long wait then
/// takes few tries and is at most twice as long as needed.
const SPIN: u64 = 1_000_000;
const SPIN_DOUBLINGS: u32 = 5;
/// After this many tries a lock counts as never released: a stop, and stops within it, end long before.
const TRIES: u32 = 1_000_000;

/// How many stops an operation of a program pays for, and how many a run may have before the first.
const PER_OPERATION: u64 = 64;
const AT_START: u64 = 1 << 16;

thread_local! {
    /// What stops the CPUs that this thread plays.
    static STOPS: RefCell<Option<Rc<Preempt>>> = const { RefCell::new(None) };
}

/// When CPUs stop.
pub(crate) struct Preempt {
    /// One point in this many, on average.
    every: u64,
    rng: RefCell<Rng>,
    /// Points until the next stop.
    left: Cell<u64>,
    /// Stops that operations have paid for.
    paid: Cell<u64>,
    /// Whether a task runs that may be stopped.
    open: Cell<bool>,
    /// Picoseconds for which the task stops that was left last.
    stop: Cell<Option<u64>>,
    /// Locks held by CPUs that have stopped.
    kept: Cell<u32>,
    /// Tries in a row for a lock that is held.
    tries: Cell<u32>,
    /// The order in which kinds of locks were taken.
    order: RefCell<Order>,
}

/// While this lives, locks of this thread are points.
pub(crate) struct LockWatch;

impl LockWatch {
    /// Start to watch locks, if CPUs may stop.
    pub(crate) fn new(stops: Option<&Rc<Preempt>>) -> Option<LockWatch> {
        STOPS.set(Some(stops?.clone()));
        lock::watch(Some(lock::Watch { lock_point, wanted, taken }));
        Some(LockWatch)
    }
}

impl Drop for LockWatch {
    fn drop(&mut self) {
        lock::watch(None);
        // A run that has failed leaves tasks that hold locks.
        lock::switch_cpu(HeldLocks::default());
        STOPS.set(None);
    }
}

fn lock_point() {
    // A panic may be unwinding through the holder.
    if !std::thread::panicking()
        && let Some(stops) = STOPS.with_borrow(Option::clone)
    {
        stops.pass(false);
    }
}

fn wanted(held: &HeldLocks, kind: &'static str) {
    let _ = STOPS.with_borrow(|stops| stops.as_ref().map(|stops| stops.check_order(held, kind)));
}

fn taken() {
    if let Some(stops) = STOPS.with_borrow(Option::clone) {
        stops.spin();
    }
}

impl Preempt {
    /// Stop at one point in `every` on average, drawn from `seed`.
    pub(crate) fn new(every: u32, seed: u64) -> Preempt {
        Preempt {
            every: u64::from(every.max(1)),
            // Not the numbers that a program with this seed draws.
            rng: RefCell::new(Rng::new(seed ^ 0x70be_e71e_57a6_ce5d)),
            left: Cell::new(1),
            paid: Cell::new(AT_START),
            open: Cell::new(false),
            stop: Cell::new(None),
            kept: Cell::new(0),
            tries: Cell::new(0),
            order: RefCell::default(),
        }
    }

    /// A task of the program has ended an operation.
    pub(crate) fn operation_ended(&self) {
        self.paid.set(self.paid.get() + PER_OPERATION);
    }

    /// How long to stop at this point, if at all.
    fn due(&self) -> Option<u64> {
        if self.paid.get() == 0 {
            return None;
        }
        self.left.set(self.left.get() - 1);
        if self.left.get() > 0 {
            return None;
        }
        self.paid.set(self.paid.get() - 1);
        let mut rng = self.rng.borrow_mut();
        self.left.set(1 + rng.below(2 * self.every - 1));
        let longest = SHORTEST << rng.below(DOUBLINGS + 1);
        Some(longest / 2 + rng.below(longest))
    }

    /// Do `work`. If `open`, the task that runs may be stopped in it; else no task is.
    pub(crate) fn while_open<T>(&self, open: bool, work: impl FnOnce() -> T) -> T {
        let before = self.open.replace(open);
        let result = work();
        self.open.set(before);
        result
    }

    /// The task that runs may be stopped here. `overdue`: its CPU has passed its limit, so others must run.
    pub(crate) fn pass(&self, overdue: bool) {
        if !self.open.get() {
            return;
        }
        match self.due() {
            Some(picos) => self.leave(picos),
            None if overdue => self.leave(0),
            None => {}
        }
    }

    /// Let others run for `picos` at least; locks are kept.
    fn leave(&self, picos: u64) {
        let held = lock::switch_cpu(HeldLocks::default());
        let count = held.count();
        self.kept.set(self.kept.get() + count);
        self.stop.set(Some(picos));
        coroutine::suspend();
        self.tries.set(0);
        self.kept.set(self.kept.get() - count);
        lock::switch_cpu(held);
    }

    /// For how long the task stops that was left last, if it does. Forgets it.
    pub(crate) fn take_stop(&self) -> Option<u64> {
        self.stop.take()
    }

    /// A task waits for a lock of this kind and holds others. Where no task is stopped no other task can run, so the
    /// order does not matter.
    fn check_order(&self, held: &HeldLocks, kind: &'static str) {
        if self.open.get() {
            let noted = self.order.borrow_mut().note(held.names(), kind);
            noted.unwrap_or_else(|cycle| panic!("{cycle}"));
        }
    }

    /// The lock that the task wants is held.
    fn spin(&self) {
        let tries = self.tries.get() + 1;
        assert!(self.open.get(), "a task that cannot be stopped must not wait for a lock");
        assert!(self.kept.get() > 0 && tries < TRIES, "a lock must be released");
        self.leave(SPIN << (tries - 1).min(SPIN_DOUBLINGS));
        self.tries.set(tries);
    }

    /// Whether a stopped CPU holds a lock.
    pub(crate) fn keeps_locks(&self) -> bool {
        self.kept.get() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in which no operation ends goes on without stops, until one does.
    #[test]
    fn stops_are_paid_for_by_operations() {
        let stops = Preempt::new(2, 1);
        let stops_of = |points: u64| (0..points).filter(|_| stops.due().is_some()).count() as u64;
        assert_eq!(stops_of(4 * AT_START), AT_START);
        assert_eq!(stops_of(1000), 0);
        stops.operation_ended();
        assert_eq!(stops_of(1000), PER_OPERATION);
    }
}

//! Other CPUs in the middle of a CPU's work: looking for races in the memory manager.
//!
//! Problem: one thread of the host plays all CPUs, and goes from one to another only where a task waits or has passed
//! its limit between two accesses. So what the memory manager does between two waits, real CPUs do beside each other,
//! and the simulated ones one after the other: no run would ever meet the moment between a look and what follows from
//! it.
//!
//! Rule: with [`RunConfig::preempt`](crate::RunConfig::preempt) every call of the machine by a task (work that is
//! charged, a scope that is entered or left, a frame that is copied or zeroed, a transfer, a wake-up) is a *point*, and
//! so are the moments before a lock is taken and after it is released. At about one point in so many, as the seed has
//! it, the CPU stops for a while: its clock jumps, and the scheduler goes on with those that are now behind it, which
//! may come to points of their own. Stops are of all lengths, from one that another CPU just gets past a line in to one
//! in which it cuts a file and reclaim passes twice. At every point a CPU that has passed its limit lets the others
//! catch up, so that whoever looks on and on for what another is about to do gets it.
//!
//! *Locks are kept*, as by a CPU that runs on: what stands under one lock is not safe from who does not take it.
//! Whoever wants it spins meanwhile, a little time for each try. In which *order* kinds of locks are taken is noted,
//! and a circle stops the run: two CPUs could wait for each other there, whether or not they ever meet.
//!
//! What does not happen: another task on the *same* CPU. The memory manager is not preempted on real CPUs either
//! ([`Machine`](mm::Machine), "contract on context"): a CPU that stops keeps its task. Shootdowns come to it meanwhile;
//! the end of a transfer, which takes locks, waits until no CPU stops with one, as it waits for the kernel task that
//! tells it on the booted machine. No point is where an interrupt is answered, a CPU changes its address space, or the
//! run itself looks: all that is one step on a real CPU or none of its work.
//!
//! The clocks of such a run say nothing about speed. Everything else holds: a run is a pure function of seed,
//! configuration and commit.

mod order;

use crate::coroutine;
use crate::machine::SimMachine;
use mm::lock::{self, HeldLocks};
use order::Order;
use program::rng::Rng;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The shortest stop, in picoseconds: about what a few steps of another CPU take.
const SHORTEST: u64 = 250_000;
/// Stops are at most two to this times as long: 4 ms.
const DOUBLINGS: u64 = 14;
/// How long to wait between the first two tries of a lock, how often that doubles, so that a long wait takes few tries
/// and is at most twice as long as it has to be, and how often to try: a stop, and those that its holder makes
/// meanwhile, end before.
const SPIN: u64 = 1_000_000;
const SPIN_DOUBLINGS: u32 = 5;
const TRIES: u32 = 1_000_000;

thread_local! {
    /// When the CPUs stop that this thread plays.
    static STOPS: RefCell<Option<Rc<Preempt>>> = const { RefCell::new(None) };
}

/// When CPUs stop.
pub(crate) struct Preempt {
    /// One point in so many, on average.
    every: u64,
    rng: RefCell<Rng>,
    /// Points until the next stop.
    left: Cell<u64>,
    /// Does a task run, and may it be stopped?
    open: Cell<bool>,
    /// The task that was left stops for so many picoseconds.
    stop: Cell<Option<u64>>,
    /// Locks that CPUs hold that have stopped.
    kept: Cell<u32>,
    /// Tries in a row for a lock that is held.
    tries: Cell<u32>,
    /// In which order kinds of locks were taken.
    order: RefCell<Order>,
}

/// Locks that this thread takes for the first time while this lives are points.
pub(crate) struct Watching;

impl Watching {
    /// If there is anything to do.
    pub(crate) fn new(stops: Option<&Rc<Preempt>>) -> Option<Watching> {
        STOPS.set(Some(stops?.clone()));
        lock::watch(Some(lock::Watch { lock_point, wanted, taken }));
        Some(Watching)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        lock::watch(None);
        // Of a run that has failed, tasks were left with their locks.
        lock::switch_cpu(HeldLocks::default());
        STOPS.set(None);
    }
}

fn lock_point() {
    // A panic is on its way through who holds it.
    if !std::thread::panicking() {
        let _ = STOPS.with_borrow(Option::clone).map(|stops| stops.point());
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
    /// Stops at one point in `every` on average, as `seed` has it.
    pub(crate) fn new(every: u32, seed: u64) -> Preempt {
        Preempt {
            every: u64::from(every.max(1)),
            // Not the numbers that a program with this seed gets.
            rng: RefCell::new(Rng::new(seed ^ 0x70be_e71e_57a6_ce5d)),
            left: Cell::new(1),
            open: Cell::new(false),
            stop: Cell::new(None),
            kept: Cell::new(0),
            tries: Cell::new(0),
            order: RefCell::default(),
        }
    }

    /// How long to stop at this point, if at all.
    fn due(&self) -> Option<u64> {
        self.left.set(self.left.get() - 1);
        if self.left.get() > 0 {
            return None;
        }
        let mut rng = self.rng.borrow_mut();
        self.left.set(1 + rng.below(2 * self.every - 1));
        let longest = SHORTEST << rng.below(DOUBLINGS + 1);
        Some(longest / 2 + rng.below(longest))
    }

    /// The task that runs may be stopped here. Returns whether it was.
    fn point(&self) -> bool {
        let stop = if self.open.get() { self.due() } else { None };
        stop.inspect(|&picos| self.leave(picos)).is_some()
    }

    /// Others run for so long at least; locks are kept.
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

    /// Locks are held, and one of another kind is waited for. Where no task is stopped, nobody could meet who takes it.
    fn check_order(&self, held: &HeldLocks, kind: &'static str) {
        if self.open.get() {
            let told = self.order.borrow_mut().note(held.names(), kind);
            told.unwrap_or_else(|circle| panic!("{circle}"));
        }
    }

    /// A lock is held that is wanted.
    fn spin(&self) {
        let tries = self.tries.get() + 1;
        assert!(self.open.get(), "a lock is wanted that is held, where nobody can wait");
        assert!(self.kept.get() > 0 && tries < TRIES, "a lock is taken that is never released");
        self.leave(SPIN << (tries - 1).min(SPIN_DOUBLINGS));
        self.tries.set(tries);
    }

    /// Does a CPU hold a lock that has stopped?
    pub(crate) fn keeps_locks(&self) -> bool {
        self.kept.get() > 0
    }
}

impl SimMachine {
    /// Do `work`, during which no task is stopped, or (`open`) the one that runs may be.
    #[inline]
    pub(crate) fn stoppable<T>(&self, open: bool, work: impl FnOnce() -> T) -> T {
        let Some(stops) = &self.preempt else { return work() };
        let before = stops.open.replace(open);
        let result = work();
        stops.open.set(before);
        result
    }

    /// The task that runs may be stopped here.
    #[inline(always)]
    pub(crate) fn point(&self) {
        if let Some(stops) = self.preempt.as_deref() {
            self.pass(stops);
        }
    }

    #[cold]
    #[inline(never)]
    fn pass(&self, stops: &Preempt) {
        let since = self.here().clock.get();
        let late = stops.open.get() && since >= self.limit.get();
        if !stops.point() && late {
            stops.leave(0);
        }
        self.profiled(|profile| profile.was_away(self.here().clock.get().saturating_sub(since)));
    }

    /// The task of the current CPU was left. If it has stopped there, time passes, and it keeps its CPU.
    pub(crate) fn keep_stopped(&self) {
        if let Some(picos) = self.preempt.as_deref().and_then(|stops| stops.stop.take()) {
            self.here().spend(picos);
            self.sched.borrow_mut().keep(self.current.get());
        }
    }
}

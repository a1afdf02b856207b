//! CPUs wait for each other at the memory manager's locks.
//!
//! Problem: one host thread plays all CPUs, and the memory manager does its work under a lock before another CPU runs.
//! So no CPU ever finds a short lock held, however many share it.
//!
//! Rule: with the knob `time.contention` every lock of a class ([`LockClass`]) remembers when it was held in simulated
//! time ([`holds`]). A CPU that comes within that time waits until it is over, which is CPU time of a kind of its own;
//! a task that Linux would put to sleep sleeps. An attempt to take a lock fails within that time. What the lock guards
//! is what it is on the host: a CPU that waits sees what those have done that ran before it.
//!
//! Under `preempt` clocks mean nothing, and locks are really held; there is no waiting by time then.

mod holds;
mod kind;
mod lines;

use crate::cpu::{Class, Cpu, add};
use crate::profile::{Kind, Profiler};
use crate::spec::Costs;
use holds::{Arrival, Held, Holds};
pub(crate) use kind::LineKind;
pub use lines::LineOutcome;
use lines::Lines;
use mm::lock::{self, HoldMode, LockClass, LockClock, LockHold, Since};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

thread_local! {
    /// What keeps the times of the locks of this thread's run.
    static WAITING: RefCell<Option<Rc<Waiting>>> = const { RefCell::new(None) };
}

/// No history: one CPU alone has had the lock.
const ALONE: u32 = u32::MAX;
/// No CPU has had the lock.
const UNHELD: u32 = u32::MAX;

/// The CPU that has a lock, and how, in one word.
fn word(cpu: usize, class: Class, shared: bool) -> u32 {
    cpu as u32 | (class as u32) << 16 | u32::from(shared) << 24
}

/// The CPU of such a word.
fn cpu_of(word: u32) -> u16 {
    word as u16
}

/// What happened at the locks of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockTally {
    /// How often they were taken.
    pub taken: u64,
    /// How often somebody waited.
    pub contended: u64,
    /// Picoseconds of waiting, spinning or asleep.
    pub waited: u64,
    /// The longest wait.
    pub longest: u64,
    /// Picoseconds for which they were held.
    pub held: u64,
}

/// What happened at the locks of a class, and who had them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockOutcome {
    /// The class.
    pub class: LockClass,
    /// Numbers.
    pub tally: LockTally,
    /// Picoseconds of waiting by the function that had the lock, if there is a profile.
    pub holders: Vec<(&'static str, u64)>,
}

/// Picoseconds of waiting by the place in the profile where the lock was held.
type Blame = Vec<(u32, u64)>;

/// The numbers of a [`LockTally`] while they grow.
#[derive(Default)]
struct Counts {
    taken: Cell<u64>,
    contended: Cell<u64>,
    waited: Cell<u64>,
    longest: Cell<u64>,
    held: Cell<u64>,
}

/// Keeps the times of a run's locks.
pub(crate) struct Waiting {
    cpus: Rc<[Cpu]>,
    lines: Lines,
    profile: Option<Rc<Profiler>>,
    /// The current CPU, and what its time is accounted to.
    current: Cell<usize>,
    class: Cell<Class>,
    /// No CPU comes before this time any more.
    horizon: Cell<u64>,
    /// Whether time does not count.
    muted: Cell<bool>,
    histories: RefCell<Vec<Holds>>,
    tallies: [Counts; LockClass::COUNT],
    blames: RefCell<[Blame; LockClass::COUNT]>,
}

/// While this lives, locks that this thread takes for the first time have times.
pub(crate) struct WaitingGuard;

impl WaitingGuard {
    pub(crate) fn new(waiting: Option<&Rc<Waiting>>) -> Option<WaitingGuard> {
        WAITING.set(Some(waiting?.clone()));
        lock::clock(Some(LockClock { acquire, is_free, release }));
        Some(WaitingGuard)
    }
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        lock::clock(None);
        WAITING.set(None);
    }
}

/// Ask what keeps the times; `None` if they do not count.
fn ask<T>(what: impl FnOnce(&Waiting) -> T) -> Option<T> {
    WAITING.with_borrow(|waiting| waiting.as_deref().filter(|waiting| !waiting.muted.get()).map(what))
}

fn acquire(hold: &LockHold, mode: HoldMode, sleeps: bool) -> Since {
    ask(|waiting| waiting.acquire(hold, mode, sleeps)).unwrap_or(Since::MAX)
}

fn is_free(hold: &LockHold, mode: HoldMode) -> bool {
    ask(|waiting| waiting.is_free(hold, mode)).unwrap_or(true)
}

fn release(hold: &LockHold, mode: HoldMode, since: Since) {
    // A hold that began while time did not count has no beginning.
    if since != Since::MAX {
        ask(|waiting| waiting.release(hold, mode, since));
    }
}

impl Waiting {
    /// For CPUs that share the records of `frames` frames.
    pub(crate) fn new(
        cpus: Rc<[Cpu]>,
        frames: usize,
        costs: &Costs,
        profile: Option<Rc<Profiler>>,
    ) -> Waiting {
        Waiting {
            lines: Lines::new(|line| costs.hardware(line), frames),
            cpus,
            profile,
            current: Cell::new(0),
            class: Cell::new(Class::System),
            horizon: Cell::new(0),
            muted: Cell::new(false),
            histories: RefCell::default(),
            tallies: Default::default(),
            blames: RefCell::default(),
        }
    }

    /// `cpu`, whose clock is the earliest of those that run, begins to run.
    pub(crate) fn begin_turn(&self, cpu: usize, class: Class) {
        self.go_on(cpu, class);
        self.horizon.set(self.cpus[cpu].clock.get());
    }

    /// `cpu` becomes the current one.
    pub(crate) fn go_on(&self, cpu: usize, class: Class) {
        self.current.set(cpu);
        self.class.set(class);
    }

    /// Whether time does not count from now on.
    pub(crate) fn mute(&self, muted: bool) {
        self.muted.set(muted);
    }

    /// What happened at the locks of all classes.
    pub(crate) fn outcomes(&self) -> Vec<LockOutcome> {
        LockClass::ALL.iter().map(|&class| self.outcome(class)).collect()
    }

    /// The lines that came from other CPUs, of all kinds.
    pub(crate) fn lines(&self) -> Vec<LineOutcome> {
        self.lines.outcomes().collect()
    }

    fn outcome(&self, class: LockClass) -> LockOutcome {
        let mut holders: Vec<(&'static str, u64)> = Vec::new();
        for &(place, waited) in &self.blames.borrow()[class as usize] {
            let Some(name) = self.profile.as_ref().map(|profile| profile.name_of(place)) else { break };
            match holders.iter_mut().find(|(other, _)| *other == name) {
                Some((_, sum)) => *sum += waited,
                None => holders.push((name, waited)),
            }
        }
        let Counts { taken, contended, waited, longest, held } = &self.tallies[class as usize];
        let tally = LockTally {
            taken: taken.get(),
            contended: contended.get(),
            waited: waited.get(),
            longest: longest.get(),
            held: held.get(),
        };
        LockOutcome { class, tally, holders }
    }

    /// The CPU that had the lock before, if the current CPU finds it free as its last hold tells; `None`: its history
    /// must tell.
    #[inline]
    fn find_free(&self, hold: &LockHold, now: u64) -> Option<Option<u16>> {
        let by = hold.by.get();
        let alone = hold.history.get() == ALONE && cpu_of(by) == self.current.get() as u16;
        (hold.until.get() <= now || alone).then(|| (by != UNHELD).then(|| cpu_of(by)))
    }

    /// Call `then` with what the current CPU finds at the lock, by the lock's history.
    fn arrive<T>(&self, hold: &LockHold, mode: HoldMode, then: impl FnOnce(Arrival<'_>) -> T) -> T {
        if hold.history.get() == ALONE {
            self.note_first(hold);
        }
        let (now, me) = (self.cpus[self.current.get()].clock.get(), self.current.get() as u16);
        let histories = self.histories.borrow();
        then(histories[hold.history.get() as usize].wait(now, me, mode == HoldMode::Shared))
    }

    fn is_free(&self, hold: &LockHold, mode: HoldMode) -> bool {
        self.find_free(hold, self.cpus[self.current.get()].clock.get()).is_some()
            || self.arrive(hold, mode, |arrival| arrival.waited.is_none())
    }

    /// Begin the history of a lock with its last hold.
    #[cold]
    fn note_first(&self, hold: &LockHold) {
        let mut histories = self.histories.borrow_mut();
        hold.history.set(histories.len() as u32);
        let mut holds = Holds::default();
        let by = hold.by.get();
        if by != UNHELD {
            let class = Class::ALL[(by >> 16) as usize % Class::ALL.len()];
            let (start, end, cpu, shared) = (hold.began.get(), hold.until.get(), cpu_of(by), by >> 24 != 0);
            let held = Held { start, end, cpu, shared, class, place: class as u32, delayed: false };
            holds.add(held, 0, |_, _| {});
        }
        histories.push(holds);
    }

    fn acquire(&self, hold: &LockHold, mode: HoldMode, sleeps: bool) -> Since {
        let now = self.cpus[self.current.get()].clock.get();
        add(&self.tallies[hold.class as usize].taken, 1);
        let (free, before) = match self.find_free(hold, now) {
            Some(before) => (now, before),
            None => self.arrive(hold, mode, |Arrival { at, waited, before }| {
                if let Some(waited) = waited {
                    self.wait(hold.class, (at - now, waited.place), sleeps);
                }
                (at, before)
            }),
        };
        if let Some(before) = before.filter(|&before| usize::from(before) != self.current.get()) {
            self.fetch_lock(hold.class, before);
        }
        free
    }

    /// The current CPU waits for a hold at `place`.
    fn wait(&self, class: LockClass, (wait, place): (u64, u32), sleeps: bool) {
        self.note_wait(class, wait, place, true);
        if !sleeps {
            self.cpus[self.current.get()].spend_kernel(self.class.get(), wait);
            if let Some(profile) = &self.profile {
                profile.note(Kind::LockWait(class), 1, wait);
            }
        }
    }

    /// A hold of a lock waits, for the first time or longer than was known.
    fn note_wait(&self, class: LockClass, wait: u64, place: u32, first: bool) {
        let counts = &self.tallies[class as usize];
        add(&counts.contended, u64::from(first));
        add(&counts.waited, wait);
        counts.longest.set(counts.longest.get().max(wait));
        let blame = &mut self.blames.borrow_mut()[class as usize];
        match blame.iter_mut().find(|(other, _)| *other == place) {
            Some((_, sum)) => *sum += wait,
            None => blame.push((place, wait)),
        }
    }

    fn release(&self, hold: &LockHold, mode: HoldMode, since: Since) {
        let now = self.cpus[self.current.get()].clock.get();
        let me = word(self.current.get(), self.class.get(), mode == HoldMode::Shared);
        if now <= since {
            return;
        }
        add(&self.tallies[hold.class as usize].held, now - since);
        if hold.history.get() != ALONE || (hold.by.get() != UNHELD && cpu_of(hold.by.get()) != cpu_of(me)) {
            self.note_hold(hold, mode, (since, now));
        }
        hold.began.set(since);
        hold.by.set(me);
        hold.until.set(now.max(hold.until.get()));
    }

    #[inline(never)]
    fn note_hold(&self, hold: &LockHold, mode: HoldMode, (start, end): (u64, u64)) {
        if hold.history.get() == ALONE {
            self.note_first(hold);
        }
        let cpu = self.current.get() as u16;
        let place = self.profile.as_ref().map_or(0, |profile| profile.place());
        let (shared, class) = (mode == HoldMode::Shared, self.class.get());
        let held = Held { start, end, cpu, shared, class, place, delayed: false };
        let holds = &mut self.histories.borrow_mut()[hold.history.get() as usize];
        let last = holds.add(held, self.horizon.get(), |victim, wait| {
            self.cpus[victim.cpu as usize].spend_kernel(victim.class, wait);
            self.note_wait(hold.class, wait, place, !victim.delayed);
            if let Some(profile) = &self.profile {
                profile.note_at(victim.place, Kind::LockWait(hold.class), wait);
            }
        });
        hold.until.set(last.max(hold.until.get()));
    }
}

#[cfg(test)]
mod tests;

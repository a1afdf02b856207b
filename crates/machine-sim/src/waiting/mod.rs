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
use holds::{Arrival, Held, Holder, Holds};
pub(crate) use kind::LineKind;
pub use lines::LineOutcome;
use lines::Lines;
use mm::lock::{HoldMode, LockClass, LockClock, LockHold, Since};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// No history: one CPU alone has had the lock.
const ALONE: u32 = u32::MAX;
/// No CPU has had the lock.
const UNHELD: u32 = u32::MAX;

/// The CPU that is noted with a lock; none if it is [`UNHELD`].
#[inline(always)]
fn cpu_of(word: u32) -> u16 {
    Holder::of(word).cpu()
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
    /// Both, as they are noted with a lock.
    holder: Cell<Holder>,
    /// No CPU comes before this time any more.
    horizon: Cell<u64>,
    /// Whether time does not count.
    muted: Cell<bool>,
    histories: RefCell<Vec<Holds>>,
    tallies: [Counts; LockClass::COUNT],
    blames: RefCell<[Blame; LockClass::COUNT]>,
}

// SAFETY: the guard of the clock belongs to the function that carries out the run, which nothing here ends.
unsafe impl LockClock for Waiting {
    fn acquire(&self, hold: &LockHold, mode: HoldMode, sleeps: bool) -> Since {
        self.begin(hold, mode, sleeps)
    }

    fn is_free(&self, hold: &LockHold, mode: HoldMode) -> bool {
        let (me, now) = self.me();
        self.muted.get()
            || hold.until.get() <= now
            || hold.history.get() == ALONE && cpu_of(hold.by.get()) == me
            || self.arrive(hold, (me, now), mode, |arrival| arrival.waited.is_none())
    }

    fn release(&self, hold: &LockHold, mode: HoldMode, since: Since) {
        self.end(hold, mode, since);
    }

    fn pause(&self, hold: &LockHold, mode: HoldMode, since: Since, charge: &mut dyn FnMut()) -> Since {
        self.end(hold, mode, since);
        charge();
        self.begin(hold, mode, false)
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
            holder: Cell::new(Holder::new(0, Class::System)),
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
        self.holder.set(Holder::new(cpu, class));
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

    /// The current CPU and its clock.
    #[inline(always)]
    fn me(&self) -> (u16, u64) {
        let me = self.current.get();
        (me as u16, self.cpus[me].clock.get())
    }

    /// The current CPU takes the lock.
    #[inline(always)]
    fn begin(&self, hold: &LockHold, mode: HoldMode, sleeps: bool) -> Since {
        if self.muted.get() {
            return Since::MAX;
        }
        let (me, now) = self.me();
        add(&self.tallies[hold.class as usize].taken, 1);
        if cpu_of(hold.by.get()) == me && (hold.until.get() <= now || hold.history.get() == ALONE) {
            return now;
        }
        self.come(hold, (me, now), mode, sleeps)
    }

    /// The same if another CPU has had it, or will have had it.
    #[inline(never)]
    fn come(&self, hold: &LockHold, (me, now): (u16, u64), mode: HoldMode, sleeps: bool) -> Since {
        let (free, before) = if hold.until.get() <= now {
            let by = hold.by.get();
            (now, (by != UNHELD).then(|| cpu_of(by)))
        } else {
            self.arrive(hold, (me, now), mode, |Arrival { at, waited, before }| {
                if let Some(waited) = waited {
                    self.wait(hold.class, (at - now, waited.place), sleeps);
                }
                (at, before)
            })
        };
        if let Some(before) = before.filter(|&before| before != me) {
            self.fetch_lock(hold.class, before);
        }
        free
    }

    /// The current CPU releases the lock.
    #[inline(always)]
    fn end(&self, hold: &LockHold, mode: HoldMode, since: Since) {
        let (me, now) = self.me();
        // A hold that began while time did not count has no beginning, and ends before it.
        if now <= since || self.muted.get() {
            return;
        }
        add(&self.tallies[hold.class as usize].held, now - since);
        let by = self.holder.get().shares(mode == HoldMode::Shared);
        let history = hold.history.get();
        if history == ALONE && (cpu_of(hold.by.get()) == me || hold.by.get() == UNHELD) {
            hold.began.set(since);
        } else {
            let place = self.profile.as_ref().map_or(0, |profile| profile.place());
            let held = Held { start: since, end: now, by, place };
            let noted = match self.histories.borrow_mut().get_mut(history as usize) {
                Some(holds) => holds.push(held, self.horizon.get()),
                None => false,
            };
            if !noted {
                return self.note_hold(hold, &held);
            }
        }
        hold.by.set(by.word());
        hold.until.set(now.max(hold.until.get()));
    }

    /// Call `then` with what the current CPU, `me`, finds at the lock at `now`, by the lock's history.
    #[inline(always)]
    fn arrive<T>(
        &self,
        hold: &LockHold,
        (me, now): (u16, u64),
        mode: HoldMode,
        then: impl FnOnce(Arrival<'_>) -> T,
    ) -> T {
        if hold.history.get() == ALONE {
            self.note_first(hold);
        }
        let histories = &mut self.histories.borrow_mut();
        then(histories[hold.history.get() as usize].wait(now, me, mode == HoldMode::Shared))
    }

    /// Begin the history of a lock with its last hold.
    #[cold]
    fn note_first(&self, hold: &LockHold) {
        let mut histories = self.histories.borrow_mut();
        hold.history.set(histories.len() as u32);
        let mut holds = Holds::default();
        let by = hold.by.get();
        if by != UNHELD {
            let by = Holder::of(by);
            let held = Held { start: hold.began.get(), end: hold.until.get(), by, place: by.class() as u32 };
            holds.add(held, 0, |_, _| {});
        }
        histories.push(holds);
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
        if self.profile.is_none() {
            return;
        }
        let blame = &mut self.blames.borrow_mut()[class as usize];
        match blame.iter_mut().find(|(other, _)| *other == place) {
            Some((_, sum)) => *sum += wait,
            None => blame.push((place, wait)),
        }
    }

    /// Note a hold of a lock that has no history yet, or has holds that began later.
    #[inline(never)]
    fn note_hold(&self, hold: &LockHold, held: &Held) {
        if hold.history.get() == ALONE {
            self.note_first(hold);
        }
        let holds = &mut self.histories.borrow_mut()[hold.history.get() as usize];
        let last = holds.add(*held, self.horizon.get(), |victim, wait| {
            self.cpus[usize::from(victim.by.cpu())].spend_kernel(victim.by.class(), wait);
            self.note_wait(hold.class, wait, held.place, !victim.by.is_delayed());
            if let Some(profile) = &self.profile {
                profile.note_at(victim.place, Kind::LockWait(hold.class), wait);
            }
        });
        hold.by.set(held.by.word());
        hold.until.set(held.end.max(hold.until.get()).max(last));
    }
}

#[cfg(test)]
mod tests;

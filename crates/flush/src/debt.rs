//! Debts, and the places where they are kept.
//!
//! A debt is a set of CPUs and a generation: each of these CPUs may hold a translation whose entry was cleared before
//! the generation was drawn. Generations are 64 bits wide, are drawn from one counter, and never wrap. A CPU is
//! *done* with a debt after it has caught up with its space at a moment when the counter was at the debt's generation
//! or later.
//!
//! Debts in one place ([`Domain`]) are joined: the CPUs of all of them, the newest generation. A CPU that only owes
//! for the older debt and is done with it is dropped when the newer one is joined, so a sum never asks more of a CPU
//! than what it owed at the last join.

use base::cpus::CpuSet;
use base::lock::Lock;
use base::primitive::{Ordering::*, modelled::AtomicBool};
use base::units::*;

/// The bits of a generation that make a tag. Few in models, so that tags wrap.
const TAG_MASK: u64 =
    if cfg!(any(feature = "loom", feature = "shuttle")) { 0b111 } else { WITH_BATCH as u64 - 1 };

/// The tag of a frame of which references were dropped while the batch that unmapped it owed: no zone knows of the
/// debt.
pub(crate) const WITH_BATCH: u32 = 1 << 31;

/// A moment in the order of all clearings and catchings-up.
///
/// ```
/// # use pagefold_flush::Generation;
/// let newest = Generation(9);
/// assert!(Generation::NONE < newest);
/// assert_eq!(Generation::of_tag(Generation(7).tag(), newest), Generation(7));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Generation(pub u64);

impl Generation {
    /// Before all debts: owes nothing.
    pub const NONE: Generation = Generation(0);

    /// The part that fits into a frame's record: the low bits, which are never all 0.
    #[inline]
    pub const fn tag(self) -> u32 {
        (self.0 & TAG_MASK) as u32
    }

    /// The newest generation up to `newest` that has this tag. A generation whose tag has been reused since counts as
    /// newer than it is, which costs a payment and forgets no debt.
    #[inline]
    pub const fn of_tag(tag: u32, newest: Generation) -> Generation {
        Generation(newest.0.saturating_sub(newest.0.wrapping_sub(tag as u64) & TAG_MASK))
    }
}

/// CPUs that must catch up, and with what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Debt {
    /// CPUs that may hold stale translations.
    pub cpus: CpuSet,
    /// Drawn after the last of their entries was cleared.
    pub generation: Generation,
}

impl Debt {
    /// Add another debt. `done`: the generation up to which a CPU is done.
    pub fn join(&mut self, new: &Debt, done: impl Fn(CpuId) -> Generation) {
        // The same CPUs again, later: by far the most common case.
        if new.generation >= self.generation && self.cpus.is_within(&new.cpus) {
            *self = *new;
            return;
        }
        let (older, newer) = if new.generation < self.generation { (*new, *self) } else { (*self, *new) };
        *self = newer;
        for cpu in older.cpus.without(&newer.cpus).iter() {
            if done(cpu) < older.generation {
                self.cpus.insert(cpu);
            }
        }
    }
}

/// A joined debt, and the time of its oldest part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sum {
    /// The debt.
    pub debt: Debt,
    /// When its oldest part was left.
    pub since: Nanos,
}

/// A place where debts are kept: a space, a file, the free frames of a zone.
#[derive(Default)]
pub struct Domain {
    /// Whether there is a debt. Read without the lock by callers whose own locks keep new debts away.
    owes: AtomicBool,
    sum: Lock<Option<Sum>>,
}

impl Domain {
    /// Add a debt. `arrive` may change it first, while the domain cannot change.
    pub fn join(
        &self,
        debt: &mut Debt,
        now: Nanos,
        done: impl Fn(CpuId) -> Generation,
        arrive: impl FnOnce(&mut Debt),
    ) {
        let mut sum = self.sum.lock();
        arrive(debt);
        match &mut *sum {
            Some(sum) => sum.debt.join(debt, done),
            None => *sum = Some(Sum { debt: *debt, since: now }),
        }
        self.owes.store(true, Release);
    }

    /// Whether there is a debt, without looking at the CPUs' progress.
    #[inline]
    pub fn owes(&self) -> bool {
        self.owes.load(Acquire)
    }

    /// The debt.
    pub fn read(&self) -> Option<Sum> {
        *self.sum.lock()
    }

    /// Run `then`, while the domain cannot change, if no debt was joined since `debt` was read. An older generation
    /// that was drawn before and arrives late counts, too: its CPUs may be others.
    pub fn if_unchanged<R>(&self, debt: &Debt, then: impl FnOnce() -> R) {
        let sum = self.sum.lock();
        if sum.is_some_and(|sum| sum.debt == *debt) {
            then();
        }
    }

    /// The debt that was read has been paid: as [`Domain::if_unchanged`], and clear it.
    pub fn forget<R>(&self, paid: &Debt, then: impl FnOnce() -> R) {
        self.forget_if(|debt| debt == paid, then);
    }

    pub fn forget_if<R>(&self, is_paid: impl FnOnce(&Debt) -> bool, then: impl FnOnce() -> R) {
        let mut sum = self.sum.lock();
        if sum.is_some_and(|sum| is_paid(&sum.debt)) {
            *sum = None;
            self.owes.store(false, Release);
            then();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[u16]) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        cpus.iter().for_each(|&cpu| set.insert(CpuId(cpu)));
        set
    }

    fn debt(cpus: &[u16], generation: u64) -> Debt {
        Debt { cpus: set(cpus), generation: Generation(generation) }
    }

    #[test]
    fn a_sum_never_loses_a_cpu_that_is_not_done() {
        let done = |cpu: CpuId| Generation([9, 3, 5, 0][cpu.index()]);
        let mut sum = debt(&[0, 1, 2], 5);
        sum.join(&debt(&[2, 3], 8), done);
        // CPU 0 is done with 5, CPU 1 is not; CPU 2 now owes for 8.
        assert_eq!(sum, debt(&[1, 2, 3], 8));
    }

    #[test]
    fn a_late_arrival_of_an_older_debt_keeps_the_newer_generation() {
        let mut sum = debt(&[1], 8);
        sum.join(&debt(&[0, 1, 2], 5), |cpu| Generation(if cpu.0 == 2 { 6 } else { 0 }));
        assert_eq!(sum, debt(&[0, 1], 8));
    }

    fn join(domain: &Domain, debt: Debt, now: Nanos) {
        domain.join(&mut debt.clone(), now, |_| Generation(0), |_| ());
    }

    #[test]
    fn an_older_generation_that_arrives_late_is_not_forgotten() {
        let domain = Domain::default();
        join(&domain, debt(&[1], 5), 0);
        let read = domain.read().unwrap();
        join(&domain, debt(&[2], 4), 0);
        let unreachable = || panic!("the debt must be unchanged");
        domain.if_unchanged(&read.debt, unreachable);
        domain.forget(&read.debt, unreachable);
        assert!(domain.owes());
    }

    #[test]
    fn a_debt_that_arrives_during_a_payment_is_not_forgotten() {
        let domain = Domain::default();
        join(&domain, debt(&[1], 5), 100);
        let read = domain.read().unwrap();
        join(&domain, debt(&[2], 6), 200);
        domain.forget(&read.debt, || ());
        assert!(domain.owes());
        assert_eq!(domain.read(), Some(Sum { debt: debt(&[1, 2], 6), since: 100 }));
        domain.forget(&debt(&[1, 2], 6), || ());
        assert!(!domain.owes());
    }
}

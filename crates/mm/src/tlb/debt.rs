//! What a debt is, and the places where debts lie.
//!
//! A debt is a set of CPUs and a generation: each of these CPUs may hold a translation that was taken away before the
//! generation was drawn. Generations are 64 bits wide, are drawn from one counter, and never wrap. A CPU is *done* with a
//! debt once it has caught up with its space at a moment when the counter stood at the debt's generation or later.
//!
//! Debts that lie in one place ([`Domain`]) are added up: the CPUs of all, the newest generation. A CPU that was only in
//! an older one and is done with that is dropped when the newer one is added, so a sum never asks a CPU for more than what
//! it owed when it was last added.

use crate::lock::Lock;
use crate::machine::CpuSet;
use crate::primitive::{Ordering::*, modelled::AtomicBool};
use crate::units::*;

/// A moment in the order of all takings-away and catchings-up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Generation(pub u64);

/// CPUs that must catch up, and since when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Debt {
    /// CPUs that may hold what was taken away.
    pub cpus: CpuSet,
    /// Drawn after the newest of it was taken away.
    pub generation: Generation,
}

impl Debt {
    /// Add another debt. `done`: the generation that a CPU has caught up with.
    pub fn join(&mut self, new: &Debt, done: impl Fn(CpuId) -> Generation) {
        let (older, newer) = if new.generation < self.generation { (*new, *self) } else { (*self, *new) };
        *self = newer;
        for cpu in older.cpus.without(&newer.cpus).iter() {
            if done(cpu) < older.generation {
                self.cpus.insert(cpu);
            }
        }
    }
}

/// A sum of debts, and when the oldest of them was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sum {
    pub debt: Debt,
    pub since: Nanos,
}

/// A place where debts lie: a space, a file, a zone's free frames.
#[derive(Default)]
pub(super) struct Domain {
    /// Is there a debt? Read without the lock by those whose own locks keep new debts away.
    owes: AtomicBool,
    sum: Lock<Option<Sum>>,
}

impl Domain {
    /// Add a debt. Returns what `under` does while the domain cannot change.
    pub fn join<R>(
        &self,
        debt: &Debt,
        now: Nanos,
        done: impl Fn(CpuId) -> Generation,
        under: impl FnOnce() -> R,
    ) -> R {
        let mut sum = self.sum.lock();
        match &mut *sum {
            Some(sum) => sum.debt.join(debt, done),
            None => *sum = Some(Sum { debt: *debt, since: now }),
        }
        self.owes.store(true, Release);
        under()
    }

    /// Is something owed, as far as is known without looking at CPUs?
    #[inline]
    pub fn owes(&self) -> bool {
        self.owes.load(Acquire)
    }

    /// What is owed. `under` runs while the domain cannot change.
    pub fn read<R>(&self, under: impl FnOnce() -> R) -> (Option<Sum>, R) {
        let sum = self.sum.lock();
        (*sum, under())
    }

    /// What was read has been paid. It stays if anything came meanwhile, be it an older generation that was drawn before
    /// and arrives late: its CPUs may be others.
    pub fn forget(&self, paid: &Debt) {
        self.forget_if(|debt| debt == paid);
    }

    pub(super) fn forget_if(&self, is_paid: impl FnOnce(&Debt) -> bool) {
        let mut sum = self.sum.lock();
        if sum.is_some_and(|sum| is_paid(&sum.debt)) {
            *sum = None;
            self.owes.store(false, Release);
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
        // 0 is done with 5, 1 is not; 2 now owes 8.
        assert_eq!(sum, debt(&[1, 2, 3], 8));
    }

    #[test]
    fn a_late_arrival_of_an_older_debt_keeps_the_newer_generation() {
        let mut sum = debt(&[1], 8);
        sum.join(&debt(&[0, 1, 2], 5), |cpu| Generation(if cpu.0 == 2 { 6 } else { 0 }));
        assert_eq!(sum, debt(&[0, 1], 8));
    }

    #[test]
    fn an_older_generation_that_arrives_late_is_not_forgotten() {
        let domain = Domain::default();
        let none_done = |_| Generation(0);
        domain.join(&debt(&[1], 5), 0, none_done, || ());
        let (read, ()) = domain.read(|| ());
        domain.join(&debt(&[2], 4), 0, none_done, || ());
        domain.forget(&read.unwrap().debt);
        assert!(domain.owes());
    }

    #[test]
    fn what_comes_while_a_payment_is_under_way_is_not_forgotten() {
        let domain = Domain::default();
        let none_done = |_| Generation(0);
        domain.join(&debt(&[1], 5), 100, none_done, || ());
        let (read, ()) = domain.read(|| ());
        domain.join(&debt(&[2], 6), 200, none_done, || ());
        domain.forget(&read.unwrap().debt);
        assert!(domain.owes());
        assert_eq!(domain.read(|| ()).0, Some(Sum { debt: debt(&[1, 2], 6), since: 100 }));
        domain.forget(&debt(&[1, 2], 6));
        assert!(!domain.owes());
    }
}

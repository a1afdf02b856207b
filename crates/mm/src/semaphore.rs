//! A sleeping lock for many readers or one writer. Each kind has its own [`WaitKey`].

use crate::lock::{HoldMode, LockClass, LockTimes, Since};
use crate::machine::{Machine, WaitKey};
use crate::primitive::{AtomicI64, Ordering::*};

/// Number of readers; -1 for a writer, 0 if free.
pub(crate) struct Semaphore {
    state: AtomicI64,
    /// Waiting writers. New readers queue behind them, or mmap would starve in a busy space.
    writers: AtomicI64,
    /// Tasks that wait or are about to; without any, a release wakes no task.
    waiters: AtomicI64,
    times: LockTimes,
}

/// Releases the semaphore when dropped.
pub(crate) struct SemaphoreGuard<'a, M: Machine> {
    semaphore: &'a Semaphore,
    machine: &'a M,
    key: WaitKey,
    by: i64,
    mode: HoldMode,
    since: Since,
}

impl Semaphore {
    /// A free semaphore.
    pub const fn new(class: LockClass) -> Semaphore {
        Semaphore {
            state: AtomicI64::new(0),
            writers: AtomicI64::new(0),
            waiters: AtomicI64::new(0),
            times: LockTimes::of(class),
        }
    }

    pub fn read<'a, M: Machine>(&'a self, machine: &'a M, key: WaitKey) -> SemaphoreGuard<'a, M> {
        self.acquire(machine, key, || self.take_shared());
        self.guard(machine, key, HoldMode::Shared)
    }

    /// Take it for reading, where Linux takes another lock that writers of this one seldom hold.
    pub(crate) fn read_unseen<'a, M: Machine>(
        &'a self,
        machine: &'a M,
        key: WaitKey,
    ) -> SemaphoreGuard<'a, M> {
        self.acquire(machine, key, || self.take_shared());
        self.guard(machine, key, HoldMode::Unseen)
    }

    /// The semaphore was taken. In simulated time others may still hold it: the task waits for them.
    #[inline]
    fn guard<'a, M: Machine>(
        &'a self,
        machine: &'a M,
        key: WaitKey,
        mode: HoldMode,
    ) -> SemaphoreGuard<'a, M> {
        let (since, until) = self.times.acquire_asleep(mode);
        if let Some(until) = until.filter(|&until| until > machine.now()) {
            machine.wait(machine.ticket(WaitKey::Timer), Some(until));
        }
        let by = if mode == HoldMode::Alone { -1 } else { 1 };
        SemaphoreGuard { semaphore: self, machine, key, by, mode, since }
    }

    /// Take it for reading, unless a writer holds it or waits for it.
    pub fn try_read<'a, M: Machine>(&'a self, machine: &'a M, key: WaitKey) -> Option<SemaphoreGuard<'a, M>> {
        (self.times.is_free(HoldMode::Shared) && self.take_shared())
            .then(|| self.guard(machine, key, HoldMode::Shared))
    }

    fn take_shared(&self) -> bool {
        let readers = self.state.load(SeqCst);
        readers >= 0
            && self.writers.load(SeqCst) == 0
            && self.state.compare_exchange(readers, readers + 1, SeqCst, SeqCst).is_ok()
    }

    pub fn write<'a, M: Machine>(&'a self, machine: &'a M, key: WaitKey) -> SemaphoreGuard<'a, M> {
        let free = || self.state.compare_exchange(0, -1, SeqCst, SeqCst).is_ok();
        if !free() {
            self.writers.fetch_add(1, AcqRel);
            self.acquire(machine, key, free);
            self.writers.fetch_sub(1, AcqRel);
        }
        self.guard(machine, key, HoldMode::Alone)
    }

    /// Take it for writing, if it is free.
    pub(crate) fn try_write<'a, M: Machine>(
        &'a self,
        machine: &'a M,
        key: WaitKey,
    ) -> Option<SemaphoreGuard<'a, M>> {
        let free =
            self.times.is_free(HoldMode::Alone) && self.state.compare_exchange(0, -1, SeqCst, SeqCst).is_ok();
        // Not `then_some`: dropping the guard would release a semaphore that was not taken.
        free.then(|| self.guard(machine, key, HoldMode::Alone))
    }

    fn acquire<M: Machine>(&self, machine: &M, key: WaitKey, mut try_once: impl FnMut() -> bool) {
        if !try_once() {
            self.acquire_slowly(machine, key, &mut try_once);
        }
    }

    /// A waiter announces itself before its last try, and a releaser checks for waiters after its release, so one of
    /// them sees the other.
    #[cold]
    fn acquire_slowly<M: Machine>(&self, machine: &M, key: WaitKey, try_once: &mut dyn FnMut() -> bool) {
        self.waiters.fetch_add(1, SeqCst);
        loop {
            let ticket = machine.ticket(key);
            if try_once() {
                break;
            }
            machine.wait(ticket, None);
        }
        self.waiters.fetch_sub(1, SeqCst);
    }
}

impl<M: Machine> Drop for SemaphoreGuard<'_, M> {
    fn drop(&mut self) {
        self.semaphore.times.release_since(self.mode, self.since);
        let last = self.semaphore.state.fetch_sub(self.by, SeqCst) == self.by;
        if last && self.semaphore.waiters.load(SeqCst) != 0 {
            self.machine.wake(self.key);
        }
    }
}

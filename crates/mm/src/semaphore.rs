//! A lock that sleeps: many readers or one writer. Each kind of use has its own [`WaitKey`].

use crate::machine::{Machine, WaitKey};
use crate::primitive::{AtomicI64, Ordering::*};

/// Held by n readers (n), by a writer (-1), by nobody (0).
#[derive(Default)]
pub struct Semaphore {
    state: AtomicI64,
    /// Writers that wait: new readers let them go first, or a busy space would never be mapped into.
    writers: AtomicI64,
    /// Tasks that wait, or are about to: nobody else need be woken.
    waiters: AtomicI64,
}

/// The semaphore is held until this is dropped.
pub struct SemaphoreGuard<'a, M: Machine> {
    semaphore: &'a Semaphore,
    machine: &'a M,
    key: WaitKey,
    by: i64,
}

impl Semaphore {
    /// Hold it together with other readers.
    pub fn read<'a, M: Machine>(&'a self, machine: &'a M, key: WaitKey) -> SemaphoreGuard<'a, M> {
        self.acquire(machine, key, || self.take_shared());
        SemaphoreGuard { semaphore: self, machine, key, by: 1 }
    }

    /// Hold it together with other readers, if nobody holds it alone or waits for that.
    pub fn try_read<'a, M: Machine>(&'a self, machine: &'a M, key: WaitKey) -> Option<SemaphoreGuard<'a, M>> {
        self.take_shared().then(|| SemaphoreGuard { semaphore: self, machine, key, by: 1 })
    }

    fn take_shared(&self) -> bool {
        let readers = self.state.load(SeqCst);
        readers >= 0
            && self.writers.load(SeqCst) == 0
            && self.state.compare_exchange(readers, readers + 1, SeqCst, SeqCst).is_ok()
    }

    /// Hold it alone.
    pub fn write<'a, M: Machine>(&'a self, machine: &'a M, key: WaitKey) -> SemaphoreGuard<'a, M> {
        let free = || self.state.compare_exchange(0, -1, SeqCst, SeqCst).is_ok();
        if !free() {
            self.writers.fetch_add(1, AcqRel);
            self.acquire(machine, key, free);
            self.writers.fetch_sub(1, AcqRel);
        }
        SemaphoreGuard { semaphore: self, machine, key, by: -1 }
    }

    /// Hold it alone, if nobody holds it.
    pub fn try_write<'a, M: Machine>(
        &'a self,
        machine: &'a M,
        key: WaitKey,
    ) -> Option<SemaphoreGuard<'a, M>> {
        let free = self.state.compare_exchange(0, -1, SeqCst, SeqCst).is_ok();
        // Not made in vain: dropping it releases.
        free.then(|| SemaphoreGuard { semaphore: self, machine, key, by: -1 })
    }

    fn acquire<M: Machine>(&self, machine: &M, key: WaitKey, mut try_once: impl FnMut() -> bool) {
        if !try_once() {
            self.acquire_slowly(machine, key, &mut try_once);
        }
    }

    /// A waiter counts itself before it tries again, and who releases looks at the count after it has released: one of
    /// the two sees the other.
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
        let last = self.semaphore.state.fetch_sub(self.by, SeqCst) == self.by;
        if last && self.semaphore.waiters.load(SeqCst) != 0 {
            self.machine.wake(self.key);
        }
    }
}

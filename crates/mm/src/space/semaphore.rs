//! A lock that sleeps: many readers or one writer.

use crate::machine::{Machine, WaitKey};
use crate::primitive::{AtomicI64, Ordering::*};
use crate::units::SpaceId;

/// Held by n readers (n), by a writer (-1), by nobody (0).
#[derive(Default)]
pub(super) struct Semaphore {
    state: AtomicI64,
    /// Writers that wait: new readers let them go first, or a busy space would never be mapped into.
    writers: AtomicI64,
}

/// The semaphore is held until this is dropped.
pub(super) struct Held<'a, M: Machine> {
    semaphore: &'a Semaphore,
    machine: &'a M,
    space: SpaceId,
    by: i64,
}

impl Semaphore {
    /// Hold it together with other readers.
    pub(super) fn read<'a, M: Machine>(&'a self, machine: &'a M, space: SpaceId) -> Held<'a, M> {
        self.acquire(machine, space, || {
            let readers = self.state.load(Acquire);
            readers >= 0
                && self.writers.load(Acquire) == 0
                && self.state.compare_exchange(readers, readers + 1, AcqRel, Acquire).is_ok()
        });
        Held { semaphore: self, machine, space, by: 1 }
    }

    /// Hold it alone.
    pub(super) fn write<'a, M: Machine>(&'a self, machine: &'a M, space: SpaceId) -> Held<'a, M> {
        let free = || self.state.compare_exchange(0, -1, AcqRel, Acquire).is_ok();
        if !free() {
            self.writers.fetch_add(1, AcqRel);
            self.acquire(machine, space, free);
            self.writers.fetch_sub(1, AcqRel);
        }
        Held { semaphore: self, machine, space, by: -1 }
    }

    fn acquire<M: Machine>(&self, machine: &M, space: SpaceId, mut try_once: impl FnMut() -> bool) {
        loop {
            if try_once() {
                return;
            }
            let ticket = machine.ticket(WaitKey::Space(space));
            if try_once() {
                return;
            }
            machine.wait(ticket, None);
        }
    }

    /// Does nobody hold it?
    pub(super) fn is_free(&self) -> bool {
        self.state.load(Acquire) == 0
    }
}

impl<M: Machine> Drop for Held<'_, M> {
    fn drop(&mut self) {
        if self.semaphore.state.fetch_sub(self.by, AcqRel) == self.by {
            self.machine.wake(WaitKey::Space(self.space));
        }
    }
}

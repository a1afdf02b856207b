//! Tasks that borrow from the task that started them.
//!
//! A kernel starts a task with a function and a number. Here the number is the address of a [`Worker`] on the
//! stack of the task that calls [`on_each`]. For this to be sound, [`on_each`] neither returns nor unwinds
//! before the last worker has ended.

use crate::harness::Harness;
use core::cell::Cell;
use mm::machine::{Machine, RemoteCall};
use mm::primitive::{AtomicU32, Ordering::*};
use mm::units::CpuId;
use std_alloc::vec::Vec;

struct Worker<'a> {
    body: &'a RemoteCall<'a>,
    cpu: CpuId,
    running: &'a AtomicU32,
    failed: &'a AtomicU32,
}

/// Reports the end of a member, whether it returns or unwinds.
struct EndGuard<'a> {
    worker: &'a Worker<'a>,
    returned: Cell<bool>,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let &Worker { running, failed, .. } = self.worker;
        if !self.returned.get() {
            failed.fetch_add(1, Relaxed);
        }
        // The last access: from here on the stack that the member borrows from may be gone.
        running.fetch_sub(1, Release);
    }
}

fn worker_entry(argument: usize) {
    // SAFETY: `on_each` passes the address of a member that it keeps, with all that the member borrows, until
    // `running` is 0, and each member runs once. A `RemoteCall` may be called on any CPU.
    let worker = unsafe { &*(argument as *const Worker<'_>) };
    let guard = EndGuard { worker, returned: Cell::new(false) };
    (worker.body)(worker.cpu);
    guard.returned.set(true);
}

/// Waits for the last member, also when the task that started them unwinds.
struct Wait<'a, H: Harness> {
    harness: &'a H,
    running: &'a AtomicU32,
    failed: &'a AtomicU32,
    what: &'a str,
}

impl<H: Harness> Drop for Wait<'_, H> {
    fn drop(&mut self) {
        let machine = self.harness.mm().machine();
        // Longer than anything that a member itself waits for.
        let end = machine.now().saturating_add(4 * self.harness.patience());
        while self.running.load(Acquire) != 0 {
            self.harness.pause();
            // A member that panicked may have left others waiting for it.
            if machine.now() > end {
                self.harness.give_up(self.what);
            }
        }
        if self.failed.load(Relaxed) != 0 {
            self.harness.give_up(self.what);
        }
    }
}

/// Run `body` on each of `cpus` at once, each in a task of its own, and return when all have ended. A CPU
/// that is named twice gets two tasks.
///
/// If a task does not end in reasonable time, give up with the message `what`.
pub(crate) fn on_each<H: Harness>(harness: &H, what: &str, cpus: &[CpuId], body: &RemoteCall<'_>) {
    let (running, failed) = (AtomicU32::new(0), AtomicU32::new(0));
    let worker = |&cpu| Worker { body, cpu, running: &running, failed: &failed };
    let workers: Vec<Worker<'_>> = cpus.iter().map(worker).collect();
    let _wait = Wait { harness, running: &running, failed: &failed, what };
    for worker in &workers {
        running.fetch_add(1, Relaxed);
        harness.start(worker.cpu, worker_entry, core::ptr::from_ref(worker) as usize);
    }
}

/// Run `body` in the context in which the kernel reports the end of a transfer. Returns `false` if the kernel
/// cannot.
pub(crate) fn in_io_context<H: Harness>(harness: &H, body: &RemoteCall<'_>) -> bool {
    let (running, failed) = (AtomicU32::new(1), AtomicU32::new(0));
    let cpu = harness.mm().machine().cpu();
    let worker = Worker { body, cpu, running: &running, failed: &failed };
    let can = harness.in_io_context(worker_entry, core::ptr::from_ref(&worker) as usize);
    // The harness promises that the call has ended, so the borrow ends here.
    assert_eq!(
        running.load(Acquire) == 0,
        can,
        "the result of in_io_context() must be whether the entry was called"
    );
    can
}

//! Tasks that borrow from the one that started them.
//!
//! A kernel starts a task with a function and a number. Here the number is the address of a [`Member`] on the stack of
//! whoever starts the crew; so that it stays there, [`on_each`] does not return, nor unwind, before the last member has
//! ended.

use crate::harness::Harness;
use core::cell::Cell;
use mm::machine::{Machine, RemoteCall};
use mm::primitive::{AtomicU32, Ordering::*};
use mm::units::CpuId;
use std_alloc::vec::Vec;

struct Member<'a> {
    body: &'a RemoteCall<'a>,
    cpu: CpuId,
    left: &'a AtomicU32,
    failed: &'a AtomicU32,
}

/// What a member leaves behind, in whatever way it ends.
struct Leaving<'a> {
    member: &'a Member<'a>,
    well: Cell<bool>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let &Member { left, failed, .. } = self.member;
        if !self.well.get() {
            failed.fetch_add(1, Relaxed);
        }
        // The last access: from now on the crew may be gone.
        left.fetch_sub(1, Release);
    }
}

fn live(argument: usize) {
    // SAFETY: `on_each` passed the address of a member that it keeps, with all that the member borrows, until `left` is
    // 0, and each member is run once. A `RemoteCall` may be called on any CPU.
    let member = unsafe { &*(argument as *const Member<'_>) };
    let leaving = Leaving { member, well: Cell::new(false) };
    (member.body)(member.cpu);
    leaving.well.set(true);
}

/// Waits for the last member, also if whoever started the crew unwinds.
struct Wait<'a, H: Harness> {
    harness: &'a H,
    left: &'a AtomicU32,
    failed: &'a AtomicU32,
    what: &'a str,
}

impl<H: Harness> Drop for Wait<'_, H> {
    fn drop(&mut self) {
        let machine = self.harness.mm().machine();
        // Longer than anything that a member itself waits for.
        let end = machine.now().saturating_add(4 * self.harness.patience());
        while self.left.load(Acquire) != 0 {
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

/// Run `body` on each of `cpus`, as a task of its own there, all at once; returns when all have ended. A CPU that is
/// named twice gets two tasks.
///
/// If one does not end in reasonable time, gives up, saying `what`.
pub(crate) fn on_each<H: Harness>(harness: &H, what: &str, cpus: &[CpuId], body: &RemoteCall<'_>) {
    let (left, failed) = (AtomicU32::new(0), AtomicU32::new(0));
    let member = |&cpu| Member { body, cpu, left: &left, failed: &failed };
    let members: Vec<Member<'_>> = cpus.iter().map(member).collect();
    let _wait = Wait { harness, left: &left, failed: &failed, what };
    for member in &members {
        left.fetch_add(1, Relaxed);
        harness.start(member.cpu, live, core::ptr::from_ref(member) as usize);
    }
}

/// Run `body` in the context from which the kernel tells that a transfer has ended. `false`: it cannot.
pub(crate) fn where_io_ends<H: Harness>(harness: &H, body: &RemoteCall<'_>) -> bool {
    let (left, failed) = (AtomicU32::new(1), AtomicU32::new(0));
    let cpu = harness.mm().machine().cpu();
    let member = Member { body, cpu, left: &left, failed: &failed };
    let can = harness.where_io_ends(live, core::ptr::from_ref(&member) as usize);
    // The harness promises that the call has ended; what is lent to it ends here.
    assert_eq!(
        left.load(Acquire) == 0,
        can,
        "where_io_ends: called, but said to have been refused, or not called"
    );
    can
}

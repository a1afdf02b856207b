//! Which fault is made, and what runs at the points of a test. All of it belongs to the thread of the test.

use super::{Point, Published};
use core::cell::{Cell, RefCell};
use std_alloc::boxed::Box;

extern crate std;

type Hook = Box<dyn FnOnce()>;

std::thread_local! {
    static FAULT: Cell<Option<Published>> = const { Cell::new(None) };
    static HOOK: RefCell<Option<(Point, Hook)>> = const { RefCell::new(None) };
    static TASK: Cell<u64> = const { Cell::new(0) };
    static CLAIMED: Cell<bool> = const { Cell::new(false) };
}

/// Is the memory manager to make this fault?
pub(crate) fn is(fault: Published) -> bool {
    FAULT.get() == Some(fault)
}

/// From now on it makes this fault, or none; whatever a test before has left behind is gone.
pub(crate) fn make(fault: Option<Published>) {
    FAULT.set(fault);
    HOOK.take();
    TASK.set(0);
    CLAIMED.set(false);
}

/// When `point` is reached the next time, this runs there.
pub(crate) fn at(point: Point, hook: impl FnOnce() + 'static) {
    HOOK.set(Some((point, Box::new(hook))));
}

/// Another CPU may run here.
pub(crate) fn here(point: Point) {
    let hook = HOOK.with_borrow_mut(|hook| hook.take_if(|(at, _)| *at == point));
    if let Some((_, run)) = hook {
        run();
    }
}

/// F4: the debt of the task that runs, which takes one value and gives it back once.
pub(crate) fn task_debt(new: u64) -> u64 {
    TASK.replace(new)
}

/// F16: has this task claimed a payment before?
pub(crate) fn claimed_before() -> bool {
    CLAIMED.replace(true)
}

/// F12: claim the payment of a zone, or wait until who has claimed it is done.
///
/// # Panics
/// If that takes so long that it never will be.
pub(crate) fn claim() -> Claim {
    for _ in 0..1000 {
        if !CLAIMED.replace(true) {
            return Claim;
        }
    }
    panic!("waits for a claimer that cannot run");
}

/// F12: until dropped, others wait.
pub(crate) struct Claim;

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.set(false);
    }
}

/// F3: the later of two tags of 16 bits, if a sign bit decides, as it is stored again.
pub(crate) fn later_of_16_bits(a: u64, b: u64) -> u64 {
    let (a, b) = (a as u16, b as u16);
    (if (b.wrapping_sub(a) as i16) < 0 { a } else { b }) as u64
}

//! Tasks with their own stacks, all on one host thread.
//!
//! The memory manager waits deep inside its calls, so a simulated task needs a stack that can be left at any depth.
//! [`suspend`] may be called from anywhere below a running [`Coroutine`]; it returns to the caller of `resume`.
//!
//! A run that fails leaves tasks suspended in the middle of calls. Their stacks are dropped without being unwound
//! ([`Coroutine`]'s `Drop`): what they own is leaked, and the memory manager never runs again on broken state.

use corosensei::stack::DefaultStack;
use corosensei::{CoroutineResult, Yielder};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

/// Bytes of a task's stack. Pages that are never touched cost nothing.
const STACK: usize = 512 << 10;

type Inner = corosensei::Coroutine<(), (), (), DefaultStack>;

thread_local! {
    /// The yielder of the coroutine that runs now; null outside of all.
    static CURRENT: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
}

/// A task that can be suspended and resumed.
pub(crate) struct Coroutine<'a> {
    inner: Inner,
    yielder: std::rc::Rc<Cell<*const Yielder<(), ()>>>,
    borrows: PhantomData<&'a ()>,
}

impl<'a> Coroutine<'a> {
    /// A task that runs `body` when it is first resumed.
    pub(crate) fn new(body: impl FnOnce() + 'a) -> std::io::Result<Coroutine<'a>> {
        let yielder = std::rc::Rc::new(Cell::new(ptr::null()));
        let slot = yielder.clone();
        let stack = DefaultStack::new(STACK)?;
        // SAFETY: the body may borrow for 'a, and this value cannot outlive 'a. It is never unwound by a drop (see
        // `Drop` below), so the body runs only inside `resume`, where 'a is alive.
        let inner = unsafe {
            Inner::with_stack_unchecked(stack, move |yielder: &Yielder<(), ()>, ()| {
                slot.set(yielder);
                CURRENT.set(yielder);
                body();
            })
        };
        Ok(Coroutine { inner, yielder, borrows: PhantomData })
    }

    /// Run it until it suspends itself or ends. Returns whether it has ended.
    pub(crate) fn resume(&mut self) -> bool {
        let _outer = Outer(CURRENT.replace(self.yielder.get()));
        matches!(self.inner.resume(()), CoroutineResult::Return(()))
    }
}

/// The yielder to restore when a coroutine is left, also by a panic in its body.
struct Outer(*const Yielder<(), ()>);

impl Drop for Outer {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

impl Drop for Coroutine<'_> {
    fn drop(&mut self) {
        if self.inner.started() && !self.inner.done() {
            // SAFETY: the values on its stack are leaked. Nothing outside points to them: others know a suspended task by
            // its number only.
            unsafe { self.inner.force_reset() };
        }
    }
}

/// Suspend the coroutine that runs now; returns when it is resumed.
///
/// # Panics
/// Outside of a coroutine.
pub(crate) fn suspend() {
    let yielder = CURRENT.get();
    assert!(!yielder.is_null(), "only a task may sleep");
    // SAFETY: CURRENT is not null only while the coroutine that owns this yielder runs: `resume` sets it on entry (and the
    // body on first entry) and restores the outer value when the coroutine is left, also by a panic. So the yielder's
    // stack is alive and active.
    unsafe { (*yielder).suspend(()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coroutines_nest_and_may_be_dropped_in_the_middle() {
        let log = std::cell::RefCell::new(Vec::new());
        let mut inner = Coroutine::new(|| {
            log.borrow_mut().push(2);
            suspend();
            log.borrow_mut().push(4);
        })
        .unwrap();
        let mut outer = Coroutine::new(|| {
            log.borrow_mut().push(1);
            assert!(!inner.resume());
            log.borrow_mut().push(3);
            suspend();
            assert!(inner.resume());
            log.borrow_mut().push(5);
        })
        .unwrap();
        assert!(!outer.resume() && outer.resume());
        drop(outer);
        let mut abandoned = Coroutine::new(suspend).unwrap();
        assert!(!abandoned.resume());
        drop(abandoned);
        assert_eq!(*log.borrow(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_panic_in_a_body_restores_the_outer_yielder() {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        let mut fails = Coroutine::new(|| panic!("as it should")).unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| fails.resume())).is_err());
        assert!(CURRENT.get().is_null(), "a stack that is gone must not be current");
        let mut outer = Coroutine::new(|| {
            let mut inner = Coroutine::new(|| panic!("as it should")).unwrap();
            assert!(catch_unwind(AssertUnwindSafe(|| inner.resume())).is_err());
            suspend();
        })
        .unwrap();
        assert!(!outer.resume() && outer.resume());
    }
}

//! A lock for tasks of a run.

use crate::sys;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A lock that is held briefly. Waiters yield, because the holder may have lost its CPU.
pub struct Lock<T> {
    held: AtomicBool,
    value: core::cell::UnsafeCell<T>,
}

// SAFETY: one task at a time accesses the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Lock<T> {
        Lock { held: AtomicBool::new(false), value: core::cell::UnsafeCell::new(value) }
    }

    /// Run `work` with the lock held.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        while self.held.swap(true, SeqCst) {
            sys::yield_now();
        }
        // SAFETY: the lock is held.
        let result = work(unsafe { &mut *self.value.get() });
        self.held.store(false, SeqCst);
        result
    }
}

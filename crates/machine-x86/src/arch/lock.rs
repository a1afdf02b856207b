//! A lock that interrupt handlers may take: its holder runs with interrupts off.
//!
//! A CPU that spins for it answers no interrupt, so its holder must never wait for another CPU's answer.

use super::instructions::{disable_interrupts, enable_interrupts, interrupts_enabled};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering::*};

/// A lock around `T`.
pub struct IrqLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the holder, one at a time.
unsafe impl<T: Send> Sync for IrqLock<T> {}

/// The lock is held, and interrupts are off, until this is dropped.
pub struct IrqGuard<'a, T> {
    lock: &'a IrqLock<T>,
    enabled: bool,
}

impl<T> IrqLock<T> {
    /// An open lock.
    pub const fn new(value: T) -> IrqLock<T> {
        IrqLock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Take the lock.
    pub fn lock(&self) -> IrqGuard<'_, T> {
        let enabled = interrupts_enabled();
        disable_interrupts();
        while self.held.swap(true, Acquire) {
            while self.held.load(Relaxed) {
                core::hint::spin_loop();
            }
        }
        IrqGuard { lock: self, enabled }
    }

    /// Take the lock in a kernel that is about to end, even if its holder never gives it back.
    pub fn lock_last(&self) -> IrqGuard<'_, T> {
        disable_interrupts();
        let mut patience = 1_000_000;
        while self.held.swap(true, Acquire) && patience > 0 {
            patience -= 1;
            core::hint::spin_loop();
        }
        IrqGuard { lock: self, enabled: false }
    }

    /// Give back a lock whose guard was forgotten, by the task that was switched to while it was held. Interrupts stay
    /// off.
    ///
    /// # Safety
    /// This CPU holds it, and no guard of it is left.
    pub unsafe fn release(&self) {
        self.held.store(false, Release);
    }
}

impl<T> Deref for IrqGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard's holder is the only one to reach the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for IrqGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for IrqGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.held.store(false, Release);
        if self.enabled {
            enable_interrupts();
        }
    }
}

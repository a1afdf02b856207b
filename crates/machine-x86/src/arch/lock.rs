//! A lock that interrupt handlers may take: its holder runs with interrupts off.
//!
//! A CPU that spins for it handles no interrupt, so its holder must never wait for another CPU.

use super::instructions::{disable_interrupts, enable_interrupts, interrupts_enabled};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering::*};

/// A lock for a `T`.
pub struct IrqLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder accesses the value, one at a time.
unsafe impl<T: Send> Sync for IrqLock<T> {}

/// Until this is dropped, the lock is held and interrupts are off.
pub struct IrqGuard<'a, T> {
    lock: &'a IrqLock<T>,
    enabled: bool,
}

impl<T> IrqLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> IrqLock<T> {
        IrqLock { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Take the lock.
    pub fn lock(&self) -> IrqGuard<'_, T> {
        let enabled = interrupts_enabled();
        disable_interrupts();
        while self.locked.swap(true, Acquire) {
            while self.locked.load(Relaxed) {
                core::hint::spin_loop();
            }
        }
        IrqGuard { lock: self, enabled }
    }

    /// Take the lock in a kernel that is about to end, even if its holder never releases it.
    pub fn lock_last(&self) -> IrqGuard<'_, T> {
        disable_interrupts();
        let mut attempts = 1_000_000;
        while self.locked.swap(true, Acquire) && attempts > 0 {
            attempts -= 1;
            core::hint::spin_loop();
        }
        IrqGuard { lock: self, enabled: false }
    }

    /// Release a lock whose guard was forgotten, from the task that was switched to while it was held.
    /// Interrupts stay off.
    ///
    /// # Safety
    /// This CPU must hold it, and no guard of it may exist.
    pub unsafe fn release(&self) {
        self.locked.store(false, Release);
    }
}

impl<T> Deref for IrqGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: only the guard's holder accesses the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for IrqGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for IrqGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.locked.store(false, Release);
        if self.enabled {
            enable_interrupts();
        }
    }
}

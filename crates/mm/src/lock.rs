//! Locks.
//!
//! [`Lock`] is held for a short time and never across anything that waits. On several threads it spins; on one thread
//! it is a checked borrow, so that taking a lock twice, or keeping one while another CPU runs, stops the run at once; and whoever
//! plays the CPUs can ask whether the one that runs holds any (`held`). Who lets others run beside a holder says so (`watch`).
//!
//! Order in which locks are taken (a later one may be taken while holding an earlier one, never the reverse):
//!
//! 1. a space's `mapping` semaphore (sleeps)
//! 2. a folio's lock bit (sleeps)
//! 3. a space's `life` (only to take it apart), the reverse-map lock of an anonymous set or a file
//! 4. a space's page-table lock
//! 5. a file's page-tree lock, the swap lock
//! 6. a list vector's lock
//! 7. a zone's lock, a CPU's page lists

#[cfg(feature = "one-thread")]
mod inner {
    extern crate std;

    use core::cell::{Cell, RefCell, RefMut};
    use core::ops::{Deref, DerefMut};

    std::thread_local! {
        static HELD: Cell<u32> = const { Cell::new(0) };
        static WATCH: Cell<Option<Watch>> = const { Cell::new(None) };
    }

    /// What whoever plays the CPUs of this thread does about their locks, so that others may run while one holds some.
    #[derive(Clone, Copy)]
    pub struct Watch {
        /// A lock is about to be taken, or has been released.
        pub passed: fn(),
        /// A lock that is wanted is held: let its holder go on. It is tried again then.
        pub taken: fn(),
    }

    /// From now on, on this thread.
    pub fn watch(watch: Option<Watch>) {
        WATCH.set(watch);
    }

    /// Locks that the CPU that runs now holds.
    #[inline]
    pub fn held() -> u32 {
        HELD.get()
    }

    /// Another CPU runs now, which holds `held` locks; returns how many the one before holds.
    pub fn go_over(held: u32) -> u32 {
        HELD.replace(held)
    }

    #[inline(always)]
    fn passed() {
        if let Some(watch) = WATCH.get() {
            (watch.passed)();
        }
    }

    /// A short lock around `T`.
    #[derive(Default)]
    pub struct Lock<T>(RefCell<T>);

    /// Access to the value until dropped.
    pub struct Guard<'a, T> {
        value: RefMut<'a, T>,
        _counted: Counted,
    }

    /// One lock that is held.
    struct Counted;

    impl Counted {
        #[inline(always)]
        fn new() -> Counted {
            HELD.set(HELD.get() + 1);
            Counted
        }
    }

    impl Drop for Counted {
        #[inline(always)]
        fn drop(&mut self) {
            HELD.set(HELD.get() - 1);
            // The value is released already: fields are dropped in their order.
            passed();
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;

        #[inline(always)]
        fn deref(&self) -> &T {
            &self.value
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut T {
            &mut self.value
        }
    }

    impl<T> Lock<T> {
        /// An open lock.
        pub const fn new(value: T) -> Self {
            Self(RefCell::new(value))
        }

        /// Take the lock.
        ///
        /// # Panics
        /// If it is held, unless others run beside the holder ([`watch`]): on one thread nobody could ever release it.
        #[inline(always)]
        pub fn lock(&self) -> Guard<'_, T> {
            passed();
            let value = match self.0.try_borrow_mut() {
                Ok(value) => value,
                Err(_) => self.wait(),
            };
            Guard { value, _counted: Counted::new() }
        }

        #[cold]
        #[inline(never)]
        fn wait(&self) -> RefMut<'_, T> {
            while let Some(watch) = WATCH.get() {
                (watch.taken)();
                if let Ok(value) = self.0.try_borrow_mut() {
                    return value;
                }
            }
            panic!("a lock is taken that is held: on one thread nobody could ever release it");
        }

        /// Take the lock if it is free.
        #[inline(always)]
        pub fn try_lock(&self) -> Option<Guard<'_, T>> {
            passed();
            let value = self.0.try_borrow_mut().ok()?;
            Some(Guard { value, _counted: Counted::new() })
        }
    }
}

#[cfg(any(feature = "loom", feature = "shuttle"))]
mod inner {
    #[cfg(feature = "loom")]
    use loom::sync::{Mutex, MutexGuard};
    #[cfg(feature = "shuttle")]
    use shuttle::sync::{Mutex, MutexGuard};

    /// A short lock around `T`, whose order of holders a model checker chooses.
    #[derive(Default)]
    pub struct Lock<T>(Mutex<T>);

    /// Access to the value until dropped.
    pub type Guard<'a, T> = MutexGuard<'a, T>;

    impl<T> Lock<T> {
        /// An open lock.
        pub fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        /// Take the lock, waiting while it is held.
        pub fn lock(&self) -> Guard<'_, T> {
            self.0.lock().expect("no holder panics in a model that goes on")
        }

        /// Take the lock if it is free.
        pub fn try_lock(&self) -> Option<Guard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}

#[cfg(not(any(feature = "one-thread", feature = "loom", feature = "shuttle")))]
mod inner {
    /// A short lock around `T`.
    #[derive(Default)]
    pub struct Lock<T>(spin::Mutex<T>);

    /// Access to the value until dropped.
    pub type Guard<'a, T> = spin::MutexGuard<'a, T>;

    impl<T> Lock<T> {
        /// An open lock.
        pub const fn new(value: T) -> Self {
            Self(spin::Mutex::new(value))
        }

        /// Take the lock, spinning while it is held.
        #[inline]
        pub fn lock(&self) -> Guard<'_, T> {
            self.0.lock()
        }

        /// Take the lock if it is free.
        #[inline]
        pub fn try_lock(&self) -> Option<Guard<'_, T>> {
            self.0.try_lock()
        }
    }
}

pub use inner::{Guard, Lock};
#[cfg(feature = "one-thread")]
pub use inner::{Watch, go_over, held, watch};

#[cfg(all(test, feature = "one-thread"))]
mod tests {
    use super::*;

    #[test]
    fn who_holds_locks_is_known_to_hold_them() {
        let (one, two) = (Lock::new(1), Lock::new(2));
        let first = one.lock();
        let second = two.try_lock();
        assert!(one.try_lock().is_none());
        assert_eq!((held(), second.is_some()), (2, true));
        drop(second);
        assert_eq!(held(), 1);
        drop(first);
        assert_eq!(held(), 0);
    }
}

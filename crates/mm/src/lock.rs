//! Locks.
//!
//! [`Lock`] is held for a short time and never across anything that waits. On several threads it spins; on one thread
//! it is a checked borrow, so that taking a lock twice, or keeping one while another CPU runs, stops the run at once.
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
    use core::cell::{RefCell, RefMut};

    /// A short lock around `T`.
    #[derive(Default)]
    pub struct Lock<T>(RefCell<T>);

    /// Access to the value until dropped.
    pub type Guard<'a, T> = RefMut<'a, T>;

    impl<T> Lock<T> {
        /// An open lock.
        pub const fn new(value: T) -> Self {
            Self(RefCell::new(value))
        }

        /// Take the lock.
        ///
        /// # Panics
        /// If it is held: on one thread nobody could ever release it.
        #[inline(always)]
        pub fn lock(&self) -> Guard<'_, T> {
            self.0.borrow_mut()
        }

        /// Take the lock if it is free.
        #[inline(always)]
        pub fn try_lock(&self) -> Option<Guard<'_, T>> {
            self.0.try_borrow_mut().ok()
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

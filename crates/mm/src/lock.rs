//! Locks.
//!
//! [`Lock`] is held briefly and never across anything that sleeps. With several threads it spins. On one thread it is
//! a checked borrow: taking a lock twice, or keeping one while another CPU runs, stops the run at once. A scheduler
//! that runs other CPUs while one holds a lock installs a `watch` before a lock is first taken. From
//! then on such a lock is counted (`held` returns the current CPU's count), and the scheduler learns which locks are
//! held when a CPU waits for another, so that it can check the order. A lock that is not watched pays one instruction
//! for this, on release.
//!
//! Lock order (a lock may be taken while one above it is held, never the reverse):
//!
//! 1. a file's size semaphore (sleeps)
//! 2. a space's `mapping` semaphore (sleeps)
//! 3. a folio's lock bit (sleeps)
//! 4. a space's `life` (only to tear it down)
//! 5. a space's ranges
//! 6. the reverse-map lock of an anonymous set or a file
//! 7. a space's page-table lock
//! 8. a file's page-tree lock, the lock of a swap area's slots
//! 9. an LRU vector's lock
//! 10. a CPU's page lists, then a zone's lock
//!
//! docs/architecture.md names the cases that try a lock out of this order, and which two operations each lock orders.

#[cfg(feature = "one-thread")]
mod inner {
    extern crate std;

    use core::any::type_name;
    use core::cell::{Cell, RefCell, UnsafeCell};
    use core::ops::{Deref, DerefMut};
    use std_alloc::vec::Vec;

    std::thread_local! {
        static HELD_HERE: RefCell<HeldLocks> = const { RefCell::new(HeldLocks(Vec::new())) };
        static WATCH: Cell<Option<Watch>> = const { Cell::new(None) };
    }

    /// The watched locks that a CPU holds, in the order taken, by the type names of what they protect.
    #[derive(Default)]
    pub struct HeldLocks(Vec<&'static str>);

    impl HeldLocks {
        /// Number of locks.
        pub fn count(&self) -> u32 {
            self.0.len() as u32
        }

        /// Their type names.
        pub fn names(&self) -> &[&'static str] {
            &self.0
        }
    }

    /// Callbacks of a scheduler that runs other CPUs while one holds a lock.
    #[derive(Clone, Copy)]
    pub struct Watch {
        /// The current CPU is about to take a lock, or has released one.
        pub lock_point: fn(),
        /// The current CPU is about to wait for a lock around the named type while it holds `HeldLocks`. Not called
        /// for `try_lock`.
        pub wanted: fn(&HeldLocks, &'static str),
        /// The lock is held: run its holder. The lock is tried again afterwards.
        pub taken: fn(),
    }

    /// Install or remove this thread's watch. It applies to locks first taken while it is installed.
    pub fn watch(watch: Option<Watch>) {
        WATCH.set(watch);
    }

    /// Number of watched locks that the current CPU holds.
    pub fn held() -> u32 {
        HELD_HERE.with_borrow(HeldLocks::count)
    }

    /// The scheduler switches to a CPU that holds `held`; returns the locks of the previous CPU.
    pub fn switch_cpu(held: HeldLocks) -> HeldLocks {
        HELD_HERE.replace(held)
    }

    /// The current CPU is about to wait for a watched lock around a `T`.
    fn wanted<T>() {
        if let Some(watch) = WATCH.get() {
            HELD_HERE.with_borrow(|held| (watch.wanted)(held, type_name::<T>()));
        }
    }

    fn lock_point() {
        if let Some(watch) = WATCH.get() {
            (watch.lock_point)();
        }
    }

    /// A lock's state. Release adds one. Only an unwatched lock reaches [`FREE`] this way, and only an unwatched lock
    /// is found in it, so the fast path does not test for a watch.
    type State = i8;
    const HELD: State = -1;
    const FREE: State = 0;
    const WATCHED_HELD: State = 1;
    const WATCHED_FREE: State = 2;
    /// Never taken: it is not yet known whether the lock is watched.
    const UNASKED: State = 3;

    /// A short lock around a `T`.
    pub struct Lock<T> {
        state: Cell<State>,
        value: UnsafeCell<T>,
    }

    /// Access to the value until dropped. At most one exists: its creator has found the lock free and marked it held.
    pub struct Guard<'a, T>(&'a Lock<T>);

    impl<T> Drop for Guard<'_, T> {
        #[inline(always)]
        fn drop(&mut self) {
            let state = self.0.state.get().wrapping_add(1);
            self.0.state.set(state);
            if state != FREE {
                released::<T>();
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn released<T>() {
        HELD_HERE.with_borrow_mut(|held| {
            // After a failed run, tasks are torn down with their locks held, in any order.
            let at = held.0.iter().rposition(|&name| name == type_name::<T>());
            at.map(|at| held.0.remove(at));
        });
        lock_point();
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;

        #[inline(always)]
        #[allow(unsafe_code)]
        fn deref(&self) -> &T {
            // SAFETY: this is the only guard, it is borrowed, and nothing else gives references to the value. One
            // thread alone has the lock: it is not `Sync`, because of its cells.
            unsafe { &*self.0.value.get() }
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        #[inline(always)]
        #[allow(unsafe_code)]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: as in `deref`, and the guard itself is borrowed mutably.
            unsafe { &mut *self.0.value.get() }
        }
    }

    impl<T: Default> Default for Lock<T> {
        fn default() -> Self {
            Lock::new(T::default())
        }
    }

    impl<T> Lock<T> {
        /// An open lock.
        pub const fn new(value: T) -> Self {
            Lock { state: Cell::new(UNASKED), value: UnsafeCell::new(value) }
        }

        /// Take the lock.
        ///
        /// # Panics
        /// If it is held and not watched: on one thread its holder could never release it.
        #[inline(always)]
        pub fn lock(&self) -> Guard<'_, T> {
            if self.state.get() != FREE {
                return self.lock_slowly();
            }
            self.take(HELD)
        }

        #[inline(always)]
        fn take(&self, held: State) -> Guard<'_, T> {
            self.state.set(held);
            Guard(self)
        }

        /// Take the lock if it is free.
        #[inline(always)]
        pub fn try_lock(&self) -> Option<Guard<'_, T>> {
            if self.state.get() != FREE {
                return self.try_lock_slowly();
            }
            Some(self.take(HELD))
        }

        #[cold]
        #[inline(never)]
        fn lock_slowly(&self) -> Guard<'_, T> {
            match self.asked() {
                FREE => return self.take(HELD),
                HELD => panic!("a held lock is taken again: on one thread its holder can never release it"),
                _ => lock_point(),
            }
            wanted::<T>();
            loop {
                if let Some(guard) = self.take_watched() {
                    return guard;
                }
                (WATCH.get().expect("a watch must outlive the locks that it watches").taken)();
            }
        }

        #[cold]
        #[inline(never)]
        fn try_lock_slowly(&self) -> Option<Guard<'_, T>> {
            match self.asked() {
                FREE => return Some(self.take(HELD)),
                HELD => return None,
                _ => lock_point(),
            }
            self.take_watched()
        }

        /// The state, once it is known whether the lock is watched.
        fn asked(&self) -> State {
            if self.state.get() == UNASKED {
                self.state.set(if WATCH.get().is_some() { WATCHED_FREE } else { FREE });
            }
            self.state.get()
        }

        fn take_watched(&self) -> Option<Guard<'_, T>> {
            let free = self.state.get() == WATCHED_FREE;
            free.then(|| {
                HELD_HERE.with_borrow_mut(|held| held.0.push(type_name::<T>()));
                self.take(WATCHED_HELD)
            })
        }
    }
}

#[cfg(any(feature = "loom", feature = "shuttle"))]
mod inner {
    #[cfg(feature = "loom")]
    use loom::sync::{Mutex, MutexGuard};
    #[cfg(feature = "shuttle")]
    use shuttle::sync::{Mutex, MutexGuard};

    /// A short lock around a `T`; a model checker chooses the order of its holders.
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
pub use inner::{HeldLocks, Watch, held, switch_cpu, watch};

#[cfg(all(test, feature = "one-thread"))]
mod tests {
    use super::*;

    #[test]
    fn held_lists_the_locks_of_the_current_cpu() {
        let (unseen, one, two) = (Lock::new(0), Lock::new(1), Lock::new(2));
        drop(unseen.lock());
        watch(Some(Watch { lock_point: || {}, wanted: |_, _| {}, taken: || {} }));
        let _unseen = unseen.lock();
        assert_eq!(held(), 0);
        let first = one.lock();
        let second = two.try_lock();
        assert!(one.try_lock().is_none());
        assert_eq!((held(), second.is_some()), (2, true));
        drop(second);
        assert_eq!(held(), 1);
        drop(first);
        assert_eq!(held(), 0);
        watch(None);
    }

    #[test]
    #[should_panic(expected = "on one thread its holder can never release it")]
    fn taking_a_held_lock_on_one_thread_panics() {
        let lock = Lock::new(1);
        let _held = lock.lock();
        drop(lock.lock());
    }
}

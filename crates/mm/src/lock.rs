//! Locks.
//!
//! [`Lock`] is held for a short time and never across anything that waits. On several threads it spins; on one thread
//! it is a checked borrow, so that taking a lock twice, or one that was kept while another CPU runs, stops the run at
//! once. Whoever plays the CPUs and lets others run beside a holder says so (`watch`) before a lock is first taken. It
//! is watched from then on, and counted: `held` tells how many of them the CPU that runs holds. Any other lock costs no
//! more for it than one step when it is released. It is also told which locks are held when another is waited for, so
//! that it can check the order.
//!
//! Order in which locks are taken (a later one may be taken while holding an earlier one, never the reverse):
//!
//! 1. a space's `mapping` semaphore (sleeps)
//! 2. a folio's lock bit (sleeps)
//! 3. a space's `life` (only to take it apart)
//! 4. a space's ranges
//! 5. the reverse-map lock of an anonymous set or a file
//! 6. a space's page-table lock
//! 7. a file's page-tree lock, the swap lock
//! 8. a list vector's lock
//! 9. a zone's lock, a CPU's page lists

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

    /// The watched locks that a CPU holds, by the names of what they protect, in the order in which they were taken.
    #[derive(Default)]
    pub struct HeldLocks(Vec<&'static str>);

    impl HeldLocks {
        /// How many they are.
        pub fn count(&self) -> u32 {
            self.0.len() as u32
        }

        /// Their names.
        pub fn names(&self) -> &[&'static str] {
            &self.0
        }
    }

    /// What whoever plays the CPUs of this thread does about their locks, so that others may run while one holds some.
    #[derive(Clone, Copy)]
    pub struct Watch {
        /// A lock is about to be taken, or has been released.
        pub lock_point: fn(),
        /// These locks are held by who now waits for one around what is named, until it is free. (Who only tries for a
        /// lock does not wait.)
        pub wanted: fn(&HeldLocks, &'static str),
        /// A lock that is wanted is held: let its holder go on. It is tried again then.
        pub taken: fn(),
    }

    /// From now on, on this thread: of locks that are taken for the first time while there is a watch.
    pub fn watch(watch: Option<Watch>) {
        WATCH.set(watch);
    }

    /// Locks that are watched and that the CPU that runs now holds.
    pub fn held() -> u32 {
        HELD_HERE.with_borrow(HeldLocks::count)
    }

    /// Another CPU runs now, which holds these locks; returns those that the one before holds.
    pub fn switch_cpu(held: HeldLocks) -> HeldLocks {
        HELD_HERE.replace(held)
    }

    /// A watched lock around a `T` is wanted, and will be waited for.
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

    /// What a lock is. To release it adds one; only of a lock that nobody watches that makes [`FREE`], and only such a
    /// lock is ever found so. So to ask whether a lock is watched takes no step of its own.
    type State = i8;
    const HELD: State = -1;
    const FREE: State = 0;
    const WATCHED_HELD: State = 1;
    const WATCHED_FREE: State = 2;
    /// Never taken: nobody has asked yet whether it is watched.
    const UNASKED: State = 3;

    /// A short lock around `T`.
    pub struct Lock<T> {
        state: Cell<State>,
        value: UnsafeCell<T>,
    }

    /// Access to the value until dropped. There is never more than one: who makes it has found the lock free, and has
    /// noted that it is held.
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
            // A run that failed left its tasks, whose locks are released when they are taken apart.
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
            // SAFETY: as in `deref`, and the guard is borrowed by nobody else.
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
        /// If it is held, unless others run beside the holder ([`watch`]): on one thread nobody could ever release it.
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
                HELD => panic!("a lock is taken that is held: on one thread nobody could ever release it"),
                _ => lock_point(),
            }
            wanted::<T>();
            loop {
                if let Some(guard) = self.take_watched() {
                    return guard;
                }
                (WATCH.get().expect("the watch ends after its locks").taken)();
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

        /// The state, when it is known whether the lock is watched.
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
pub use inner::{HeldLocks, Watch, held, switch_cpu, watch};

#[cfg(all(test, feature = "one-thread"))]
mod tests {
    use super::*;

    #[test]
    fn who_holds_locks_is_known_to_hold_them() {
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
    #[should_panic(expected = "on one thread nobody could ever release it")]
    fn a_lock_that_is_held_for_ever_stops_the_run() {
        let lock = Lock::new(1);
        let _held = lock.lock();
        drop(lock.lock());
    }
}

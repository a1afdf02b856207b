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
//! 7. a space's page tables: its gate, then the lock of one table
//! 8. a file's page-tree lock, the lock of a swap area's slots
//! 9. an LRU vector's lock
//! 10. a CPU's page lists, then a zone's lock
//!
//! docs/architecture.md names the cases that try a lock out of this order, and which two operations each lock orders.
//!
//! **Locks in simulated time.** On one thread no CPU ever finds a lock held that is held for work alone: the work is
//! done before another CPU runs. But it takes simulated time, and a CPU that runs next may be in the midst of that
//! time. So a lock that has a [`LockClass`] tells a [`LockClock`], if one is installed before the lock is first taken,
//! when it is taken and released; the clock lets the later CPU wait. Classes are for locks that Linux has as well, and
//! holds are as Linux's: [`Lock::share`] where Linux takes a semaphore for reading, [`Lock::look`] where it takes no
//! lock at all. With several threads all three are one.

mod class;
mod gate;
mod times;

pub use class::LockClass;
pub use gate::{Gate, GateGuard};
pub use times::LockTimes;
#[cfg(feature = "one-thread")]
pub use times::is_timing;
#[cfg(feature = "one-thread")]
pub use times::{ClockGuard, HoldMode, LockClock, LockHold, Since, clock};
#[cfg(not(feature = "one-thread"))]
pub use times::{HoldMode, Since};

#[cfg(feature = "one-thread")]
mod inner {
    extern crate std;

    use super::{HoldMode, LockClass, LockTimes};
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

    /// Whether locks that are taken for the first time are watched.
    pub fn is_watching() -> bool {
        WATCH.get().is_some()
    }

    /// The current CPU is about to wait for a watched lock around a `T`.
    pub(super) fn wanted<T>() {
        if let Some(watch) = WATCH.get() {
            HELD_HERE.with_borrow(|held| (watch.wanted)(held, type_name::<T>()));
        }
    }

    /// The current CPU has taken a watched lock around a `T`.
    pub(super) fn note_held<T>() {
        HELD_HERE.with_borrow_mut(|held| held.0.push(type_name::<T>()));
    }

    /// Run the holder of a watched lock.
    pub(super) fn wait_for_holder() {
        (WATCH.get().expect("a watch must outlive the locks that it watches").taken)();
    }

    pub(super) fn lock_point() {
        if let Some(watch) = WATCH.get() {
            (watch.lock_point)();
        }
    }

    /// A lock's state. Release adds one. Only a lock that is neither watched nor timed reaches [`FREE`] this way, and
    /// only such a lock is found in it, so the fast path tests for neither.
    type State = i8;
    const HELD: State = -1;
    const FREE: State = 0;
    const WATCHED_HELD: State = 1;
    const WATCHED_FREE: State = 2;
    /// Never taken: it is not yet known whether the lock is watched or timed.
    const UNASKED: State = 3;
    const TIMED_HELD: State = 4;
    const TIMED_FREE: State = 5;

    /// A short lock around a `T`.
    pub struct Lock<T> {
        state: Cell<State>,
        times: LockTimes,
        value: UnsafeCell<T>,
    }

    /// Access to the value until dropped. At most one exists: its creator has found the lock free and marked it held.
    pub struct Guard<'a, T>(&'a Lock<T>);

    impl<T> Guard<'_, T> {
        /// Charge work for which the lock is free in simulated time.
        #[inline(always)]
        pub fn pause(&self, charge: impl FnMut()) {
            self.0.times.pause(charge);
        }
    }

    impl<T> Drop for Guard<'_, T> {
        #[inline(always)]
        fn drop(&mut self) {
            let state = self.0.state.get().wrapping_add(1);
            self.0.state.set(state);
            match state {
                FREE => {}
                TIMED_FREE => self.0.times.release(),
                _ => released::<T>(),
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn released<T>() {
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
        /// An open lock that takes no simulated time.
        pub const fn new(value: T) -> Self {
            Lock { state: Cell::new(UNASKED), times: LockTimes::none(), value: UnsafeCell::new(value) }
        }

        /// An open lock of a class.
        pub const fn of(class: LockClass, value: T) -> Self {
            Lock { state: Cell::new(UNASKED), times: LockTimes::of(class), value: UnsafeCell::new(value) }
        }

        /// Take the lock.
        ///
        /// # Panics
        /// If it is held and not watched: on one thread its holder could never release it.
        #[inline(always)]
        pub fn lock(&self) -> Guard<'_, T> {
            if self.state.get() != FREE {
                return self.lock_slowly(HoldMode::Alone);
            }
            self.take(HELD)
        }

        /// Take the lock for what Linux does as one of many readers: such holds do not wait for each other.
        #[inline(always)]
        pub fn share(&self) -> Guard<'_, T> {
            if self.state.get() != FREE {
                return self.lock_slowly(HoldMode::Shared);
            }
            self.take(HELD)
        }

        /// Take the lock for what Linux does without one, by RCU: such holds take no simulated time.
        #[inline(always)]
        pub fn look(&self) -> Guard<'_, T> {
            if self.state.get() != FREE {
                return self.lock_slowly(HoldMode::Unseen);
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
                return self.try_lock_slowly(HoldMode::Alone);
            }
            Some(self.take(HELD))
        }

        /// Take the lock as by [`Lock::share`] if it is free.
        #[inline(always)]
        pub fn try_share(&self) -> Option<Guard<'_, T>> {
            if self.state.get() != FREE {
                return self.try_lock_slowly(HoldMode::Shared);
            }
            Some(self.take(HELD))
        }

        #[cold]
        #[inline(never)]
        fn lock_slowly(&self, mode: HoldMode) -> Guard<'_, T> {
            if self.state.get() == TIMED_FREE {
                self.times.acquire(mode);
                return self.take(TIMED_HELD);
            }
            self.lock_more_slowly(mode)
        }

        #[cold]
        #[inline(never)]
        fn lock_more_slowly(&self, mode: HoldMode) -> Guard<'_, T> {
            match self.asked() {
                TIMED_FREE => return self.lock_slowly(mode),
                FREE => return self.take(HELD),
                HELD | TIMED_HELD => {
                    panic!("a held lock is taken again: on one thread its holder can never release it")
                }
                _ => lock_point(),
            }
            wanted::<T>();
            loop {
                if let Some(guard) = self.take_watched() {
                    return guard;
                }
                wait_for_holder();
            }
        }

        #[cold]
        #[inline(never)]
        fn try_lock_slowly(&self, mode: HoldMode) -> Option<Guard<'_, T>> {
            match self.asked() {
                TIMED_FREE => return self.times.try_acquire(mode).then(|| self.take(TIMED_HELD)),
                FREE => return Some(self.take(HELD)),
                HELD | TIMED_HELD => return None,
                _ => lock_point(),
            }
            self.take_watched()
        }

        /// Forget when the free lock was held, and by whom: it protects something else from now on.
        pub fn renew(&self) {
            self.times.renew();
        }

        /// The state, once it is known whether the lock is watched or timed.
        fn asked(&self) -> State {
            if self.state.get() == UNASKED {
                self.state.set(match () {
                    () if WATCH.get().is_some() => WATCHED_FREE,
                    () if self.times.are_kept() => TIMED_FREE,
                    () => FREE,
                });
            }
            self.state.get()
        }

        fn take_watched(&self) -> Option<Guard<'_, T>> {
            let free = self.state.get() == WATCHED_FREE;
            free.then(|| {
                note_held::<T>();
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

        /// An open lock of a class.
        pub fn of(_class: super::LockClass, value: T) -> Self {
            Self::new(value)
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

        /// An open lock of a class.
        pub const fn of(_class: super::LockClass, value: T) -> Self {
            Self::new(value)
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

#[cfg(not(feature = "one-thread"))]
impl<T> Lock<T> {
    /// As [`Lock::lock`]; on one thread: for what Linux does as one of many readers.
    #[inline]
    pub fn share(&self) -> Guard<'_, T> {
        self.lock()
    }

    /// As [`Lock::lock`]; on one thread: for what Linux does without a lock.
    #[inline]
    pub fn look(&self) -> Guard<'_, T> {
        self.lock()
    }

    /// As [`Lock::try_lock`]; on one thread: for what Linux does as one of many readers.
    #[inline]
    pub fn try_share(&self) -> Option<Guard<'_, T>> {
        self.try_lock()
    }
}
#[cfg(feature = "one-thread")]
pub use inner::is_watching;
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

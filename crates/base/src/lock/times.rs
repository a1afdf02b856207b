//! When locks are held, in simulated time. Without the feature `one-thread` time passes by itself, and all of this is
//! empty.

/// How a hold goes with other holds of the same lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HoldMode {
    /// Alone.
    Alone,
    /// With others that share it.
    Shared,
    /// Not at all: Linux takes no lock for this.
    Unseen,
}

#[cfg(feature = "one-thread")]
pub use kept::{ClockGuard, LockClock, LockHold, Since, clock};
#[cfg(feature = "one-thread")]
pub use kept::{LockTimes, is_timing};
#[cfg(not(feature = "one-thread"))]
pub use nothing::{LockTimes, Since};

#[cfg(not(feature = "one-thread"))]
mod nothing {
    use super::HoldMode;
    use crate::lock::LockClass;
    use crate::units::Nanos;

    /// The beginning of a hold.
    #[derive(Clone, Copy)]
    pub struct Since;

    /// The times of one lock: none.
    pub struct LockTimes;

    impl LockTimes {
        /// Of a lock of `class`.
        pub const fn of(_class: LockClass) -> LockTimes {
            LockTimes
        }

        /// Whether the lock is free.
        #[inline(always)]
        pub fn is_free(&self, _mode: HoldMode) -> bool {
            true
        }

        /// A semaphore is taken.
        #[inline(always)]
        pub fn acquire_asleep(&self, _mode: HoldMode) -> (Since, Option<Nanos>) {
            (Since, None)
        }

        /// A hold since that time ends.
        #[inline(always)]
        pub fn release_since(&self, _mode: HoldMode, _since: Since) {}
    }
}

#[cfg(feature = "one-thread")]
mod kept {
    extern crate std;

    use super::HoldMode;
    use crate::lock::LockClass;
    use crate::units::Nanos;
    use core::cell::Cell;
    use core::ptr::NonNull;
    use std_alloc::rc::Rc;

    /// The beginning of a hold, in the clock's units: picoseconds.
    pub type Since = u64;

    std::thread_local! {
        /// This thread's clock, which the guard that has put it here keeps alive.
        static CLOCK: Cell<Option<NonNull<dyn LockClock>>> = const { Cell::new(None) };
    }

    /// A simulator's clock for each CPU.
    ///
    /// # Safety
    /// Its functions must not drop the guard that it was installed with ([`clock`]).
    #[allow(unsafe_code)]
    pub unsafe trait LockClock {
        /// The current CPU takes the lock; returns since when it has it, `Since::MAX` if time does not count. The CPU
        /// spins until then; but if the task `sleeps`, the call returns at once, and the caller must sleep until then.
        fn acquire(&self, hold: &LockHold, mode: HoldMode, sleeps: bool) -> Since;
        /// Whether the current CPU finds the lock free.
        fn is_free(&self, hold: &LockHold, mode: HoldMode) -> bool;
        /// The current CPU, which has had the lock since that time, releases it.
        fn release(&self, hold: &LockHold, mode: HoldMode, since: Since);
        /// It releases the lock, charges work, and takes the lock again; returns since when it has it now.
        fn pause(&self, hold: &LockHold, mode: HoldMode, since: Since, charge: &mut dyn FnMut()) -> Since;
    }

    /// Removes its clock when it is dropped.
    #[must_use = "the clock is removed when this is dropped"]
    pub struct ClockGuard(#[expect(dead_code, reason = "it is kept alive")] Rc<dyn LockClock>);

    impl Drop for ClockGuard {
        fn drop(&mut self) {
            CLOCK.set(None);
        }
    }

    /// Install this thread's clock. It applies to locks first taken while it is installed.
    pub fn clock(clock: Rc<dyn LockClock>) -> ClockGuard {
        CLOCK.set(Some(NonNull::from(&*clock)));
        ClockGuard(clock)
    }

    /// Whether locks of a class that are taken for the first time have times.
    pub fn is_timing() -> bool {
        CLOCK.get().is_some()
    }

    /// Ask the clock, if there is one.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn ask<T>(what: impl FnOnce(&dyn LockClock) -> T) -> Option<T> {
        // SAFETY: the guard that has installed the clock is alive and keeps it: it removes the clock when it is
        // dropped, which no function of the clock does.
        CLOCK.get().map(|clock| what(unsafe { clock.as_ref() }))
    }

    /// What the clock keeps with a lock; the memory manager does not look at it.
    #[derive(Debug)]
    pub struct LockHold {
        /// The lock's class.
        pub class: LockClass,
        /// The latest end of a hold.
        pub until: Cell<u64>,
        /// The beginning of the last hold.
        pub began: Cell<u64>,
        /// The CPU that had it, as the clock notes it; `u32::MAX`: none yet.
        pub by: Cell<u32>,
        /// Where holds are kept; `u32::MAX`: nowhere.
        pub history: Cell<u32>,
    }

    /// The times of one lock.
    pub struct LockTimes {
        hold: Option<LockHold>,
        mode: Cell<HoldMode>,
        since: Cell<Since>,
    }

    impl LockTimes {
        /// Of a lock that takes no simulated time.
        pub const fn none() -> LockTimes {
            LockTimes::with(None)
        }

        const fn with(hold: Option<LockHold>) -> LockTimes {
            LockTimes { hold, mode: Cell::new(HoldMode::Unseen), since: Cell::new(0) }
        }

        /// Of a lock of `class`.
        pub const fn of(class: LockClass) -> LockTimes {
            let hold = LockHold {
                class,
                until: Cell::new(0),
                began: Cell::new(0),
                by: Cell::new(u32::MAX),
                history: Cell::new(u32::MAX),
            };
            LockTimes::with(Some(hold))
        }

        /// As if the lock had never been held. The place where holds are kept stays.
        pub fn renew(&self) {
            if let Some(hold) = &self.hold {
                hold.until.set(0);
                hold.began.set(0);
                hold.by.set(u32::MAX);
            }
        }

        /// Whether somebody keeps them.
        pub fn are_kept(&self) -> bool {
            self.hold.is_some() && is_timing()
        }

        /// A short lock is taken.
        #[inline(always)]
        pub fn acquire(&self, mode: HoldMode) {
            self.mode.set(mode);
            if mode != HoldMode::Unseen
                && let Some(hold) = &self.hold
                && let Some(since) = ask(|clock| clock.acquire(hold, mode, false))
            {
                self.since.set(since);
            }
        }

        /// Whether the lock is free.
        pub fn is_free(&self, mode: HoldMode) -> bool {
            self.hold.as_ref().and_then(|hold| ask(|clock| clock.is_free(hold, mode))).unwrap_or(true)
        }

        /// A short lock is taken if it is free.
        pub fn try_acquire(&self, mode: HoldMode) -> bool {
            let free = self.is_free(mode);
            if free {
                self.acquire(mode);
            }
            free
        }

        /// A short lock is released.
        #[inline(always)]
        pub fn release(&self) {
            self.release_since(self.mode.get(), self.since.get());
        }

        /// A held lock is free while work is charged, and then taken again.
        #[inline]
        pub fn pause(&self, mut charge: impl FnMut()) {
            let (mode, since) = (self.mode.get(), self.since.get());
            let hold = self.hold.as_ref().filter(|_| mode != HoldMode::Unseen);
            match hold.and_then(|hold| ask(|clock| clock.pause(hold, mode, since, &mut charge))) {
                Some(since) => self.since.set(since),
                None => charge(),
            }
        }

        /// A semaphore is taken; returns until when the task must sleep before it has it. A writer spins, as Linux's
        /// does while the holder runs.
        pub fn acquire_asleep(&self, mode: HoldMode) -> (Since, Option<Nanos>) {
            let sleeps = mode == HoldMode::Shared;
            let hold = self.hold.as_ref().filter(|_| mode != HoldMode::Unseen);
            let since = hold.and_then(|hold| ask(|clock| clock.acquire(hold, mode, sleeps)));
            let since = since.unwrap_or(Since::MAX);
            (since, (sleeps && since != Since::MAX).then(|| since.div_ceil(1000)))
        }

        /// A hold since that time ends.
        #[inline]
        pub fn release_since(&self, mode: HoldMode, since: Since) {
            if mode != HoldMode::Unseen
                && let Some(hold) = &self.hold
            {
                ask(|clock| clock.release(hold, mode, since));
            }
        }
    }
}

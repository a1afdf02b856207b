//! A short lock that many hold together or one holds alone, without a value of its own.
//!
//! One that wants it alone keeps newcomers out while it waits for those inside, so it waits for them and not for ever.
//! A task that is inside must not come in once more: it would wait for one that waits for it.
//!
//! On one thread it is a checked borrow, and nobody meets anybody inside, unless it is watched. It takes no simulated
//! time: Linux has no such lock, its readers find tables by RCU.

#[cfg(not(feature = "one-thread"))]
pub use spinning::{Gate, GateGuard};
#[cfg(feature = "one-thread")]
pub use watched::{Gate, GateGuard};

#[cfg(not(feature = "one-thread"))]
mod spinning {
    use crate::primitive::{Ordering::*, modelled::AtomicU32};

    /// Somebody holds the gate alone, or waits for those inside to leave. The bits below count those inside.
    const ALONE: u32 = 1 << 31;

    /// A short lock for many or one.
    #[derive(Default)]
    pub struct Gate(AtomicU32);

    /// Releases the gate when dropped.
    pub struct GateGuard<'a> {
        gate: &'a Gate,
        /// What it has put into the word: one of those inside, or [`ALONE`].
        put: u32,
    }

    impl Gate {
        /// Go in with others.
        #[inline]
        pub fn share(&self) -> GateGuard<'_> {
            if self.0.fetch_add(1, Acquire) & ALONE != 0 {
                self.share_slowly();
            }
            GateGuard { gate: self, put: 1 }
        }

        #[cold]
        #[inline(never)]
        fn share_slowly(&self) {
            loop {
                // A task that waits to be alone must not see this one, which is not inside.
                self.0.fetch_sub(1, Relaxed);
                while self.0.load(Relaxed) & ALONE != 0 {
                    relax();
                }
                if self.0.fetch_add(1, Acquire) & ALONE == 0 {
                    return;
                }
            }
        }

        /// Go in with others, unless one is in alone or waits to be.
        #[inline]
        pub fn try_share(&self) -> Option<GateGuard<'_>> {
            if self.0.fetch_add(1, Acquire) & ALONE != 0 {
                self.0.fetch_sub(1, Relaxed);
                return None;
            }
            Some(GateGuard { gate: self, put: 1 })
        }

        /// Go in alone.
        #[inline]
        pub fn alone(&self) -> GateGuard<'_> {
            if !self.take() {
                self.alone_slowly();
            }
            GateGuard { gate: self, put: ALONE }
        }

        #[inline]
        fn take(&self) -> bool {
            self.0.compare_exchange(0, ALONE, Acquire, Relaxed).is_ok()
        }

        #[cold]
        #[inline(never)]
        fn alone_slowly(&self) {
            while self.0.fetch_or(ALONE, Acquire) & ALONE != 0 {
                relax();
            }
            while self.0.load(Acquire) != ALONE {
                relax();
            }
        }

        /// Go in alone if nobody is inside.
        #[inline]
        pub fn try_alone(&self) -> Option<GateGuard<'_>> {
            self.take().then(|| GateGuard { gate: self, put: ALONE })
        }
    }

    impl GateGuard<'_> {
        /// Whether no other task can be inside.
        #[inline]
        pub fn is_alone(&self) -> bool {
            self.put == ALONE
        }

        /// Leave, and come back alone. Others may have been alone in between.
        pub fn become_alone(&mut self) {
            if !self.is_alone() {
                self.gate.0.fetch_sub(1, Release);
                self.gate.alone_slowly();
                self.put = ALONE;
            }
        }
    }

    impl Drop for GateGuard<'_> {
        #[inline]
        fn drop(&mut self) {
            self.gate.0.fetch_sub(self.put, Release);
        }
    }

    /// Wait a little for another CPU.
    #[inline]
    pub(in crate::lock) fn relax() {
        #[cfg(feature = "loom")]
        loom::thread::yield_now();
        #[cfg(feature = "shuttle")]
        shuttle::thread::yield_now();
        #[cfg(not(any(feature = "loom", feature = "shuttle")))]
        core::hint::spin_loop();
    }
}

#[cfg(feature = "one-thread")]
mod watched {
    use crate::lock::inner::{self, is_watching};
    use core::cell::Cell;

    /// Number of those inside, or [`ALONE`]; if the gate is watched, that and [`WATCHED`].
    type State = i32;
    const ALONE: State = -1;
    const WATCHED: State = -(1 << 16);
    /// Never taken: it is not yet known whether the gate is watched.
    const UNASKED: State = State::MIN;

    /// A short lock for many or one.
    pub struct Gate(Cell<State>);

    /// Releases the gate when dropped.
    pub struct GateGuard<'a> {
        gate: &'a Gate,
        by: State,
    }

    impl Default for Gate {
        fn default() -> Gate {
            Gate(Cell::new(UNASKED))
        }
    }

    impl Gate {
        /// Go in with others.
        #[inline(always)]
        pub fn share(&self) -> GateGuard<'_> {
            self.enter(1)
        }

        /// Go in with others, unless one is in alone or waits to be.
        #[inline]
        pub fn try_share(&self) -> Option<GateGuard<'_>> {
            self.try_enter(1)
        }

        /// Go in alone.
        #[inline(always)]
        pub fn alone(&self) -> GateGuard<'_> {
            self.enter(ALONE)
        }

        /// Go in alone if nobody is inside.
        pub fn try_alone(&self) -> Option<GateGuard<'_>> {
            self.try_enter(ALONE)
        }

        #[inline(always)]
        fn enter(&self, by: State) -> GateGuard<'_> {
            self.go_in(by);
            GateGuard { gate: self, by }
        }

        #[inline(always)]
        fn go_in(&self, by: State) {
            if self.0.get() != 0 {
                return self.go_in_slowly(by);
            }
            self.0.set(by);
        }

        #[cold]
        #[inline(never)]
        fn go_in_slowly(&self, by: State) {
            if !self.asked() {
                assert_eq!(
                    self.0.get(),
                    0,
                    "a held lock is taken again: on one thread its holder can never release it"
                );
                return self.go_in(by);
            }
            inner::lock_point();
            inner::wanted::<Gate>();
            while !self.take_watched(by) {
                inner::wait_for_holder();
            }
        }

        fn try_enter(&self, by: State) -> Option<GateGuard<'_>> {
            if !self.asked() {
                return (self.0.get() == 0).then(|| self.enter(by));
            }
            inner::lock_point();
            self.take_watched(by).then(|| GateGuard { gate: self, by })
        }

        /// Whether the gate is watched.
        fn asked(&self) -> bool {
            if self.0.get() == UNASKED {
                self.0.set(if is_watching() { WATCHED } else { 0 });
            }
            self.0.get() <= WATCHED / 2
        }

        fn take_watched(&self, by: State) -> bool {
            let inside = self.0.get() - WATCHED;
            let free = inside == 0 || inside > 0 && by > 0;
            if free {
                inner::note_held::<Gate>();
                self.0.set(self.0.get() + by);
            }
            free
        }

        #[inline(always)]
        fn leave(&self, by: State) {
            let state = self.0.get() - by;
            self.0.set(state);
            if state != 0 {
                inner::released::<Gate>();
            }
        }
    }

    impl GateGuard<'_> {
        /// Whether no other task can be inside.
        #[inline(always)]
        pub fn is_alone(&self) -> bool {
            self.by == ALONE
        }

        /// Leave, and come back alone. Others may have been alone in between.
        pub fn become_alone(&mut self) {
            if !self.is_alone() {
                self.gate.leave(self.by);
                self.gate.go_in(ALONE);
                self.by = ALONE;
            }
        }
    }

    impl Drop for GateGuard<'_> {
        #[inline(always)]
        fn drop(&mut self) {
            self.gate.leave(self.by);
        }
    }
}

#[cfg(all(test, feature = "one-thread"))]
mod tests {
    use super::*;
    use crate::lock::{Watch, held, watch};

    #[test]
    fn a_watched_gate_lets_many_in_or_one() {
        watch(Some(Watch { lock_point: || {}, wanted: |_, _| {}, taken: || {} }));
        let gate = Gate::default();
        let one = gate.share();
        let mut two = gate.share();
        assert!(held() == 2 && gate.try_alone().is_none());
        drop(one);
        two.become_alone();
        assert!(two.is_alone() && held() == 1 && gate.try_share().is_none());
        drop(two);
        assert!(held() == 0 && gate.try_alone().is_some());
        watch(None);
    }

    #[test]
    #[should_panic(expected = "on one thread its holder can never release it")]
    fn coming_in_twice_on_one_thread_panics() {
        let gate = Gate::default();
        let _inside = gate.share();
        drop(gate.share());
    }
}

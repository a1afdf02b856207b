//! Work that Linux collects on each CPU before it takes a lock for all of it.
//!
//! Here it is done at once, so that nothing has to look for it in a batch, and on machines whose CPUs run at the same
//! time each piece takes the lock. In simulated time the lock is held as Linux holds it: what only fills a batch takes
//! no lock ([`Lock::look`](crate::lock::Lock::look)), and what completes one takes it and is charged for all.

#[cfg(not(feature = "one-thread"))]
pub(crate) use at_once::Batched;

#[cfg(feature = "one-thread")]
pub(crate) use timed::Batched;

#[cfg(not(feature = "one-thread"))]
mod at_once {
    use crate::machine::{Machine, Work};
    use crate::platform::Platform;

    /// Nothing: each piece of work is a batch of its own.
    pub(crate) struct Batched<const KINDS: usize>;

    impl<const KINDS: usize> Batched<KINDS> {
        pub(crate) fn new(_cpus: usize) -> Self {
            Batched
        }

        /// Whether the next piece of work of this kind completes a batch of `size`.
        #[inline(always)]
        pub(crate) fn completes<M: Machine>(
            &self,
            _platform: &Platform<M>,
            _kind: usize,
            _size: impl FnOnce() -> u64,
        ) -> bool {
            true
        }

        /// Under the lock: work was done. `completed`: what was said about its first piece.
        #[inline(always)]
        pub(crate) fn charge<M: Machine>(
            &self,
            platform: &Platform<M>,
            (_kind, work): (usize, Work),
            _completed: bool,
            pieces: u64,
        ) {
            platform.charge(work, pieces);
        }

        /// Under the lock: this CPU empties its batch.
        #[inline(always)]
        pub(crate) fn drain<M: Machine>(&self, _platform: &Platform<M>, _kind: usize, _work: Work) {}
    }
}

#[cfg(feature = "one-thread")]
mod timed {
    use crate::machine::{Machine, Work};
    use crate::platform::Platform;
    use core::cell::Cell;
    use std_alloc::boxed::Box;

    /// Work that has not been charged yet, by CPU and kind.
    pub(crate) struct Batched<const KINDS: usize>(Box<[[Cell<u64>; KINDS]]>);

    impl<const KINDS: usize> Batched<KINDS> {
        pub(crate) fn new(cpus: usize) -> Self {
            Batched((0..cpus).map(|_| [const { Cell::new(0) }; KINDS]).collect())
        }

        fn of<M: Machine>(&self, platform: &Platform<M>, kind: usize) -> &Cell<u64> {
            &self.0[platform.machine.cpu().index()][kind]
        }

        /// Whether the next piece of work of this kind completes a batch of `size`.
        #[inline]
        pub(crate) fn completes<M: Machine>(
            &self,
            platform: &Platform<M>,
            kind: usize,
            size: impl FnOnce() -> u64,
        ) -> bool {
            self.of(platform, kind).get() + 1 >= size()
        }

        /// Under the lock: work was done. `completed`: what was said about its first piece.
        #[inline]
        pub(crate) fn charge<M: Machine>(
            &self,
            platform: &Platform<M>,
            (kind, work): (usize, Work),
            completed: bool,
            pieces: u64,
        ) {
            let batch = self.of(platform, kind);
            batch.set(batch.get() + pieces);
            if completed {
                platform.charge(work, batch.take());
            }
        }

        /// Under the lock: this CPU empties its batch.
        #[inline]
        pub(crate) fn drain<M: Machine>(&self, platform: &Platform<M>, kind: usize, work: Work) {
            let batch = self.of(platform, kind);
            if batch.get() > 0 {
                platform.charge(work, batch.take());
            }
        }
    }
}

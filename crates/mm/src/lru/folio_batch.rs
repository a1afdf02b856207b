//! When moves of folios between lists take the vector's lock.
//!
//! Linux collects folios that are to be added, activated, deactivated or rotated in a batch of each CPU and kind of
//! move, and moves them all under one hold of the lock, or before the CPU isolates folios. Here a folio moves at once,
//! so that nothing has to look for it in a batch, and on machines whose CPUs run at the same time each move takes the
//! lock. In simulated time the lock is held as Linux holds it: moves that only fill a batch take no lock, and the move
//! that completes one takes it and is charged for all.
//!
//! Source: mm/swap.c, mm/mlock.c, include/linux/pagevec.h of Linux 6.12.

use crate::machine::Work;

/// A kind of move that has a batch of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BatchKind {
    /// New folios come to a list.
    Add,
    /// A used folio.
    Activate,
    /// MADV_COLD.
    Deactivate,
    /// A file's folio that could not be dropped.
    DeactivateFile,
    /// MADV_FREE.
    LazyFree,
    /// A folio whose write has ended.
    Rotate,
    /// mlock and munlock.
    Mlock,
}

impl BatchKind {
    /// The work of one move.
    #[inline(always)]
    fn work(self) -> Work {
        if self == BatchKind::Add { Work::LruAdd } else { Work::LruMove }
    }
}

#[cfg(not(feature = "one-thread"))]
pub(super) use at_once::FolioBatches;

#[cfg(feature = "one-thread")]
pub(super) use timed::FolioBatches;

#[cfg(not(feature = "one-thread"))]
mod at_once {
    use super::BatchKind;
    use crate::frame::Frame;
    use crate::machine::Machine;
    use crate::platform::Platform;

    /// Nothing: each move is a batch of its own.
    pub(in super::super) struct FolioBatches;

    impl FolioBatches {
        pub(in super::super) fn new(_cpus: usize) -> FolioBatches {
            FolioBatches
        }

        /// Whether the move of this folio completes a batch.
        #[inline(always)]
        pub(in super::super) fn completes<M: Machine>(
            &self,
            _platform: &Platform<M>,
            _kind: BatchKind,
            _frame: &Frame,
        ) -> bool {
            true
        }

        /// Under the vector's lock: folios have moved. `completed`: what was said about the first.
        #[inline(always)]
        pub(in super::super) fn charge<M: Machine>(
            &self,
            platform: &Platform<M>,
            kind: BatchKind,
            _completed: bool,
            moves: u64,
        ) {
            platform.charge(kind.work(), moves);
        }

        /// Under a vector's lock: this CPU empties its batches.
        #[inline(always)]
        pub(in super::super) fn drain<M: Machine>(&self, _platform: &Platform<M>) {}
    }
}

#[cfg(feature = "one-thread")]
mod timed {
    use super::BatchKind;
    use crate::frame::Frame;
    use crate::machine::Machine;
    use crate::platform::Platform;
    use core::cell::Cell;
    use std_alloc::boxed::Box;

    /// Folios of a batch.
    const BATCH: u64 = 31;
    const KINDS: [BatchKind; 7] = {
        use BatchKind::*;
        [Add, Activate, Deactivate, DeactivateFile, LazyFree, Rotate, Mlock]
    };

    /// Moves that have not been charged yet, by CPU and kind.
    pub(in super::super) struct FolioBatches(Box<[[Cell<u64>; KINDS.len()]]>);

    impl FolioBatches {
        pub(in super::super) fn new(cpus: usize) -> FolioBatches {
            FolioBatches((0..cpus).map(|_| Default::default()).collect())
        }

        fn of<M: Machine>(&self, platform: &Platform<M>) -> &[Cell<u64>; KINDS.len()] {
            &self.0[platform.machine.cpu().index()]
        }

        /// Whether the move of this folio completes a batch. Large folios are not kept in batches.
        pub(in super::super) fn completes<M: Machine>(
            &self,
            platform: &Platform<M>,
            kind: BatchKind,
            frame: &Frame,
        ) -> bool {
            frame.pages() > 1 || self.of(platform)[kind as usize].get() + 1 >= BATCH
        }

        /// Under the vector's lock: folios have moved. `completed`: what was said about the first.
        pub(in super::super) fn charge<M: Machine>(
            &self,
            platform: &Platform<M>,
            kind: BatchKind,
            completed: bool,
            moves: u64,
        ) {
            let batch = &self.of(platform)[kind as usize];
            batch.set(batch.get() + moves);
            if completed {
                platform.charge(kind.work(), batch.take());
            }
        }

        /// Under a vector's lock: this CPU empties its batches.
        pub(in super::super) fn drain<M: Machine>(&self, platform: &Platform<M>) {
            for (kind, batch) in KINDS.iter().zip(self.of(platform)) {
                if batch.get() > 0 {
                    platform.charge(kind.work(), batch.take());
                }
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::knobs::Knobs;
        use crate::testing::TestMachine;
        use crate::units::*;

        #[test]
        fn the_31st_move_of_a_cpu_completes_a_batch_and_so_does_a_large_folio() {
            let platform = Platform::new(TestMachine::simple(2, 1024), Knobs::default());
            let batches = FolioBatches::new(2);
            let frame = &platform.frames[Pfn(0)];
            let moved = |kind| {
                let completes = batches.completes(&platform, kind, frame);
                batches.charge(&platform, kind, completes, 1);
                completes
            };
            assert!((1..31).all(|_| !moved(BatchKind::Add)));
            assert!(!moved(BatchKind::Activate), "each kind has its own");
            platform.machine.run_on(1);
            assert!(!moved(BatchKind::Add), "and each CPU");
            platform.machine.run_on(0);
            assert!(moved(BatchKind::Add));
            assert!(!moved(BatchKind::Add));
            batches.drain(&platform);
            assert!((1..31).all(|_| !moved(BatchKind::Add)));
            platform.frames.make_folio(Pfn(0), Order(4));
            assert!(batches.completes(&platform, BatchKind::Rotate, frame));
        }
    }
}

//! When moves of folios between lists take the vector's lock.
//!
//! Linux collects folios that are to be added, activated, deactivated or rotated in a batch of each CPU and kind of
//! move, and moves them all under one hold of the lock, or before the CPU isolates folios ([`Batched`]).
//!
//! Source: mm/swap.c, mm/mlock.c, include/linux/pagevec.h of Linux 6.12.

use crate::batched::Batched;
use crate::frame::Frame;
use crate::knobs::Knob;
use crate::machine::{Machine, Work};
use crate::platform::Platform;

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

const KINDS: [BatchKind; 7] = {
    use BatchKind::*;
    [Add, Activate, Deactivate, DeactivateFile, LazyFree, Rotate, Mlock]
};

impl BatchKind {
    /// The work of one move.
    #[inline(always)]
    fn work(self) -> Work {
        if self == BatchKind::Add { Work::LruAdd } else { Work::LruMove }
    }
}

/// The batches of all CPUs.
pub(super) struct FolioBatches(Batched<{ KINDS.len() }>);

impl FolioBatches {
    pub(super) fn new(cpus: usize) -> FolioBatches {
        FolioBatches(Batched::new(cpus))
    }

    /// Whether the move of this folio completes a batch. Large folios are not kept in batches.
    #[inline(always)]
    pub(super) fn completes<M: Machine>(
        &self,
        platform: &Platform<M>,
        kind: BatchKind,
        frame: &Frame,
    ) -> bool {
        let size = || if frame.pages() > 1 { 1 } else { platform.knobs.get(Knob::LruBatch) };
        self.0.completes(platform, kind as usize, size)
    }

    /// Under the vector's lock: folios have moved. `completed`: what was said about the first.
    #[inline(always)]
    pub(super) fn charge<M: Machine>(
        &self,
        platform: &Platform<M>,
        kind: BatchKind,
        completed: bool,
        moves: u64,
    ) {
        self.0.charge(platform, (kind as usize, kind.work()), completed, moves);
    }

    /// Under a vector's lock: this CPU empties its batches.
    #[inline(always)]
    pub(super) fn drain<M: Machine>(&self, platform: &Platform<M>) {
        for kind in KINDS {
            self.0.drain(platform, kind as usize, kind.work());
        }
    }
}

#[cfg(all(test, feature = "one-thread"))]
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
        platform.knobs.set(Knob::LruBatch, 15).unwrap();
        assert!((1..15).all(|_| !moved(BatchKind::Rotate)) && moved(BatchKind::Rotate));
        platform.frames.make_folio(Pfn(0), Order(4));
        assert!(batches.completes(&platform, BatchKind::Rotate, frame));
    }
}

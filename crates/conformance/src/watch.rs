//! The suite's own transfers.

use mm::lock::Lock;
use mm::machine::Io;
use std_alloc::vec::Vec;

/// Transfers that the suite submitted itself. The memory manager must not hear of their ends, so the kernel
/// asks:
///
/// ```ignore
/// if !watch.claims(&io) {
///     mm.io_done(&io);
/// }
/// ```
#[derive(Default)]
pub struct IoWatch {
    /// Each transfer of the running check with the number of its ends so far.
    watched: Lock<Vec<(Io, u32)>>,
}

impl IoWatch {
    /// An empty list.
    pub const fn new() -> IoWatch {
        IoWatch { watched: Lock::new(Vec::new()) }
    }

    /// Called when a transfer has ended. Returns whether it is the suite's.
    pub fn claims(&self, io: &Io) -> bool {
        let mut watched = self.watched.lock();
        let own = watched.iter_mut().find(|(own, _)| own == io);
        own.map(|(_, ends)| *ends += 1).is_some()
    }

    /// Expect a transfer that the suite is about to submit. An equal one submitted before must have ended.
    pub(crate) fn expect(&self, io: Io) {
        let mut watched = self.watched.lock();
        watched.retain(|(own, _)| *own != io);
        watched.push((io, 0));
    }

    /// How often a transfer has ended.
    pub(crate) fn ends(&self, io: &Io) -> u32 {
        self.watched.lock().iter().find(|(own, _)| own == io).map_or(0, |&(_, ends)| ends)
    }

    /// Forget all transfers after a check.
    pub(crate) fn forget(&self) {
        self.watched.lock().clear();
    }
}

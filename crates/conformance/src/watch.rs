//! Which transfers are the suite's own.

use mm::lock::Lock;
use mm::machine::Io;
use std_alloc::vec::Vec;

/// Transfers that the suite has submitted itself. Their ends are not the memory manager's business, so the kernel asks:
///
/// ```ignore
/// if !watch.claims(&io) {
///     mm.io_done(&io);
/// }
/// ```
#[derive(Default)]
pub struct IoWatch {
    /// Each with the number of its ends so far. Only what the suite watches now.
    watched: Lock<Vec<(Io, u32)>>,
}

impl IoWatch {
    /// Nothing is watched.
    pub const fn new() -> IoWatch {
        IoWatch { watched: Lock::new(Vec::new()) }
    }

    /// A transfer has ended: is it the suite's?
    pub fn claims(&self, io: &Io) -> bool {
        let mut watched = self.watched.lock();
        let own = watched.iter_mut().find(|(own, _)| own == io);
        own.map(|(_, ends)| *ends += 1).is_some()
    }

    /// The suite is about to submit this; if it has submitted the very same before, that has ended.
    pub(crate) fn expect(&self, io: Io) {
        let mut watched = self.watched.lock();
        watched.retain(|(own, _)| *own != io);
        watched.push((io, 0));
    }

    /// How often a transfer has ended.
    pub(crate) fn ends(&self, io: &Io) -> u32 {
        self.watched.lock().iter().find(|(own, _)| own == io).map_or(0, |&(_, ends)| ends)
    }

    /// A check is over.
    pub(crate) fn forget(&self) {
        self.watched.lock().clear();
    }
}

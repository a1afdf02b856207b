//! Limits on dirty memory.

use super::Writeback;
use crate::knobs::Knob;
use crate::machine::{Machine, Scope, Stall, WaitKey, Work};
use crate::mm_core::MmCore;
use crate::primitive::Ordering::Relaxed;
use crate::stat::Stat;
use crate::units::*;

/// Calls of [`balance_dirty`] per check of the counters while there is no pressure.
const CALLS: u32 = 8;
/// The longest single sleep of a writer.
const MAX_PAUSE: Nanos = 10_000_000;

/// Thresholds for dirty pages and those being written, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirtyLimits {
    /// Above this the flusher writes.
    pub background: u64,
    /// Above this writers wait.
    pub dirty: u64,
}

impl DirtyLimits {
    /// Thresholds as shares, in percent, of `available` pages.
    pub fn new(available: u64, dirty_ratio: u64, background_ratio: u64) -> DirtyLimits {
        let dirty = available * dirty_ratio / 100;
        let background = available * background_ratio / 100;
        // The thresholds must differ.
        DirtyLimits { dirty, background: if background >= dirty { dirty / 2 } else { background } }
    }

    /// Up to this writers are not throttled.
    pub(crate) fn freerun(&self) -> u64 {
        (self.dirty + self.background) / 2
    }

    /// Time that a writer pauses between [`DirtyLimits::freerun`] and the dirty threshold: the less room, the longer.
    fn pause(&self, dirty: u64) -> Nanos {
        let room = (self.dirty - self.freerun()).max(1);
        let used = dirty.saturating_sub(self.freerun()).min(room);
        MAX_PAUSE * used / room
    }
}

/// The current thresholds. Free pages and the file cache are available.
pub fn limits<M: Machine>(core: &MmCore<M>) -> DirtyLimits {
    let pages = [Stat::NrFreePages, Stat::NrInactiveFile, Stat::NrActiveFile];
    let available: i64 = pages.iter().map(|&stat| core.stats.read(stat)).sum();
    DirtyLimits::new(
        available.max(0) as u64,
        core.knobs.get(Knob::DirtyRatio),
        core.knobs.get(Knob::DirtyBackgroundRatio),
    )
}

/// Whether more pages are dirty than the background threshold allows.
pub(super) fn is_over_background<M: Machine>(core: &MmCore<M>) -> bool {
    core.stats.read(Stat::NrDirty).max(0) as u64 > limits(core).background
}

/// Pages that are dirty or being written.
fn dirty_pages<M: Machine>(core: &MmCore<M>) -> u64 {
    (core.stats.read(Stat::NrDirty) + core.stats.read(Stat::NrWriteback)).max(0) as u64
}

/// Throttle a caller that has dirtied pages of `file`: start the flusher above the background threshold, and sleep
/// above [`DirtyLimits::freerun`]. Returns whether it slept.
pub(crate) fn balance_dirty<M: Machine>(core: &MmCore<M>, state: &Writeback, file: FileId) -> bool {
    if core.cache.file(file).is_shmem() {
        return false;
    }
    let calls = state.calls.fetch_add(1, Relaxed);
    if !calls.is_multiple_of(CALLS) && !state.pressed.load(Relaxed) {
        return false;
    }
    let _scope = core.scope(Scope::BalanceDirtyPages);
    let mut slept = false;
    loop {
        let limits = limits(core);
        let dirty = dirty_pages(core);
        state.pressed.store(dirty > limits.background, Relaxed);
        // Wake it every time: it may have checked before other tasks dirtied more pages.
        if dirty > limits.background && !state.writing.load(Relaxed) {
            wake_flusher(core);
        }
        if dirty <= limits.freerun() || core.machine.stopping() {
            return slept;
        }
        let _stall = core.stall(Stall::Io);
        if dirty <= limits.dirty {
            let ticket = core.machine.ticket(WaitKey::Timer);
            core.machine.wait(ticket, Some(core.machine.now() + limits.pause(dirty)));
            return true;
        }
        slept = true;
        core.cache.wait_for_a_write(core, core.machine.now() + MAX_PAUSE);
    }
}

fn wake_flusher<M: Machine>(core: &MmCore<M>) {
    core.charge(Work::DaemonWake, 1);
    core.machine.wake(WaitKey::Flusher);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_shares_that_differ() {
        assert_eq!(DirtyLimits::new(1000, 20, 10), DirtyLimits { background: 100, dirty: 200 });
        assert_eq!(DirtyLimits::new(1000, 20, 20), DirtyLimits { background: 100, dirty: 200 });
        assert_eq!(DirtyLimits::new(0, 20, 10), DirtyLimits { background: 0, dirty: 0 });
    }

    #[test]
    fn pause_grows_from_zero_to_the_maximum() {
        let limits = DirtyLimits { background: 100, dirty: 200 };
        assert_eq!(limits.freerun(), 150);
        assert_eq!(
            [150, 175, 200, 900].map(|dirty| limits.pause(dirty)),
            [0, MAX_PAUSE / 2, MAX_PAUSE, MAX_PAUSE]
        );
    }
}

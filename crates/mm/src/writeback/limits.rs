//! How much of memory may be dirty.

use super::Writeback;
use crate::knobs::Knob;
use crate::machine::{Machine, Scope, WaitKey, Work};
use crate::primitive::Ordering::Relaxed;
use crate::stat::Stat;
use crate::store::Store;
use crate::units::*;

/// Calls of [`balance_dirty`] for each look at the counters while there is no pressure.
const CALLS: u32 = 8;
/// The longest that a writer sleeps at once.
const MAX_PAUSE: Nanos = 10_000_000;

/// Thresholds for dirty pages and those being written, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Beyond it the flusher writes.
    pub background: u64,
    /// Beyond it writers wait.
    pub dirty: u64,
}

impl Limits {
    /// Shares, in percent, of `available` pages.
    pub fn new(available: u64, dirty_ratio: u64, background_ratio: u64) -> Limits {
        let dirty = available * dirty_ratio / 100;
        let background = available * background_ratio / 100;
        // There must be room between the two.
        Limits { dirty, background: if background >= dirty { dirty / 2 } else { background } }
    }

    /// Up to here writers run freely.
    pub fn freerun(&self) -> u64 {
        (self.dirty + self.background) / 2
    }

    /// How long a writer pauses between [`Limits::freerun`] and the dirty threshold: the longer the less room there is.
    fn pause(&self, dirty: u64) -> Nanos {
        let room = (self.dirty - self.freerun()).max(1);
        let used = dirty.saturating_sub(self.freerun()).min(room);
        MAX_PAUSE * used / room
    }
}

/// The thresholds now. Available is what is free or caches files.
pub fn limits<M: Machine>(st: &Store<M>) -> Limits {
    let pages = [Stat::NrFreePages, Stat::NrInactiveFile, Stat::NrActiveFile];
    let available: i64 = pages.iter().map(|&stat| st.stats.read(stat)).sum();
    Limits::new(
        available.max(0) as u64,
        st.knobs.get(Knob::DirtyRatio),
        st.knobs.get(Knob::DirtyBackgroundRatio),
    )
}

/// Is there more to write than may be left lying?
pub(super) fn is_over_background<M: Machine>(st: &Store<M>) -> bool {
    st.stats.read(Stat::NrDirty).max(0) as u64 > limits(st).background
}

/// Pages that are dirty or being written.
fn dirty_pages<M: Machine>(st: &Store<M>) -> u64 {
    (st.stats.read(Stat::NrDirty) + st.stats.read(Stat::NrWriteback)).max(0) as u64
}

/// The caller has made pages of `file` dirty: start the flusher if there are too many, and sleep if there are far too
/// many. Returns whether it slept.
pub fn balance_dirty<M: Machine>(st: &Store<M>, state: &Writeback, file: FileId) -> bool {
    if st.cache.file(file).is_shmem() {
        return false;
    }
    let calls = state.calls.fetch_add(1, Relaxed);
    if !calls.is_multiple_of(CALLS) && !state.pressed.load(Relaxed) {
        return false;
    }
    let _scope = st.scope(Scope::BalanceDirtyPages);
    let mut slept = false;
    loop {
        let limits = limits(st);
        let dirty = dirty_pages(st);
        state.pressed.store(dirty > limits.background, Relaxed);
        // Each time: it may have looked before others made more pages dirty.
        if dirty > limits.background && !state.writing.load(Relaxed) {
            wake_flusher(st);
        }
        if dirty <= limits.freerun() || st.machine.stopping() {
            return slept;
        }
        if dirty <= limits.dirty {
            let ticket = st.machine.ticket(WaitKey::Timer);
            st.machine.wait(ticket, Some(st.machine.now() + limits.pause(dirty)));
            return true;
        }
        slept = true;
        st.cache.wait_for_a_write(st.memory(), st.machine.now() + MAX_PAUSE);
    }
}

fn wake_flusher<M: Machine>(st: &Store<M>) {
    st.charge(Work::DaemonWake, 1);
    st.machine.wake(WaitKey::Flusher);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_shares_with_room_between() {
        assert_eq!(Limits::new(1000, 20, 10), Limits { background: 100, dirty: 200 });
        assert_eq!(Limits::new(1000, 20, 20), Limits { background: 100, dirty: 200 });
        assert_eq!(Limits::new(0, 20, 10), Limits { background: 0, dirty: 0 });
    }

    #[test]
    fn pauses_grow_from_nothing_to_the_longest() {
        let limits = Limits { background: 100, dirty: 200 };
        assert_eq!(limits.freerun(), 150);
        assert_eq!(
            [150, 175, 200, 900].map(|dirty| limits.pause(dirty)),
            [0, MAX_PAUSE / 2, MAX_PAUSE, MAX_PAUSE]
        );
    }
}

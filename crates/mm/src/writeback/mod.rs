//! Writing dirty pages of files back: on request, by age, and by amount.
//!
//! A page becomes dirty in the cache ([`Cache::mark_dirty`](crate::cache::Cache::mark_dirty)) and is written by one of
//! - the flusher, a daemon: when more than the background share of memory is dirty, when pages have been dirty for too
//!   long, or when reclaim meets nothing but dirty pages;
//! - whoever asks for it: fsync, msync.
//!
//! Those who make pages dirty faster than the device takes them are slowed down ([`balance_dirty`]): gently when the
//! amount has passed the middle between the background and the dirty threshold, until it falls when it has passed the
//! latter. (Linux sets each writer's pace from the measured bandwidth of the device instead.)
//!
//! Order of one folio's write: lock the folio; write-protect and clean all its entries, flushed
//! ([`mkclean`](crate::rmap::Rmap::mkclean)), and flush what a call has emptied and not flushed yet; start. A store
//! that comes later faults, and makes the page dirty again.

mod flusher;
mod limits;
#[cfg(test)]
mod tests;

pub use flusher::flusher;
pub use limits::{DirtyLimits, balance_dirty, limits};

use crate::cache::tree::{MAX_INDEX, TreeMark};
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Machine, Scope};
use crate::mm_core::MmCore;
use crate::primitive::{AtomicBool, AtomicU32};
use crate::stat::Stat;
use crate::units::*;
use core::ops::Range;

/// Pages that may be under way to devices before who writes for no one in particular waits for some to arrive: 4 MiB,
/// as much as a device's queue holds.
const QUEUE_PAGES: i64 = 1024;
/// Pages written between two looks at the queue.
const LOOK_EVERY: u64 = 32;

/// The longest that the flusher sleeps before it looks again whether a write has ended, in nanoseconds.
const PATIENCE: Nanos = 10_000_000;

/// What write-back remembers.
#[derive(Default)]
pub struct Writeback {
    /// Calls of [`balance_dirty`] since the last look at the counters.
    calls: AtomicU32,
    /// At the last look there was too much.
    pressed: AtomicBool,
    /// The flusher is awake.
    writing: AtomicBool,
}

/// Write all dirty pages of `[first, end)` of a file, in order, and wait until they, and those that were being written
/// already, have arrived.
pub fn sync_range<M: Machine>(
    core: &MmCore<M>,
    _state: &Writeback,
    file: FileId,
    first: PageIndex,
    end: PageIndex,
) {
    if core.cache.file(file).is_shmem() {
        return;
    }
    let range = first.0..end.0.min(MAX_INDEX);
    write_chosen(core, file, range.clone(), u64::MAX, Wait::ForPage);
    let mut from = range.start;
    while let Some((index, pfn)) = core.cache.next_marked(core, file, TreeMark::Writeback, from..range.end) {
        from = index.0 + core.frames[pfn].pages() as u64;
        core.wait_writeback(pfn);
        core.put(pfn);
    }
}

/// What to do about a page that is being written already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Wait, and write what has changed since: the caller promises that all is on the device.
    ForPage,
    /// Leave it for the next time.
    Never,
}

/// Start writing the folios in a range that are dirty now, about `most` pages at most, in order. Returns how many pages
/// were started.
fn write_chosen<M: Machine>(core: &MmCore<M>, file: FileId, range: Range<u64>, most: u64, wait: Wait) -> u64 {
    let _scope = core.scope(Scope::DoWritepages);
    // Pages that become dirty while we write are not chosen, so this ends however fast they do.
    if core.cache.choose_dirty(file, range.clone(), most) == 0 {
        return 0;
    }
    let mut from = range.start;
    let (mut started, mut next_look) = (0, LOOK_EVERY - 1);
    while let Some((index, pfn)) = core.cache.next_marked(core, file, TreeMark::ToWrite, from..range.end) {
        let pages = core.frames[pfn].pages() as u64;
        if write_folio(core, file, index, pfn, wait) {
            started += pages;
        }
        core.put(pfn);
        from = index.0 + pages;
        if started >= next_look {
            next_look = started + LOOK_EVERY;
            wait_for_queue(core);
        }
    }
    started
}

/// Start writing one folio, which began at `index`, if it still is dirty.
fn write_folio<M: Machine>(core: &MmCore<M>, file: FileId, index: PageIndex, pfn: Pfn, wait: Wait) -> bool {
    let frame = &core.frames[pfn];
    core.lock_folio(pfn);
    if wait == Wait::ForPage {
        core.wait_writeback(pfn);
    }
    let is_it = (frame.owner(), frame.page_index()) == (Owner::File(file), index);
    let ready = is_it && frame.has(FrameFlags::DIRTY) && !frame.has(FrameFlags::WRITEBACK);
    let mut started = false;
    if ready {
        core.rmap.mkclean(core, pfn);
        started = core.cache.write_page_start(core, pfn);
    } else if is_it {
        core.cache.unchoose(file, index);
    }
    core.unlock_folio(pfn);
    started
}

/// Let the devices catch up.
fn wait_for_queue<M: Machine>(core: &MmCore<M>) {
    core.machine.resched();
    while core.stats.read(Stat::NrWriteback) > QUEUE_PAGES && !core.machine.stopping() {
        core.cache.wait_for_a_write(core, core.machine.now() + PATIENCE);
    }
}

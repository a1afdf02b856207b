//! Writing dirty pages of files back: on request, by age, and by amount.
//!
//! A page becomes dirty in the cache ([`Cache::mark_dirty`](crate::cache::Cache::mark_dirty)) and is written by one of
//! - the flusher, a daemon: when more than the background share of memory is dirty, when pages have been dirty for too
//!   long, or when reclaim finds only dirty pages;
//! - a call that asks for it: fsync, msync.
//!
//! Tasks that dirty pages faster than the device writes them are throttled ([`balance_dirty`]): gently while the
//! amount is above the middle between the background and the dirty threshold; above the dirty threshold they wait
//! until it falls. (Linux sets each writer's pace from the measured bandwidth of the device instead.)
//!
//! To write one folio: lock it; write-protect and clean all its entries and flush them
//! ([`mkclean`](crate::rmap::Rmap::mkclean)), and flush entries that a call has cleared but not flushed yet; start. A
//! later store faults, and makes the page dirty again.

mod flusher;
mod limits;
#[cfg(test)]
mod tests;
mod zram;
mod zswap;

pub use flusher::flusher;
pub(crate) use limits::balance_dirty;
pub use limits::{DirtyLimits, limits};
pub(crate) use zram::zram_upkeep;
pub(crate) use zswap::zswap;

use crate::cache::BlockRequest;
use crate::cache::tree::{MAX_INDEX, TreeMark};
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Machine, Scope, Stall};
use crate::mm_core::MmCore;
use crate::primitive::{AtomicBool, AtomicU32};
use crate::stat::Stat;
use crate::units::*;
use core::ops::Range;

/// Pages in flight to devices above which background writing waits for some to complete: 4 MiB, the capacity of a
/// device's queue.
const QUEUE_PAGES: i64 = 1024;
/// Pages written between two checks of the queue.
const LOOK_EVERY: u64 = 32;

/// The longest that the flusher sleeps before it checks again whether a write has ended, in nanoseconds.
const PATIENCE: Nanos = 10_000_000;

/// State of write-back.
#[derive(Default)]
pub struct Writeback {
    /// Calls of [`balance_dirty`] so far.
    calls: AtomicU32,
    /// The last check found too many dirty pages.
    pressed: AtomicBool,
    /// The flusher is awake.
    writing: AtomicBool,
}

/// Write all dirty pages of `[first, end)` of a file, in order, and wait for these writes and those already in flight.
pub(crate) fn sync_range<M: Machine>(
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

/// How to treat a page that is being written already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Wait, and write changes made since: the caller guarantees that everything is on the device.
    ForPage,
    /// Leave it for the next round.
    Never,
}

/// Start writing the dirty folios in a range, about `most` pages at most, in order. Returns the number of pages
/// started.
fn write_chosen<M: Machine>(core: &MmCore<M>, file: FileId, range: Range<u64>, most: u64, wait: Wait) -> u64 {
    let _scope = core.scope(Scope::DoWritepages);
    // Pages dirtied during the write are not chosen, so the loop ends however fast pages become dirty.
    if core.cache.choose_dirty(file, range.clone(), most) == 0 {
        return 0;
    }
    let (mut from, mut request) = (range.start, BlockRequest::default());
    let (mut started, mut next_look) = (0, LOOK_EVERY - 1);
    while let Some((index, pfn)) = core.cache.next_marked(core, file, TreeMark::ToWrite, from..range.end) {
        let pages = core.frames[pfn].pages() as u64;
        if write_folio(core, (file, index), pfn, wait, &mut request) {
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

/// Start writing one folio, found at `index`, if it still is there and dirty.
fn write_folio<M: Machine>(
    core: &MmCore<M>,
    (file, index): (FileId, PageIndex),
    pfn: Pfn,
    wait: Wait,
    request: &mut BlockRequest,
) -> bool {
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
        started = core.cache.write_page_start(core, pfn, request);
    } else if is_it {
        core.cache.unchoose(file, index);
    }
    core.unlock_folio(pfn);
    started
}

/// Wait until the devices have caught up.
fn wait_for_queue<M: Machine>(core: &MmCore<M>) {
    core.machine.resched();
    while core.stats.read(Stat::NrWriteback) > QUEUE_PAGES && !core.machine.stopping() {
        let _stall = core.stall(Stall::Io);
        core.cache.wait_for_a_write(core, core.machine.now() + PATIENCE);
    }
}

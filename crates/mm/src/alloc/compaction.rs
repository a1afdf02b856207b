//! What a zone remembers between compactions: the scanners' positions, page blocks to skip, and how often to defer
//! compaction for a size because it has failed.
//!
//! All of it is advice: several compactions at a time may lose or repeat updates, which costs only work. It is kept
//! in the zone and not in compaction because kswapd, which is on a lower floor, clears it when it goes to sleep.

use crate::frame::{FrameFlags, FrameTable};
use crate::primitive::{AtomicBool, AtomicU32, Ordering::Relaxed};
use crate::units::*;
use std_alloc::boxed::Box;

/// A failure defers compaction for at most 2 to the power of this attempts.
const MAX_DEFER_SHIFT: u32 = 6;
/// Distance of the frames that are sampled in a skipped page block before it is reconsidered.
const SAMPLE: u32 = 8;

/// The state.
pub struct ZoneCompaction {
    start: Pfn,
    end: Pfn,
    /// A bit for each page block: the last look there found nothing.
    skip: Box<[AtomicU32]>,
    /// Where the migrate scanner continues: of async compaction, of other compaction.
    migrate: [AtomicU32; 2],
    /// Where the free scanner continues: the start of a page block.
    free: AtomicU32,
    /// Where these scanners begin a full pass: nothing before is worth a look.
    first_migrate: AtomicU32,
    first_free: AtomicU32,
    /// A direct compaction has made a full pass: skipped page blocks should be reconsidered at some time.
    flush: AtomicBool,
    considered: AtomicU32,
    defer_shift: AtomicU32,
    /// Smallest order for which compaction has failed.
    order_failed: AtomicU32,
}

impl ZoneCompaction {
    pub(super) fn new(start: Pfn, frames: u32) -> ZoneCompaction {
        let end = start.add(frames);
        let last_block = Pfn(end.0 - 1).align_down(PAGEBLOCK_ORDER);
        let blocks = frames.div_ceil(PAGEBLOCK_FRAMES);
        let at = AtomicU32::new;
        ZoneCompaction {
            start,
            end,
            skip: (0..blocks.div_ceil(32)).map(|_| at(0)).collect(),
            migrate: [at(start.0), at(start.0)],
            free: at(last_block.0),
            first_migrate: at(start.0),
            first_free: at(last_block.0),
            flush: AtomicBool::new(false),
            considered: at(0),
            defer_shift: at(0),
            order_failed: at(0),
        }
    }

    // --- page blocks to skip -----------------------------------------------------------------------------

    fn bit(&self, pfn: Pfn) -> (&AtomicU32, u32) {
        let block = (pfn.0 - self.start.0) / PAGEBLOCK_FRAMES;
        (&self.skip[block as usize / 32], 1 << (block % 32))
    }

    pub(crate) fn skips(&self, pfn: Pfn) -> bool {
        let (word, bit) = self.bit(pfn);
        word.load(Relaxed) & bit != 0
    }

    /// Skip it from now on. Returns whether it was skipped before.
    pub(crate) fn set_skip(&self, pfn: Pfn) -> bool {
        let (word, bit) = self.bit(pfn);
        word.fetch_or(bit, Relaxed) & bit != 0
    }

    /// Page blocks that are skipped.
    pub fn skipped(&self) -> u32 {
        self.skip.iter().map(|word| word.load(Relaxed).count_ones()).sum()
    }

    // --- positions of the scanners -----------------------------------------------------------------------

    /// The last page block of the zone, where the free scanner begins.
    pub(crate) fn last_block(&self) -> Pfn {
        Pfn(self.end.0 - 1).align_down(PAGEBLOCK_ORDER)
    }

    /// Where the migrate scanner of async compaction or (`sync`) of other compaction continues.
    pub(crate) fn cached_migrate(&self, sync: bool) -> Pfn {
        Pfn(self.migrate[sync as usize].load(Relaxed))
    }

    pub(crate) fn cached_free(&self) -> Pfn {
        Pfn(self.free.load(Relaxed))
    }

    /// The first place worth a look when the skipped page blocks were last reconsidered.
    pub(crate) fn first_migrate(&self) -> Pfn {
        Pfn(self.first_migrate.load(Relaxed))
    }

    /// The last such page block.
    pub(crate) fn first_free(&self) -> Pfn {
        Pfn(self.first_free.load(Relaxed))
    }

    /// The migrate scanner has passed everything before `pfn`.
    pub(crate) fn note_migrate(&self, pfn: Pfn, sync: bool) {
        let pfn = Pfn(pfn.0.min(self.end.0));
        for place in &self.migrate[..1 + sync as usize] {
            place.fetch_max(pfn.0, Relaxed);
        }
    }

    /// Nothing to move was found since both kinds of compaction were at the same position: keep them together.
    pub(crate) fn keep_together(&self) {
        self.migrate[1].store(self.migrate[0].load(Relaxed), Relaxed);
    }

    /// The free scanner continues at a page block before those that it has passed.
    pub(crate) fn note_free(&self, block: Pfn) {
        let block = block.0.max(self.start.0);
        self.free.store(self.free.load(Relaxed).min(block), Relaxed);
    }

    pub(crate) fn set_free(&self, block: Pfn) {
        self.free.store(block.0.max(self.start.0), Relaxed);
    }

    /// Pages of this block were freed, so it is worth a look.
    pub(crate) fn note_given_back(&self, block: Pfn) {
        self.free.fetch_max(block.0, Relaxed);
    }

    /// The scanners have met: the next compaction starts a new pass.
    pub(crate) fn start_anew(&self) {
        self.migrate.iter().for_each(|place| place.store(self.first_migrate().0, Relaxed));
        self.free.store(self.first_free().0, Relaxed);
    }

    /// Whether kswapd should clear the skipped page blocks.
    pub(crate) fn set_flush(&self, flush: bool) {
        self.flush.store(flush, Relaxed);
    }

    /// Clear the skipped page blocks if a direct compaction has made a full pass since the last time.
    pub(crate) fn forget_if_wanted(&self, frames: &FrameTable) -> bool {
        let wanted = self.flush.load(Relaxed);
        if wanted {
            self.forget_skips(frames);
        }
        wanted
    }

    /// Stop skipping page blocks that contain folios to move or free pages. The scanners start a new pass from the
    /// first and the last of those.
    pub(crate) fn forget_skips(&self, frames: &FrameTable) {
        self.flush.store(false, Relaxed);
        let (mut first, mut last) = (None, None);
        let mut block = self.start;
        while block < self.end {
            let end = Pfn((block.0 + PAGEBLOCK_FRAMES).min(self.end.0));
            let (movable, free) = looks(frames, block, end);
            if movable || free {
                let (word, bit) = self.bit(block);
                word.fetch_and(!bit, Relaxed);
            }
            first = first.or(movable.then_some(block));
            last = if free { Some(block) } else { last };
            block = end;
        }
        self.first_migrate.store(first.unwrap_or(self.start).0, Relaxed);
        self.first_free.store(last.unwrap_or(self.last_block()).0, Relaxed);
        self.start_anew();
    }

    // --- deferral ----------------------------------------------------------------------------------------

    /// A compaction for a block of `order` has failed: defer the next ones, twice as many as after the last failure.
    pub fn defer(&self, order: Order) {
        self.considered.store(0, Relaxed);
        self.defer_shift.store((self.defer_shift.load(Relaxed) + 1).min(MAX_DEFER_SHIFT), Relaxed);
        self.order_failed.store(self.order_failed.load(Relaxed).min(order.0 as u32), Relaxed);
    }

    /// Whether to defer compaction for a block of `order` this time.
    pub(crate) fn deferred(&self, order: Order) -> bool {
        if (order.0 as u32) < self.order_failed.load(Relaxed) {
            return false;
        }
        let limit = 1 << self.defer_shift.load(Relaxed);
        let considered = self.considered.load(Relaxed) + 1;
        self.considered.store(considered.min(limit), Relaxed);
        considered < limit
    }

    /// A compaction for a block of `order` has made one; `taken`: and the request got it.
    pub fn succeeded(&self, order: Order, taken: bool) {
        if taken {
            self.considered.store(0, Relaxed);
            self.defer_shift.store(0, Relaxed);
        }
        self.order_failed.fetch_max(order.0 as u32 + 1, Relaxed);
    }

    /// Whether compaction is tried again after the longest deferral.
    pub(crate) fn restarts(&self, order: Order) -> bool {
        order.0 as u32 >= self.order_failed.load(Relaxed)
            && self.defer_shift.load(Relaxed) == MAX_DEFER_SHIFT
            && self.considered.load(Relaxed) >= 1 << MAX_DEFER_SHIFT
    }
}

/// Whether a sample of the frames of a page block shows folios to move, and free pages.
fn looks(frames: &FrameTable, from: Pfn, to: Pfn) -> (bool, bool) {
    let (mut movable, mut free, mut at) = (false, false, from);
    while at < to && !(movable && free) {
        let flags = frames[frames.head(at)].flags();
        movable |= flags.contains(FrameFlags::LRU);
        free |= flags.contains(FrameFlags::BUDDY);
        at = at.add(SAMPLE);
    }
    (movable, free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std_alloc::vec::Vec;

    fn state(blocks: u32) -> ZoneCompaction {
        ZoneCompaction::new(Pfn(1024), blocks * PAGEBLOCK_FRAMES)
    }

    /// The vector of the reference: after failures 1, 2, ... one of 2, 4, ..., 64, 64 attempts is made.
    #[test]
    fn each_failure_doubles_the_deferral() {
        let (state, order) = (state(4), Order(9));
        let mut intervals = Vec::new();
        for _ in 0..7 {
            state.defer(order);
            intervals.push(1 + (0..).take_while(|_| state.deferred(order)).count());
        }
        assert_eq!(intervals, [2, 4, 8, 16, 32, 64, 64]);
        assert!(state.restarts(order), "skipped blocks must be reconsidered after the longest deferral");
    }

    #[test]
    fn smaller_orders_than_those_that_failed_are_not_deferred() {
        let state = state(4);
        state.succeeded(Order(9), true);
        assert!(!state.deferred(Order(9)));
        state.defer(Order(5));
        assert!(!state.deferred(Order(4)) && state.deferred(Order(5)));
        state.succeeded(Order(5), false);
        assert!(!state.deferred(Order(5)), "a block of that order exists");
        state.defer(Order(5));
        assert_eq!((0..).take_while(|_| state.deferred(Order(5))).count(), 3, "the block was not taken");
        state.succeeded(Order(5), true);
        state.defer(Order(5));
        assert_eq!((0..).take_while(|_| state.deferred(Order(5))).count(), 1);
    }

    #[test]
    fn the_scanners_approach_each_other_until_a_new_pass() {
        let state = state(8);
        let end = state.last_block();
        assert_eq!(end, Pfn(1024 + 7 * 512));
        state.note_migrate(Pfn(1536), false);
        assert_eq!((state.cached_migrate(false), state.cached_migrate(true)), (Pfn(1536), Pfn(1024)));
        state.note_migrate(Pfn(1280), true);
        assert_eq!((state.cached_migrate(false), state.cached_migrate(true)), (Pfn(1536), Pfn(1280)));
        state.note_free(Pfn(end.0 - 1024));
        state.note_free(Pfn(end.0 - 512));
        assert_eq!(state.cached_free(), Pfn(end.0 - 1024));
        state.note_given_back(Pfn(end.0 - 512));
        assert_eq!(state.cached_free(), Pfn(end.0 - 512));
        state.start_anew();
        assert_eq!((state.cached_migrate(true), state.cached_free()), (Pfn(1024), end));
    }

    #[test]
    fn skipped_blocks_with_content_are_reconsidered() {
        let (state, frames) = (state(4), FrameTable::new(1024 + 4 * 512));
        for block in 0..4 {
            assert!(!state.set_skip(Pfn(1024 + block * 512)) && state.set_skip(Pfn(1024 + block * 512 + 3)));
        }
        frames[Pfn(1536 + 8)].assign(FrameFlags::LRU);
        frames[Pfn(2048 + 16)].assign(FrameFlags::BUDDY);
        assert!(!state.forget_if_wanted(&frames));
        state.set_flush(true);
        assert!(state.forget_if_wanted(&frames) && !state.forget_if_wanted(&frames));
        assert_eq!(state.skipped(), 2);
        assert!(state.skips(Pfn(1024)) && !state.skips(Pfn(1536)) && !state.skips(Pfn(2048)));
        assert_eq!((state.first_migrate(), state.first_free()), (Pfn(1536), Pfn(2048)));
    }
}

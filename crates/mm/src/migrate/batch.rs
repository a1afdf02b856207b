//! Moving folios in batches, and one by one.

use super::{Done, Mode, Target, note_isolated};
use crate::alloc::Fresh;
use crate::frame::{FrameFlags, List, Owner};
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::stat::{SizeStat, Stat};
use crate::table::{Landing, UsedCopy, Waiting};
use crate::tlb::UnmapBatch;
use crate::units::*;
use base::demand;
use smallvec::SmallVec;

/// Pages in a batch: one folio of 2 MiB, or as many smaller ones.
const BATCH_PAGES: u64 = TABLE_ENTRIES as u64;
/// Tries of a batch if nothing follows.
const PASSES_ASYNC: u32 = 10;
/// Tries of a batch whose folios are tried one by one afterwards.
const PASSES_BEFORE_SYNC: u32 = 3;
/// Tries of a single folio.
const PASSES_SYNC: u32 = 7;

/// A locked folio with migration entries, and its target frame.
struct PendingMove {
    from: Pfn,
    waiting: Waiting,
    fresh: Fresh,
    /// It was copied while in use, and has not been written since.
    copied: Option<UsedCopy>,
}

/// Why a folio was not moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NotMoved {
    /// A later try may succeed.
    Retry,
    /// Another try is no use.
    Failed,
    /// It was split into single pages, which are tried later.
    Split,
    /// It had no user left, and is free.
    Gone,
    /// There is no frame for it.
    NoRoom,
}

/// State of one migration.
struct Mover<'a, 't, M> {
    core: &'a MmCore<M>,
    target: &'t mut dyn Target<M>,
    /// Whether to copy folios while they are in use, if possible. A batch is then one folio, so that none waits while
    /// others are copied.
    in_use: bool,
    done: Done,
    /// Pages of folios that were split on the way.
    parts: List,
    /// The folios after the one for which there was no room.
    untried: List,
    /// Folios that were not moved, the first at the tail.
    not_moved: List,
}

/// Move isolated folios. Also returns those that were not moved: still isolated, the first at the tail.
pub(super) fn run<M: Machine>(
    core: &MmCore<M>,
    mut isolated: List,
    target: &mut dyn Target<M>,
    (mode, in_use): (Mode, bool),
) -> (Done, List) {
    let (done, parts, untried, not_moved) = (Done::default(), List::new(), List::new(), List::new());
    let mut mover = Mover { core, target, in_use, done, parts, untried, not_moved };
    while !isolated.is_empty() && !mover.done.no_room {
        let mut batch = mover.take_batch(&mut isolated);
        if mode == Mode::Async {
            mover.try_passes(&mut batch, mode, PASSES_ASYNC);
        } else {
            mover.try_passes(&mut batch, Mode::Async, PASSES_BEFORE_SYNC);
            mover.one_by_one(&mut batch, mode);
        }
        mover.fail(batch);
    }
    // Parts get one try: their whole folios have had theirs.
    while !mover.parts.is_empty() && !mover.done.no_room {
        let mut parts = core::mem::take(&mut mover.parts);
        let mut batch = mover.take_batch(&mut parts);
        mover.parts = parts;
        mover.try_passes(&mut batch, Mode::Async, 1);
        mover.fail(batch);
    }
    for mut left in [core::mem::take(&mut mover.untried), isolated, core::mem::take(&mut mover.parts)] {
        while let Some(head) = left.pop_tail(&core.frames) {
            mover.done.left += u64::from(core.frames[head].pages());
            mover.not_moved.push_head(&core.frames, head);
        }
    }
    (mover.done, mover.not_moved)
}

impl<M: Machine> Mover<'_, '_, M> {
    /// Take the folios of one batch from a list's tail.
    fn take_batch(&self, from: &mut List) -> List {
        let frames = &self.core.frames;
        let (mut batch, mut pages) = (List::new(), 0);
        while let Some(head) = from.tail() {
            pages += u64::from(frames[head].pages());
            if (pages > BATCH_PAGES || self.in_use) && !batch.is_empty() {
                break;
            }
            from.pop_tail(frames);
            batch.push_head(frames, head);
        }
        batch
    }

    /// Try to move folios up to `passes` times, while a try may succeed. Folios that were not moved stay in the list.
    fn try_passes(&mut self, batch: &mut List, mode: Mode, passes: u32) {
        let mut failed = List::new();
        for _ in 0..passes {
            if batch.is_empty() || self.done.no_room {
                break;
            }
            self.pass(batch, &mut failed, mode);
        }
        while let Some(head) = failed.pop_tail(&self.core.frames) {
            batch.push_head(&self.core.frames, head);
        }
    }

    /// Try the folios one by one, and wait as the mode allows.
    fn one_by_one(&mut self, folios: &mut List, mode: Mode) {
        if self.done.no_room {
            return;
        }
        let frames = &self.core.frames;
        let mut failed = List::new();
        while let Some(head) = folios.pop_tail(frames) {
            let mut alone = List::new();
            alone.push_head(frames, head);
            self.try_passes(&mut alone, mode, PASSES_SYNC);
            while let Some(head) = alone.pop_tail(frames) {
                failed.push_head(frames, head);
            }
            if self.done.no_room {
                self.untried = core::mem::take(folios);
            }
        }
        *folios = failed;
    }

    /// Give up on folios.
    fn fail(&mut self, mut folios: List) {
        while let Some(head) = folios.pop_tail(&self.core.frames) {
            let order = self.core.frames[head].order();
            self.done.failed += u64::from(order.frames());
            self.done.large_failed += u64::from(order > Order::ZERO);
            self.core.count(Stat::ThpMigrationFail, i64::from(order == PAGEBLOCK_ORDER));
            self.not_moved.push_head(&self.core.frames, head);
        }
    }

    /// Try once to move all folios of a list, with one payment for all. Folios that may be tried again stay in the
    /// list.
    fn pass(&mut self, folios: &mut List, failed: &mut List, mode: Mode) {
        let (core, frames) = (self.core, &self.core.frames);
        let mut batch = UnmapBatch::new(core.host());
        let mut moves: SmallVec<[PendingMove; 32]> = SmallVec::new();
        let mut retry = List::new();
        while let Some(head) = folios.pop_tail(frames) {
            match self.unmap(head, mode, &mut batch) {
                Ok(pending) => moves.push(pending),
                Err(NotMoved::Retry) => retry.push_head(frames, head),
                Err(NotMoved::Failed) => failed.push_head(frames, head),
                Err(NotMoved::Split | NotMoved::Gone) => {}
                Err(NotMoved::NoRoom) => {
                    self.done.no_room = true;
                    failed.push_head(frames, head);
                    self.untried = core::mem::take(folios);
                }
            }
        }
        batch.settle(core.host(), &core.tlb);
        let mut to_free: SmallVec<[Pfn; 32]> = SmallVec::new();
        for pending in moves {
            let from = pending.from;
            match self.copy_and_replace(pending, &batch) {
                Ok(()) => to_free.push(from),
                Err(()) => retry.push_head(frames, from),
            }
        }
        core.free_folios(&to_free);
        while let Some(head) = retry.pop_head(frames) {
            folios.push_tail(frames, head);
        }
    }

    /// Lock a folio, allocate a frame for it, and replace its entries. On an error it is unlocked.
    fn unmap(&mut self, head: Pfn, mode: Mode, batch: &mut UnmapBatch) -> Result<PendingMove, NotMoved> {
        let core = self.core;
        self.lock(head, mode)?;
        let begun = self.begin(head, mode, batch);
        if !matches!(begun, Ok(_) | Err(NotMoved::Split)) {
            core.unlock_folio(head);
        }
        if begun.as_ref().is_err_and(|&not_moved| not_moved == NotMoved::Gone) {
            self.count_gone(head, u64::from(core.frames[head].pages()));
            core.put(head);
        }
        begun
    }

    fn count_gone(&mut self, head: Pfn, pages: u64) {
        note_isolated(self.core, head, -(pages as i64));
        self.done.moved += pages;
    }

    fn lock(&self, head: Pfn, mode: Mode) -> Result<(), NotMoved> {
        let (core, frame) = (self.core, &self.core.frames[head]);
        if core.try_lock_folio(head) {
            return Ok(());
        }
        let waits = match mode {
            Mode::Async => false,
            // A folio is locked while it is read: waiting for it means waiting for a device.
            Mode::SyncLight => frame.has(FrameFlags::UPTODATE),
            Mode::Sync => true,
        };
        if !waits {
            return Err(NotMoved::Retry);
        }
        core.lock_folio(head);
        Ok(())
    }

    /// The rest of [`unmap`](Self::unmap), under the folio's lock.
    fn begin(&mut self, head: Pfn, mode: Mode, batch: &mut UnmapBatch) -> Result<PendingMove, NotMoved> {
        let (core, frame) = (self.core, &self.core.frames[head]);
        if frame.refs() == 1 {
            return Err(NotMoved::Gone);
        }
        if frame.has(FrameFlags::WRITEBACK) {
            if mode != Mode::Sync {
                return Err(NotMoved::Failed);
            }
            core.wait_writeback(head);
        }
        let Some(cached) = cache_refs(core, head) else { return Err(NotMoved::Failed) };
        if !frame.has(FrameFlags::UPTODATE) {
            return Err(NotMoved::Failed);
        }
        if frame.refs() > frame.mapcount() + cached + 1 {
            return Err(NotMoved::Retry);
        }
        if frame.has(FrameFlags::PARTIALLY_MAPPED) && self.split(head) {
            return Err(NotMoved::Split);
        }
        let order = frame.order();
        let Some(fresh) = self.target.take(core, head, order) else {
            return Err(match order {
                Order::ZERO => NotMoved::NoRoom,
                _ if self.split(head) => NotMoved::Split,
                _ => NotMoved::Failed,
            });
        };
        demand!(fresh.order() == order, [head]; "the target's frame for {head} must have its size");
        let copied = if self.in_use { self.copy_in_use(head, fresh.pfn()) } else { None };
        let waiting = core.rmap.begin_move(core, head, batch);
        let dirty = waiting.is_dirty();
        if dirty && !frame.is_anon() {
            core.cache.mark_dirty(core, head);
        }
        let pending = PendingMove { from: head, waiting, fresh, copied };
        if frame.mapcount() > 0 {
            // Another task is mapping it just now, without its lock.
            self.restore(head, pending.waiting.back(), pending.fresh);
            return Err(NotMoved::Retry);
        }
        if pending.copied.is_some() && dirty {
            core.count(Stat::TierMoveAborted, i64::from(order.frames()));
            self.restore(head, pending.waiting.back(), pending.fresh);
            return Err(NotMoved::Failed);
        }
        Ok(pending)
    }

    /// Copy a page of one process while it is in use. From here on its entry's dirty bit shows stores.
    fn copy_in_use(&self, head: Pfn, to: Pfn) -> Option<UsedCopy> {
        let (core, frame) = (self.core, &self.core.frames[head]);
        let own = FrameFlags::EXCLUSIVE | FrameFlags::SWAPBACKED;
        let fits = frame.order() == Order::ZERO && frame.is_anon() && frame.mapcount() == 1;
        if !fits || !frame.has(own) || frame.has(FrameFlags::SWAPCACHE) {
            return None;
        }
        let copy = core.copy_in_use(core.rmap.clean_anon(core, head)?, to);
        // Give other tasks the time to write to it.
        core.machine.resched();
        Some(copy)
    }

    /// Copy a folio that has migration entries, and replace it by the copy. `Err`: it is in use, and as it was.
    fn copy_and_replace(&mut self, pending: PendingMove, batch: &UnmapBatch) -> Result<(), ()> {
        let PendingMove { from, waiting, fresh, copied } = pending;
        let (core, to) = (self.core, fresh.pfn());
        let (frame, new) = (&core.frames[from], &core.frames[to]);
        let expected = cache_refs(core, from).map(|cached| cached + 1);
        let moved = if expected == Some(frame.refs()) {
            new.set(FrameFlags::LOCKED);
            core.lru.forget_split(core, from);
            let landing = match copied {
                Some(copy) => core.copied_in_use(waiting, copy, batch),
                None => core.copy_folio(waiting, to, batch),
            };
            if core.replace_folio(from, to) { Ok(landing) } else { Err(landing.back()) }
        } else {
            Err(waiting.back())
        };
        let landing = match moved {
            Ok(landing) => landing,
            Err(back) => {
                new.clear(FrameFlags::LOCKED);
                self.restore(from, back, fresh);
                core.unlock_folio(from);
                return Err(());
            }
        };
        let to = fresh.into_pfn();
        core.rmap.end_move(core, landing);
        note_isolated(core, from, -i64::from(frame.pages()));
        core.leave_replaced(from);
        self.finish(to);
        core.unlock_folio(from);
        self.count_moved(frame.order());
        Ok(())
    }

    /// Put the new folio, which is mapped, on its list and unlock it.
    fn finish(&self, to: Pfn) {
        let core = self.core;
        core.lru.putback(core, to);
        self.defer_if_partial(to);
        core.unlock_folio(to);
        core.put(to);
    }

    /// Give up on a folio: its migration entries map it again.
    fn restore(&mut self, head: Pfn, back: Landing, unused: Fresh) {
        let core = self.core;
        core.rmap.end_move(core, back);
        self.defer_if_partial(head);
        self.target.give_back(core, unused);
    }

    /// Entries may have gone during the move: queue a folio that is now partly mapped to be split.
    fn defer_if_partial(&self, head: Pfn) {
        let core = self.core;
        let mapped = core.frames.pages_mapped(head);
        if mapped > 0 && mapped < core.frames[head].pages() {
            core.lru.defer_split(core, head);
        }
    }

    fn count_moved(&mut self, order: Order) {
        self.done.moved += u64::from(order.frames());
        self.done.large_moved += u64::from(order > Order::ZERO);
        self.core.sizes.count(SizeStat::MovedWhole, order, 1);
        self.core.count(Stat::ThpMigrationSuccess, i64::from(order == PAGEBLOCK_ORDER));
    }

    /// Split a locked large folio into `parts`, which are unlocked. Returns `false` if it is in use.
    fn split(&mut self, head: Pfn) -> bool {
        let (core, frame) = (self.core, &self.core.frames[head]);
        let order = frame.order();
        let mut parts = List::new();
        let Some(freed) = core.split_folio(head, &mut parts) else { return false };
        self.count_gone(head, freed);
        core.unlock_folio(head);
        while let Some(part) = parts.pop_tail(&core.frames) {
            self.parts.push_head(&core.frames, part);
        }
        self.parts.push_tail(&core.frames, head);
        self.done.split += 1;
        core.sizes.count(SizeStat::MovedSplit, order, 1);
        core.count(Stat::ThpMigrationSplit, i64::from(order == PAGEBLOCK_ORDER));
        true
    }
}

/// Number of references that a folio's cache holds. `None`: it was truncated.
fn cache_refs<M: Machine>(core: &MmCore<M>, head: Pfn) -> Option<u32> {
    let frame = &core.frames[head];
    match frame.owner() {
        _ if frame.has(FrameFlags::SWAPCACHE) => Some(1),
        Owner::Anon(_) => Some(0),
        Owner::File(_) => Some(1),
        Owner::None => None,
    }
}

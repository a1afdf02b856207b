//! Moving folios in batches, and one by one.

use super::{Done, Mode, Target, note_isolated};
use crate::alloc::Fresh;
use crate::frame::{FrameFlags, List, Owner};
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::stat::{SizeStat, Stat};
use crate::table::Landing;
use crate::tlb::UnmapBatch;
use crate::units::*;
use smallvec::SmallVec;

/// Pages of a batch: one folio of 2 MiB, or as many smaller ones.
const BATCH_PAGES: u64 = TABLE_ENTRIES as u64;
/// How often a batch is tried where nothing else follows.
const PASSES_ASYNC: u32 = 10;
/// How often a batch is tried whose folios are tried by themselves afterwards.
const PASSES_BEFORE_SYNC: u32 = 3;
/// How often a folio is tried by itself.
const PASSES_SYNC: u32 = 7;

/// A folio whose entries wait, and where it is to go. It is locked.
struct Flight {
    from: Pfn,
    fresh: Fresh,
    /// It was copied while it was in use, and not written since.
    copied: bool,
}

/// Why a folio was not moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stay {
    /// It may be different soon.
    Retry,
    /// There is no use in trying again.
    Failed,
    /// It became single pages, which have their turn later.
    Split,
    /// Nobody used it any more: it is free.
    Gone,
    /// There is no frame for it.
    NoRoom,
}

/// Moves folios.
struct Mover<'a, 't, M> {
    core: &'a MmCore<M>,
    target: &'t mut dyn Target<M>,
    /// Are folios copied while they are in use, if they can be? Then each is a batch: none waits while others are
    /// copied.
    in_use: bool,
    done: Done,
    /// Pages of folios that were split on the way.
    parts: List,
    /// What came after the folio for which there was no room.
    untried: List,
    /// What is not moved, the first at the tail.
    stay: List,
}

/// Move isolated folios; returns those that are not moved, too: still isolated, the first at the tail.
pub(super) fn run<M: Machine>(
    core: &MmCore<M>,
    mut isolated: List,
    target: &mut dyn Target<M>,
    (mode, in_use): (Mode, bool),
) -> (Done, List) {
    let (done, parts, untried, stay) = (Done::default(), List::new(), List::new(), List::new());
    let mut mover = Mover { core, target, in_use, done, parts, untried, stay };
    while !isolated.is_empty() && !mover.done.no_room {
        let mut batch = mover.cut_batch(&mut isolated);
        if mode == Mode::Async {
            mover.tries(&mut batch, mode, PASSES_ASYNC);
        } else {
            mover.tries(&mut batch, Mode::Async, PASSES_BEFORE_SYNC);
            mover.one_by_one(&mut batch, mode);
        }
        mover.fail(batch);
    }
    // Their wholes have had their tries.
    while !mover.parts.is_empty() && !mover.done.no_room {
        let mut parts = core::mem::take(&mut mover.parts);
        let mut batch = mover.cut_batch(&mut parts);
        mover.parts = parts;
        mover.tries(&mut batch, Mode::Async, 1);
        mover.fail(batch);
    }
    for mut left in [core::mem::take(&mut mover.untried), isolated, core::mem::take(&mut mover.parts)] {
        while let Some(head) = left.pop_tail(&core.frames) {
            mover.done.left += u64::from(core.frames[head].pages());
            mover.stay.push_head(&core.frames, head);
        }
    }
    (mover.done, mover.stay)
}

impl<M: Machine> Mover<'_, '_, M> {
    /// Take as many folios from a list's tail as make a batch.
    fn cut_batch(&self, from: &mut List) -> List {
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

    /// Try to move folios, and those that it is worth for once more, so many times. What is not moved stays in the
    /// list.
    fn tries(&mut self, batch: &mut List, mode: Mode, passes: u32) {
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

    /// Try each folio by itself, and wait for what the mode says.
    fn one_by_one(&mut self, folios: &mut List, mode: Mode) {
        if self.done.no_room {
            return;
        }
        let frames = &self.core.frames;
        let mut failed = List::new();
        while let Some(head) = folios.pop_tail(frames) {
            let mut alone = List::new();
            alone.push_head(frames, head);
            self.tries(&mut alone, mode, PASSES_SYNC);
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
            self.stay.push_head(&self.core.frames, head);
        }
    }

    /// Try once to move all folios of a list, with one payment for all of them. What may be tried again stays in the
    /// list.
    fn pass(&mut self, folios: &mut List, failed: &mut List, mode: Mode) {
        let (core, frames) = (self.core, &self.core.frames);
        let mut batch = UnmapBatch::new(core);
        let mut flights: SmallVec<[Flight; 32]> = SmallVec::new();
        let mut retry = List::new();
        while let Some(head) = folios.pop_tail(frames) {
            match self.take_off(head, mode, &mut batch) {
                Ok(flight) => flights.push(flight),
                Err(Stay::Retry) => retry.push_head(frames, head),
                Err(Stay::Failed) => failed.push_head(frames, head),
                Err(Stay::Split | Stay::Gone) => {}
                Err(Stay::NoRoom) => {
                    self.done.no_room = true;
                    failed.push_head(frames, head);
                    self.untried = core::mem::take(folios);
                }
            }
        }
        batch.settle(core, &core.tlb);
        let mut dead: SmallVec<[Pfn; 32]> = SmallVec::new();
        for flight in flights {
            let from = flight.from;
            match self.land(flight, &batch) {
                Ok(()) => dead.push(from),
                Err(()) => retry.push_head(frames, from),
            }
        }
        core.free_folios(&dead);
        while let Some(head) = retry.pop_head(frames) {
            folios.push_tail(frames, head);
        }
    }

    /// Lock a folio, have a frame for it, and take its entries away. Else it is unlocked.
    fn take_off(&mut self, head: Pfn, mode: Mode, batch: &mut UnmapBatch) -> Result<Flight, Stay> {
        let core = self.core;
        self.lock(head, mode)?;
        let begun = self.begin(head, mode, batch);
        if !matches!(begun, Ok(_) | Err(Stay::Split)) {
            core.unlock_folio(head);
        }
        if begun.as_ref().is_err_and(|&stay| stay == Stay::Gone) {
            self.count_gone(head, u64::from(core.frames[head].pages()));
            core.put(head);
        }
        begun
    }

    fn count_gone(&mut self, head: Pfn, pages: u64) {
        note_isolated(self.core, head, -(pages as i64));
        self.done.moved += pages;
    }

    fn lock(&self, head: Pfn, mode: Mode) -> Result<(), Stay> {
        let (core, frame) = (self.core, &self.core.frames[head]);
        if core.try_lock_folio(head) {
            return Ok(());
        }
        let waits = match mode {
            Mode::Async => false,
            // Whoever has it locked while it is read waits for a device.
            Mode::SyncLight => frame.has(FrameFlags::UPTODATE),
            Mode::Sync => true,
        };
        if !waits {
            return Err(Stay::Retry);
        }
        core.lock_folio(head);
        Ok(())
    }

    /// What follows the lock.
    fn begin(&mut self, head: Pfn, mode: Mode, batch: &mut UnmapBatch) -> Result<Flight, Stay> {
        let (core, frame) = (self.core, &self.core.frames[head]);
        if frame.refs() == 1 {
            return Err(Stay::Gone);
        }
        if frame.has(FrameFlags::WRITEBACK) {
            if mode != Mode::Sync {
                return Err(Stay::Failed);
            }
            core.wait_writeback(head);
        }
        let Some(cached) = cache_refs(core, head) else { return Err(Stay::Failed) };
        if !frame.has(FrameFlags::UPTODATE) {
            return Err(Stay::Failed);
        }
        if frame.refs() > frame.mapcount() + cached + 1 {
            return Err(Stay::Retry);
        }
        if frame.has(FrameFlags::PARTIALLY_MAPPED) && self.split(head) {
            return Err(Stay::Split);
        }
        let order = frame.order();
        let Some(fresh) = self.target.take(core, head, order) else {
            return Err(match order {
                Order::ZERO => Stay::NoRoom,
                _ if self.split(head) => Stay::Split,
                _ => Stay::Failed,
            });
        };
        assert_eq!(fresh.order(), order, "a frame of another size for {head}");
        let copied = self.in_use && self.copy_in_use(head, fresh.pfn());
        let dirty = core.rmap.begin_move(core, head, batch);
        if dirty && !frame.is_anon() {
            core.cache.mark_dirty(core, head);
        }
        let flight = Flight { from: head, fresh, copied };
        if frame.mapcount() > 0 {
            // Somebody is mapping it just now, without its lock.
            self.turn_back(flight);
            return Err(Stay::Retry);
        }
        if copied && dirty {
            core.count(Stat::TierMoveAborted, i64::from(order.frames()));
            self.turn_back(flight);
            return Err(Stay::Failed);
        }
        Ok(flight)
    }

    /// Copy a page that is one process's own while it is used. From then on its entry tells whether it is written.
    fn copy_in_use(&self, head: Pfn, to: Pfn) -> bool {
        let (core, frame) = (self.core, &self.core.frames[head]);
        let own = FrameFlags::EXCLUSIVE | FrameFlags::SWAPBACKED;
        let fits = frame.order() == Order::ZERO && frame.is_anon() && frame.mapcount() == 1;
        if !fits || !frame.has(own) || frame.has(FrameFlags::SWAPCACHE) || !core.rmap.clean_anon(core, head) {
            return false;
        }
        core.copy_in_use(head, to);
        // Time for who writes to it.
        core.machine.resched();
        true
    }

    /// Copy a folio whose entries wait, and have the copy take its place. `Err`: somebody uses it, it is as it was.
    fn land(&mut self, flight: Flight, batch: &UnmapBatch) -> Result<(), ()> {
        let (core, from, to) = (self.core, flight.from, flight.fresh.pfn());
        let (frame, new) = (&core.frames[from], &core.frames[to]);
        let expected = cache_refs(core, from).map(|cached| cached + 1);
        let moved = (expected == Some(frame.refs())).then(|| {
            new.set(FrameFlags::LOCKED);
            core.lru.forget_split(core, from);
            let landing = if flight.copied {
                core.copied_in_use(from, to, batch)
            } else {
                core.copy_folio(from, to, batch)
            };
            let exchanged = core.replace_folio(from, to);
            exchanged.then_some(landing)
        });
        let Some(landing) = moved.flatten() else {
            new.clear(FrameFlags::LOCKED);
            self.turn_back(flight);
            core.unlock_folio(from);
            return Err(());
        };
        let to = flight.fresh.into_pfn();
        core.rmap.end_move(core, &landing);
        note_isolated(core, from, -i64::from(frame.pages()));
        core.leave_replaced(from);
        self.settle_in(to);
        core.unlock_folio(from);
        self.count_moved(frame.order());
        Ok(())
    }

    /// The new folio is where it belongs, and mapped: let it go.
    fn settle_in(&self, to: Pfn) {
        let core = self.core;
        core.lru.putback(core, to);
        self.note_parts(to);
        core.unlock_folio(to);
        core.put(to);
    }

    /// The entries of a folio that is not moved after all map it again.
    fn turn_back(&mut self, flight: Flight) {
        let core = self.core;
        core.rmap.end_move(core, &Landing::back(flight.from));
        self.note_parts(flight.from);
        self.target.give_back(core, flight.fresh);
    }

    /// Entries may have gone while they waited: is the folio mapped only in part?
    fn note_parts(&self, head: Pfn) {
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

    /// Split a locked folio of several pages; they are parts, and unlocked. `false`: somebody uses it.
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

/// References that a folio's cache holds of it. `None`: it was cut off its file.
fn cache_refs<M: Machine>(core: &MmCore<M>, head: Pfn) -> Option<u32> {
    let frame = &core.frames[head];
    match frame.owner() {
        _ if frame.has(FrameFlags::SWAPCACHE) => Some(1),
        Owner::Anon(_) => Some(0),
        Owner::File(_) => Some(1),
        Owner::None => None,
    }
}

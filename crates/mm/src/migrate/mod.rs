//! Migration: the content of folios moves to other frames, and everything that referred to the old folios refers to
//! the new ones.
//!
//! A caller isolates folios ([`isolate`]) and has them moved ([`folios`]) to frames that its [`Target`] chooses. It
//! states the reason ([`MigrateReason`]) and how hard to try ([`Mode`]). A folio that could not be moved is back on
//! its list afterwards, unchanged.
//!
//! # One folio
//! 1. It is locked, and a frame is allocated for it.
//! 2. Its entries are taken away and replaced by migration entries ([`Absent::Moving`](crate::table::Absent)). Each
//!    is noted in a batch, as in reclaim. A fault that meets one waits for the folio's lock.
//! 3. The batch's flush is paid: no CPU can store to the folio any more. A CPU that could only read it may continue
//!    to do so if the flush policy allows it ([`crate::tlb::UnmapBatch`]): the copy reads the same, and the old frame
//!    carries the debt.
//! 4. It is copied. If its only references are those of its cache and of the isolation, they are frozen, and the new
//!    folio takes its place in its cache and its group, and later on its list ([`MmCore::replace_folio`]).
//! 5. The migration entries become entries of the new folio ([`Rmap::end_move`](crate::rmap::Rmap::end_move)); the
//!    old folio is unlocked and freed.
//!
//! With any other reference the entries map the old folio again: nothing has changed. The copy is made before the
//! references are frozen, because frozen references make other tasks spin. The content cannot change in between:
//! mapping the folio and writing to it both take its lock.
//!
//! *Batches.* Steps 1 and 2 are done for a batch of folios, with one payment for all. So no lock is waited for while
//! the batch holds others. Folios that need a wait are tried again one by one, if the mode allows it.
//!
//! Source: mm/migrate.c of Linux 6.12.

mod batch;

use crate::alloc::{AllocRequest, Fresh, Reserve, Watermark};
use crate::event::Event;
use crate::frame::{FrameFlags, List, Mobility};
use crate::machine::{Machine, Scope, ZoneKind};
use crate::mm_core::MmCore;
use crate::stat::Stat;
use crate::units::*;

/// How hard to try, and what to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Mode {
    /// Wait for nothing. Folios move in batches, with one flush for each batch.
    Async,
    /// As `Async` first. Then take what is left one by one and wait for folio locks, unless the folio is being read.
    SyncLight,
    /// As `SyncLight`, and wait for reads and writes of devices, too.
    Sync,
}

/// Why folios are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigrateReason {
    /// To make free blocks.
    Compaction,
    /// A program asked for it (move_pages, migrate_pages).
    Call,
    /// Cold pages move to slower memory.
    Demotion,
    /// Hot pages move to faster memory.
    Promotion,
}

/// Chooses the frames that folios move to.
pub trait Target<M> {
    /// Allocate a folio of `order` for the content of the one at `from`. `None`: there is none. A large folio is then
    /// split, and its pages are tried one by one; if there is none for a single page, migration ends.
    fn take(&mut self, core: &MmCore<M>, from: Pfn, order: Order) -> Option<Fresh>;

    /// Take back a frame that was not used.
    fn give_back(&mut self, core: &MmCore<M>, unused: Fresh);
}

/// A frame of one node above a watermark, as a migration target; nothing is reclaimed for it.
pub(crate) fn frame_on<M: Machine>(
    core: &MmCore<M>,
    node: NodeId,
    order: Order,
    mark: Watermark,
) -> Option<Fresh> {
    let request = AllocRequest {
        order,
        mobility: Mobility::Movable,
        node,
        highest: ZoneKind::Movable,
        reserve: Reserve::None,
        this_node_only: true,
        among: Nodes::ALL,
        atomic: false,
        mixes: true,
    };
    core.alloc.take(core, &request, mark).ok()
}

/// Result of a migration. A folio that is split on the way counts as its parts from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Pages that were moved, or whose last user dropped them in the meantime: their old frames are free.
    pub moved: u64,
    /// Pages that could not be moved: unchanged, on their lists.
    pub failed: u64,
    /// Pages that were not tried: on their lists, too.
    pub left: u64,
    /// Large folios that were moved whole.
    pub large_moved: u64,
    /// Large folios that could not be moved.
    pub large_failed: u64,
    /// Large folios that were split, because there was no block or because they were only partly mapped.
    pub split: u64,
    /// Migration ended early, because the target had no page left.
    pub no_room: bool,
}

/// Why a folio was not isolated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IsolateError {
    /// It is free, a page table, on no list, or isolated already.
    NotListed,
    /// It has references besides those of its entries and its cache, which may last.
    Pinned,
}

/// Take the folio whose first frame is `head` off its list, with a reference, so that it can be moved. Returns its
/// order, which cannot change until it is moved or put back. Needs no lock; any frame's number is allowed.
pub(crate) fn isolate<M: Machine>(core: &MmCore<M>, head: Pfn) -> Result<Order, IsolateError> {
    let Some(frame) = core.frames.get(head).filter(|frame| frame.has(FrameFlags::LRU)) else {
        return Err(IsolateError::NotListed);
    };
    if !core.try_get(head) {
        return Err(IsolateError::NotListed);
    }
    // The reference keeps its size. Count the cache's reference, if it is in one, and this one.
    let cached = u32::from(frame.has(FrameFlags::SWAPCACHE) || !frame.is_anon());
    let refused = if frame.refs() > frame.mapcount() + cached + 1 {
        Some(IsolateError::Pinned)
    } else if !core.lru.isolate_to_move(core, head) {
        Some(IsolateError::NotListed)
    } else {
        None
    };
    let order = frame.order();
    if refused.is_none() {
        note_isolated(core, head, i64::from(order.frames()));
    }
    core.put(head);
    refused.map_or(Ok(order), Err)
}

/// Put an isolated folio back on its list, and drop its reference.
pub(crate) fn put_back<M: Machine>(core: &MmCore<M>, head: Pfn) {
    note_isolated(core, head, -i64::from(core.frames[head].pages()));
    core.lru.putback(core, head);
    core.put(head);
}

/// Count pages of a folio as isolated (`by` > 0), or no longer so.
fn note_isolated<M: Machine>(core: &MmCore<M>, head: Pfn, by: i64) {
    let file = !core.frames[head].has(FrameFlags::SWAPBACKED);
    core.count([Stat::NrIsolatedAnon, Stat::NrIsolatedFile][file as usize], by);
}

/// Move isolated folios, the list's tail first. Those that are not moved are put back on their lists. The caller holds
/// no locks.
pub fn folios<M: Machine>(
    core: &MmCore<M>,
    isolated: List,
    target: &mut dyn Target<M>,
    mode: Mode,
    why: MigrateReason,
) -> Done {
    move_or_put_back(core, isolated, target, (mode, false), why)
}

/// As [`folios`] for a promotion, but pages that only one process maps stay usable until they have been copied. A
/// store in the meantime makes the move fail.
pub(crate) fn folios_in_use<M: Machine>(
    core: &MmCore<M>,
    isolated: List,
    target: &mut dyn Target<M>,
) -> Done {
    move_or_put_back(core, isolated, target, (Mode::Async, true), MigrateReason::Promotion)
}

fn move_or_put_back<M: Machine>(
    core: &MmCore<M>,
    isolated: List,
    target: &mut dyn Target<M>,
    how: (Mode, bool),
    why: MigrateReason,
) -> Done {
    let (done, mut not_moved) = run(core, isolated, target, how, why);
    while let Some(head) = not_moved.pop_tail(&core.frames) {
        put_back(core, head);
    }
    done
}

/// As [`folios`] for folios that reclaim has isolated and counted. Also returns those that were not moved: still
/// isolated, in the same order.
pub(crate) fn folios_of_reclaim<M: Machine>(
    core: &MmCore<M>,
    isolated: List,
    target: &mut dyn Target<M>,
    why: MigrateReason,
) -> (Done, List) {
    let note = |folios: &List, sign: i64| {
        for (head, frame) in folios.records(&core.frames) {
            note_isolated(core, head, sign * i64::from(frame.pages()));
        }
    };
    note(&isolated, 1);
    let (done, not_moved) = run(core, isolated, target, (Mode::Async, false), why);
    note(&not_moved, -1);
    (done, not_moved)
}

fn run<M: Machine>(
    core: &MmCore<M>,
    isolated: List,
    target: &mut dyn Target<M>,
    (mode, in_use): (Mode, bool),
    why: MigrateReason,
) -> (Done, List) {
    let _scope = core.scope(Scope::MigratePages);
    let (done, not_moved) = batch::run(core, isolated, target, (mode, in_use));
    core.count(Stat::PgmigrateSuccess, done.moved as i64);
    core.count(Stat::PgmigrateFail, done.failed as i64);
    core.event(Event::MmMigratePages, [done.moved, done.failed, mode as u64, why as u64]);
    (done, not_moved)
}

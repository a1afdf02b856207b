//! Migration: the content of folios goes to other frames, and everything that knew the old ones knows the new ones.
//!
//! Who wants it says why ([`MigrateReason`]) and how hard to try ([`Mode`]): it isolates folios ([`isolate`]), and has them moved
//! ([`folios`]) to frames that a [`Target`] of its own chooses. What could not be moved is back on its list afterwards,
//! as it was.
//!
//! # One folio
//! 1. It is locked, and a frame is had for it.
//! 2. Its entries are taken away, and others wait in their place ([`Absent::Moving`](crate::table::Absent)): each is
//!    noted in a batch, as reclaim's are. A fault that meets one waits for the folio's lock.
//! 3. What the batch owes is paid: no CPU can store to the folio any more. One that could only read it may go on doing
//!    so where the policy of flushes says so ([`crate::tlb::Batch`]): it reads what the copy says, and the old frame
//!    carries the debt.
//! 4. It is copied. Then its references are frozen, if they are those of its cache and of who isolated it, and the new
//!    folio takes its place in its cache, its group, and later on its list ([`MmCore::replace_folio`]).
//! 5. The entries that wait map the new folio ([`Rmap::end_move`](crate::rmap::Rmap::end_move)); the old one is
//!    unlocked and free.
//!
//! If somebody else has a reference, the entries map the old folio again: nothing has changed. It is copied before its
//! references are frozen, as a folio whose references are frozen makes others spin, and what is copied cannot change:
//! to map it, or to write to it, takes its lock.
//!
//! *Many.* Steps 1 and 2 are done for a batch of folios, with one payment for all; so none is waited for while others
//! are locked, and those that would have to be waited for are tried again by themselves, if the mode allows it.
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

/// How hard to try, and what may be waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Mode {
    /// Wait for nothing. Folios go in batches, with one flush for all of a batch.
    Async,
    /// The same first; then, for what is left, one by one, wait for who has a folio locked, unless that is being read.
    SyncLight,
    /// The same, and wait for whatever there is: reads and writes of devices, too.
    Sync,
}

/// On whose behalf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigrateReason {
    /// To make free blocks of free pages.
    Compaction,
    /// A program asked for it (move_pages, migrate_pages).
    Call,
    /// What is cold goes to slower memory.
    Demotion,
    /// What is hot goes to faster memory.
    Promotion,
}

/// Where folios go.
pub trait Target<M> {
    /// A folio of `order` for the content of the one at `from`. `None`: there is none; a folio of several pages is
    /// split then, and its pages are asked for one by one, and for a page nothing more is moved.
    fn take(&mut self, core: &MmCore<M>, from: Pfn, order: Order) -> Option<Fresh>;

    /// One that was taken is not needed after all.
    fn give_back(&mut self, core: &MmCore<M>, unused: Fresh);
}

/// A folio of one node for content that is moved there, above a mark; nothing is reclaimed for it.
pub fn frame_on<M: Machine>(core: &MmCore<M>, node: NodeId, order: Order, mark: Watermark) -> Option<Fresh> {
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

/// What came of it. A folio that was split on the way counts as its parts from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Pages whose content is elsewhere now, or that were given up by their last user meanwhile: their frames are free.
    pub moved: u64,
    /// Pages that could not be moved: they are where they were, on their lists.
    pub failed: u64,
    /// Pages whose turn did not come: on their lists, too.
    pub left: u64,
    /// Folios of several pages that were moved whole.
    pub large_moved: u64,
    /// Folios of several pages that are where they were.
    pub large_failed: u64,
    /// Folios of several pages that were split, for want of a block or because only a part of them is mapped.
    pub split: u64,
    /// The target had no page any more, and moving ended there.
    pub no_room: bool,
}

/// Why a folio was not isolated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IsolateError {
    /// It is free, a page table, on no list, or somebody else has isolated it.
    NotListed,
    /// Somebody holds references beside its entries and its cache: for longer, perhaps.
    Pinned,
}

/// Take the folio whose first frame is `head` off its list, with a reference, so that it can be moved. Returns its
/// order, which does not change any more until it is moved or put back. Asks for no lock: any frame's number will do.
pub fn isolate<M: Machine>(core: &MmCore<M>, head: Pfn) -> Result<Order, IsolateError> {
    let Some(frame) = core.frames.get(head).filter(|frame| frame.has(FrameFlags::LRU)) else {
        return Err(IsolateError::NotListed);
    };
    if !frame.try_get() {
        return Err(IsolateError::NotListed);
    }
    // The reference keeps its size. One more for the cache, if it is in one, and one is ours.
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

/// Put an isolated folio back on its list after all, and drop its reference.
pub fn put_back<M: Machine>(core: &MmCore<M>, head: Pfn) {
    note_isolated(core, head, -i64::from(core.frames[head].pages()));
    core.lru.putback(core, head);
    core.put(head);
}

/// Pages of a folio are isolated, or no longer.
fn note_isolated<M: Machine>(core: &MmCore<M>, head: Pfn, by: i64) {
    let file = !core.frames[head].has(FrameFlags::SWAPBACKED);
    core.count([Stat::NrIsolatedAnon, Stat::NrIsolatedFile][file as usize], by);
}

/// Move isolated folios, the list's tail first. What is not moved is put back on its list. Nobody's locks may be held,
/// and no folio's.
pub fn folios<M: Machine>(
    core: &MmCore<M>,
    isolated: List,
    target: &mut dyn Target<M>,
    mode: Mode,
    why: MigrateReason,
) -> Done {
    move_or_put_back(core, isolated, target, (mode, false), why)
}

/// The same for folios that go up, if those that are one process's own can be used until they have been copied. Who
/// writes to one meanwhile keeps it from being moved.
pub fn folios_in_use<M: Machine>(core: &MmCore<M>, isolated: List, target: &mut dyn Target<M>) -> Done {
    move_or_put_back(core, isolated, target, (Mode::Async, true), MigrateReason::Promotion)
}

fn move_or_put_back<M: Machine>(
    core: &MmCore<M>,
    isolated: List,
    target: &mut dyn Target<M>,
    how: (Mode, bool),
    why: MigrateReason,
) -> Done {
    let (done, mut stay) = run(core, isolated, target, how, why);
    while let Some(head) = stay.pop_tail(&core.frames) {
        put_back(core, head);
    }
    done
}

/// The same for folios that reclaim has isolated and counted. Returns what is not moved, too: still isolated, in the
/// same order.
pub fn folios_of_reclaim<M: Machine>(
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
    let (done, stay) = run(core, isolated, target, (Mode::Async, false), why);
    note(&stay, -1);
    (done, stay)
}

fn run<M: Machine>(
    core: &MmCore<M>,
    isolated: List,
    target: &mut dyn Target<M>,
    (mode, in_use): (Mode, bool),
    why: MigrateReason,
) -> (Done, List) {
    let _scope = core.scope(Scope::MigratePages);
    let (done, stay) = batch::run(core, isolated, target, (mode, in_use));
    core.count(Stat::PgmigrateSuccess, done.moved as i64);
    core.count(Stat::PgmigrateFail, done.failed as i64);
    core.event(Event::MmMigratePages, [done.moved, done.failed, mode as u64, why as u64]);
    (done, stay)
}

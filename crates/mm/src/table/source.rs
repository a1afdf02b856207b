//! What may be copied.
//!
//! *Problem.* A copy that takes the place of a page must have all of its stores. A CPU that has cached a translation
//! can store to the page after its entry was cleared, until it has flushed; the copy may miss that.
//!
//! *Rule.* A copy takes a [`Source`], and each way to get one says why no CPU can store to these pages, or why that
//! does not matter. Entries that a gather has taken are flushed when it ends: it gives none.

use super::Detached;
use crate::frame::{FolioPages, FrameFlags, FrameTable, Owner};
use crate::tlb::Refs;
use crate::units::*;
use base::demand;

/// Pages that may be copied.
#[derive(Debug)]
pub struct Source {
    first: Pfn,
    count: u32,
}

impl Source {
    /// Pages whose entries the caller has emptied and flushed. They are the only ones that allowed stores: `refs` are
    /// of a page of one process.
    ///
    /// # Panics
    /// If the page is not of one process, or the folio has others.
    pub fn flushed(frames: &FrameTable, refs: &Refs) -> Source {
        let frame = &frames[refs.head()];
        let own = frame.has(FrameFlags::EXCLUSIVE) && frame.order() == Order::ZERO && frame.is_anon();
        demand!(own, [head = refs.head()]; "{head} must be the page of one process");
        Source { first: refs.head(), count: 1 }
    }

    /// A page that no process may store to: anonymous, and shared since a fork. Or a page of a file, whose copy is of a
    /// moment: later stores need not be in it.
    ///
    /// # Panics
    /// If it is one process's own.
    #[inline]
    pub fn shared(frames: &FrameTable, page: Pfn) -> Source {
        let file = || matches!(frames[frames.head(page)].owner(), Owner::File(_));
        let shared = !frames[page].has(FrameFlags::EXCLUSIVE) || file();
        demand!(shared, [page]; "{page} must not be one process's own: its owner may store to it");
        Source { first: page, count: 1 }
    }

    /// Pages that only a table mapped that was taken out of its tree and flushed.
    pub(crate) fn detached(_table: &Detached, pages: FolioPages) -> Source {
        Source { first: pages.first, count: pages.count }
    }

    /// A locked folio that was unmapped, and whose references are frozen: nobody can map it.
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn frozen(frames: &FrameTable, head: Pfn) -> Source {
        let frame = &frames[head];
        let frozen = frame.has(FrameFlags::LOCKED) && frame.mapcount() == 0 && frame.refs() == 0;
        demand!(frozen, [head]; "{head} must be locked, unmapped and frozen to be copied");
        Source { first: head, count: frame.pages() }
    }

    /// The first page, and their number.
    #[inline]
    pub(crate) fn pages(self) -> (Pfn, u32) {
        (self.first, self.count)
    }
}

//! What was taken from page tables, as a value that only a flush or a debt uses up.
//!
//! *Problem.* Between the clearing of an entry and the flush, CPUs go on using the old translation. Whoever clears must
//! see to a flush, or leave a debt, before the page is given away, copied, or another takes its place. A function that
//! has forgotten it looks complete, and works in nearly every run.
//!
//! *Rule.* Who clears entries gets an [`Emptied`], who takes rights from entries a [`Tightened`]. Dropping one panics.
//! There are three ways to use one up, all in this room, and each tells who traces that CPUs may hold old translations:
//! - a [`Gather`](super::Gather) takes it: what a system call changes is flushed when the call ends, and references go
//!   after that;
//! - a [`Batch`](super::Batch) takes it: reclaim flushes by policy or leaves a debt, and marks the table;
//! - [`Tlb::flush_emptied`] flushes at once.
//!
//! An [`Emptied`] holds the references that its entries held. It gives them up as [`Refs`] only to who has flushed or
//! left a debt, and these must be dropped in their turn.
//!
//! *Why not otherwise.* To ask for a proof where a page is freed would ask all who free pages that were never mapped.
//! To keep the flush in the function that clears would flush each page by itself.

use super::Cleared;
use crate::frame::{FolioPages, FrameTable};
use crate::linear::linear;
use crate::units::*;

/// Entries of one table that were emptied, under the lock of its tree, with the references that they held.
#[must_use = "CPUs may still use these entries: give this to a gather or a batch, or flush it"]
#[derive(Debug)]
pub struct Emptied {
    what: Cleared,
    /// The table that they stood in.
    table: Pfn,
    /// They held no reference.
    uncounted: bool,
    /// The first entry as it was, with the marks of all.
    raw: u64,
}

linear!(
    Emptied,
    "entries were emptied and nobody flushes them: give them to a gather or a batch, or flush them"
);

/// Entries that lost rights or marks, under the lock of their tree. They still hold their references.
#[must_use = "CPUs may still use the old rights: give this to a gather, or flush it"]
#[derive(Debug)]
pub struct Tightened {
    what: Cleared,
    /// The first entry as it was, with the marks of all.
    raw: u64,
}

linear!(Tightened, "entries lost rights and nobody flushes them: give them to a gather, or flush them");

/// References of a folio that entries held. No CPU reaches the folio by these any more, or what is owed for that is
/// noted.
#[must_use = "the references would never be dropped"]
#[derive(Debug)]
pub struct Refs {
    head: Pfn,
    count: u32,
}

linear!(
    Refs,
    "references of emptied entries are lost: drop them with `put_refs`, or `put_held` where another is held"
);

impl Emptied {
    /// What `table`'s room has just emptied: `raw` is the first entry with the marks of all.
    #[inline(always)]
    pub(crate) fn new(what: Cleared, table: Pfn, raw: u64) -> Emptied {
        Emptied { what, table, uncounted: false, raw }
    }

    /// The first entry, with all marks that hardware had set by then in any of them.
    #[inline(always)]
    pub(crate) fn raw(&self) -> u64 {
        self.raw
    }

    /// The pages that were mapped.
    #[inline(always)]
    pub fn mapped(&self) -> FolioPages {
        FolioPages { head: self.what.head, first: self.what.pfn, count: self.what.pages }
    }

    /// The first page, and the page behind the last.
    #[inline]
    pub fn range(&self) -> (Vpn, Vpn) {
        (self.what.page, Vpn(self.what.page.0 + self.what.pages as u64))
    }

    /// Did a 2 MiB entry map a whole folio?
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        self.what.order != Order::ZERO
    }

    /// What was cleared.
    #[inline(always)]
    pub(super) fn what(&self) -> &Cleared {
        &self.what
    }

    /// The table that the entries stood in.
    #[inline(always)]
    pub(super) fn table(&self) -> Pfn {
        self.table
    }

    /// Their content is given up, so that the addresses read something else from now on.
    #[inline]
    pub fn dropping_content(mut self) -> Emptied {
        self.what.dropped = true;
        self
    }

    /// They mapped the page of zeroes, of which no entry holds a reference.
    #[inline(always)]
    pub fn of_zeroes(mut self, zero: Pfn) -> Emptied {
        assert!(self.what.head == zero, "only the page of zeroes is not counted");
        self.uncounted = true;
        self
    }

    /// They were put back as they were, in the same hold of the lock.
    #[inline]
    pub(crate) fn put_back(self) {
        self.spend();
    }

    /// A flush or a debt is seen to: give the references up.
    #[inline(always)]
    pub(super) fn into_refs(self) -> Refs {
        // Each entry held one.
        let count = if self.uncounted { 0 } else { self.what.pages >> self.what.order.0 };
        let refs = Refs { head: self.what.head, count };
        self.spend();
        refs
    }
}

impl Tightened {
    /// What `table`'s room has just taken rights from: `raw` is the first entry before that, with the marks of all.
    #[inline(always)]
    pub(crate) fn new(what: Cleared, raw: u64) -> Tightened {
        Tightened { what, raw }
    }

    /// The first entry as it was, with the marks of all.
    #[inline(always)]
    pub(crate) fn raw(&self) -> u64 {
        self.raw
    }

    /// What lost rights.
    #[inline(always)]
    pub(super) fn what(&self) -> &Cleared {
        &self.what
    }

    /// A flush is seen to.
    #[inline(always)]
    pub(super) fn used_up(self) {
        self.spend();
    }
}

impl Refs {
    /// The folio.
    #[inline]
    pub fn head(&self) -> Pfn {
        self.head
    }

    /// Drop them, where a reference of the caller's own keeps the folio.
    #[inline]
    pub fn put_held(self, frames: &FrameTable) {
        let last = self.count > 0 && frames[self.head].put(self.count);
        assert!(!last, "{} was kept by nobody", self.head);
        self.spend();
    }

    /// The folio, and how many they are: for who drops them.
    #[inline(always)]
    pub(crate) fn into_parts(self) -> (Pfn, u32) {
        let parts = (self.head, self.count);
        self.spend();
        parts
    }
}

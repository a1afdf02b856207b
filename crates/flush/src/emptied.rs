//! Cleared page table entries, as values that only a flush or a debt consumes.
//!
//! *Problem.* Between the clearing of an entry and the flush, CPUs still use the old translation. The code that
//! clears must flush, or leave a debt, before the page is freed, copied or replaced. A function that forgets this
//! looks complete, and works in nearly every run.
//!
//! *Rule.* Clearing entries returns an [`Emptied`], taking rights from entries a [`Tightened`]. Dropping one panics.
//! There are three ways to consume one, all in this room, and each reports to observers that CPUs may hold stale
//! translations:
//! - a [`Gather`](super::Gather) takes it: the changes of a system call are flushed when the call ends, and
//!   references are dropped after that;
//! - an [`UnmapBatch`](super::UnmapBatch) takes it: reclaim flushes by policy or leaves a debt, and marks the table;
//! - [`Tlb::flush_emptied`] flushes at once.
//!
//! An [`Emptied`] holds the references of its entries. Only a flush or a debt turns them into [`Refs`], which must be
//! dropped explicitly.
//!
//! *Why not otherwise.* Asking for a proof where a page is freed would burden code that frees pages which were never
//! mapped. Flushing in the function that clears would flush each page by itself.

use crate::cleared::Cleared;
use crate::debt::WITH_BATCH;
use crate::host::Host;
use base::linear;
use base::units::*;

/// Entries of one table that were emptied, under the lock of its tree, with the references that they held.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// let (kernel, ledger) = Kernel::that_was_read(Shape::Collect { listed: false });
/// let emptied = kernel.clear(A, P);
/// assert_eq!(emptied.range(), (Vpn(0), Vpn(1)));
/// // CPUs 1 and 2 have cached the entry. This flushes it, and gives its reference.
/// let refs = ledger.flush_emptied(&kernel, emptied);
/// kernel.free(&ledger, refs);
/// ```
#[must_use = "CPUs may still use these entries: give this to a gather or a batch, or flush it"]
#[derive(Debug)]
pub struct Emptied {
    what: Cleared,
    /// The table that contained them.
    table: Pfn,
    /// The hold of its lock in which they were emptied.
    hold: u16,
    /// Whether they held no reference.
    uncounted: bool,
    /// The first entry before that, with the marks of all.
    raw: u64,
}

linear!(Emptied, "emptied entries must be given to a gather or a batch, or flushed");

/// Entries that lost rights or marks, under the lock of their tree. They still hold their references.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// let (kernel, ledger) = Kernel::that_was_read(Shape::Collect { listed: false });
/// kernel.map(A, P, Pfn(0), true);
/// let tightened = kernel.forbid_stores(A, P);
/// ledger.flush_tightened(&kernel, tightened);
/// kernel.on(1);
/// assert!(!kernel.write(P, 7), "no CPU can store any more");
/// ```
#[must_use = "CPUs may still use the old rights: give this to a gather, or flush it"]
#[derive(Debug)]
pub struct Tightened {
    what: Cleared,
    /// The first entry before that, with the marks of all.
    raw: u64,
}

linear!(Tightened, "entries that lost rights must be given to a gather, or flushed");

/// References of a folio that entries held. No CPU reaches the folio through these entries any more, or a debt for
/// that is noted.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// let (kernel, ledger) = Kernel::that_was_read(Shape::Collect { listed: false });
/// let refs = ledger.flush_emptied(&kernel, kernel.clear(A, P));
/// let (frame, references) = refs.release(&kernel);
/// assert_eq!((frame, references), (Pfn(0), 1));
/// ```
#[must_use = "the references would never be dropped"]
#[derive(Debug)]
pub struct Refs {
    head: Pfn,
    count: u32,
    /// Whether a batch has still to flush.
    owed: bool,
}

linear!(
    Refs,
    "references of emptied entries must be dropped: with `put_refs`, or with `put_held` if another is held"
);

impl Emptied {
    /// Entries of the table in the frame `table` that the caller has just emptied. `hold` numbers the hold of the
    /// table's lock, `raw` is the first entry as it was, with the marks of all; the crate keeps both for the caller.
    #[inline(always)]
    pub fn new(what: Cleared, (table, hold): (Pfn, u16), raw: u64) -> Emptied {
        Emptied { what, table, hold, uncounted: false, raw }
    }

    /// The first entry, with all marks that hardware had set in any of them.
    #[inline(always)]
    pub fn raw(&self) -> u64 {
        self.raw
    }

    /// What was emptied.
    #[inline(always)]
    pub fn what(&self) -> &Cleared {
        &self.what
    }

    /// The first page, and the page after the last.
    #[inline]
    pub fn range(&self) -> (Vpn, Vpn) {
        (self.what.page, Vpn(self.what.page.0 + self.what.pages as u64))
    }

    /// Whether a 2 MiB entry mapped a whole folio.
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        self.what.order != Order::ZERO
    }

    /// The table that contained the entries.
    #[inline(always)]
    pub fn table(&self) -> Pfn {
        self.table
    }

    /// The hold of its lock in which they were emptied, as its maker numbered it.
    #[inline(always)]
    pub fn hold(&self) -> u16 {
        self.hold
    }

    /// The content is dropped, so that the addresses will read something else.
    #[inline]
    pub fn dropping_content(mut self) -> Emptied {
        self.what.dropped = true;
        self
    }

    /// They mapped the zero page; its entries hold no reference.
    #[inline(always)]
    pub fn of_zeroes(mut self, zero: Pfn) -> Emptied {
        assert!(self.what.head == zero, "only entries of the zero page hold no reference");
        self.uncounted = true;
        self
    }

    /// They were restored in the same hold of the lock.
    #[inline]
    pub fn put_back(self) {
        self.spend();
    }

    /// Release the references: there is a flush or a debt. `owed`: a batch has still to flush.
    #[inline(always)]
    pub(crate) fn into_refs(self, owed: bool) -> Refs {
        // Each entry held one.
        let count = if self.uncounted { 0 } else { self.what.pages >> self.what.order.0 };
        let refs = Refs { head: self.what.head, count, owed };
        self.spend();
        refs
    }
}

impl Tightened {
    /// Entries that `table`'s room has just taken rights from: `raw` is the first entry before that, with the marks
    /// of all.
    #[inline(always)]
    pub fn new(what: Cleared, raw: u64) -> Tightened {
        Tightened { what, raw }
    }

    /// The first entry before that, with the marks of all.
    #[inline(always)]
    pub fn raw(&self) -> u64 {
        self.raw
    }

    /// The entries that lost rights.
    #[inline(always)]
    pub fn what(&self) -> &Cleared {
        &self.what
    }

    /// Consume the value: there is a flush.
    #[inline(always)]
    pub(crate) fn used_up(self) {
        self.spend();
    }
}

impl Refs {
    /// The folio.
    #[inline]
    pub fn head(&self) -> Pfn {
        self.head
    }

    /// The folio and the number of references, for code that drops them where one may be the last. If the batch that
    /// took the entries has not flushed yet, the frame is marked: it takes the debt along when it is freed
    /// ([`Tlb::adopt`](crate::Tlb::adopt)).
    #[inline]
    pub fn release<H: Host>(self, host: &H) -> (Pfn, u32) {
        if self.owed {
            host.set_tag(self.head, WITH_BATCH);
        }
        self.into_parts()
    }

    /// The folio and the number of references, for code that holds another reference, and does so until the batch that
    /// took the entries is settled.
    #[inline(always)]
    pub fn into_parts(self) -> (Pfn, u32) {
        let parts = (self.head, self.count);
        self.spend();
        parts
    }
}

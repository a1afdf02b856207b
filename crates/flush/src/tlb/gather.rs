//! Changing a range of a space: collect cleared entries, flush once, then release what they held.

use super::batch::stale;
use super::{Tlb, in_step};
use crate::cleared::Cleared;
use crate::emptied::{Emptied, Tightened};
use crate::host::{Host, Notice, Step};
use crate::range::Range;
use base::units::*;
use smallvec::SmallVec;

/// Folios, with the number of references to drop of each. Inline for a few folios, as most calls drop few.
type Dropped = SmallVec<[(Pfn, u32); 8]>;

/// Ranges to flush.
#[derive(Debug)]
struct Touched {
    start: Vpn,
    end: Vpn,
    /// 2 MiB entries.
    large: Option<(Vpn, Vpn)>,
    freed_tables: bool,
}

impl Touched {
    const NOTHING: Touched = Touched { start: Vpn(u64::MAX), end: Vpn(0), large: None, freed_tables: false };

    /// Entries of some pages were cleared, or lost rights or marks.
    #[inline]
    fn add(&mut self, page: Vpn, pages: u64, order: Order) {
        let end = Vpn(page.0 + pages);
        if order == Order::ZERO {
            self.start = self.start.min(page);
            self.end = self.end.max(end);
        } else {
            let (first, last) = self.large.unwrap_or((page, end));
            self.large = Some((first.min(page), last.max(end)));
        }
    }

    /// The range to flush, if any.
    fn range(&self) -> Option<Range> {
        let pages = self.start < self.end;
        let something = pages || self.large.is_some() || self.freed_tables;
        something.then(|| {
            let (mut start, mut end) = (self.start.min(self.end), self.end);
            let mut stride = Order::ZERO;
            if let Some((first, last)) = self.large {
                let only = !pages && !self.freed_tables;
                (start, end) = if pages { (start.min(first), end.max(last)) } else { (first, last) };
                stride = if only { PAGEBLOCK_ORDER } else { Order::ZERO };
            }
            let pages = if self.freed_tables { u64::MAX } else { end.0 - start.0 };
            Range { start, pages, stride, freed_tables: self.freed_tables }
        })
    }
}

/// What one munmap, mprotect, madvise or exit clears.
///
/// Only [`Tlb::gather`] makes one; it flushes and settles when the change is complete. So code that has one may
/// change what addresses mean: when the call returns, no CPU holds a stale translation.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// let (kernel, ledger) = Kernel::that_was_read(Shape::Collect { listed: false });
/// let unmap = |gather: &mut Gather| {
///     gather.changes(P, Vpn(2));
///     gather.emptied(&kernel, kernel.clear(A, P));
///     gather.emptied(&kernel, kernel.clear(A, Q));
/// };
/// let free = |finished: Finished<'_>| {
///     finished.folios.iter().for_each(|&(frame, _)| kernel.free_frame(&ledger, frame));
/// };
/// ledger.gather(&kernel, A, unmap, free);
/// # kernel.on(1);
/// assert_eq!(kernel.read(P), None);
/// ```
pub struct Gather {
    space: SpaceId,
    touched: Touched,
    /// Pages whose content or rights change.
    changed: Option<(Vpn, Vpn)>,
    /// Folios that lost mappings, and the references of these, to drop after the flush.
    folios: Dropped,
    /// Page-table pages to free after the flush.
    tables: SmallVec<[Pfn; 4]>,
}

impl Gather {
    /// Empty.
    fn new(space: SpaceId) -> Gather {
        let (folios, tables) = (SmallVec::new(), SmallVec::new());
        Gather { space, touched: Touched::NOTHING, changed: None, folios, tables }
    }

    /// The content or the rights of `[start, end)` change, whatever the entries are.
    pub fn changes(&mut self, start: Vpn, end: Vpn) {
        let (first, last) = self.changed.unwrap_or((start, end));
        self.changed = Some((first.min(start), last.max(end)));
    }

    /// The space whose entries are changed.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Take entries that were emptied. Their references are dropped after the flush.
    #[inline(always)]
    pub fn emptied<H: Host>(&mut self, host: &H, emptied: Emptied) {
        self.touch(host, emptied.what());
        self.drop_later(emptied);
    }

    /// Take entries that are emptied in ascending order.
    pub fn ascending(&mut self) -> Ascending<'_> {
        Ascending { space: self.space, gather: self, first: Vpn(0), end: Vpn(0) }
    }

    #[inline(always)]
    fn drop_later(&mut self, emptied: Emptied) {
        let (head, refs) = emptied.into_refs(false).into_parts();
        // A folio of one page has one entry here.
        if refs == 1 { self.folios.push((head, 1)) } else { self.drop_several_later(head, refs) }
    }

    #[inline(never)]
    fn drop_several_later(&mut self, head: Pfn, refs: u32) {
        match self.folios.last_mut() {
            _ if refs == 0 => {}
            Some((last, more)) if *last == head => *more += refs,
            _ => self.folios.push((head, refs)),
        }
    }

    /// Take entries that lost rights or marks.
    #[inline]
    pub fn tightened<H: Host>(&mut self, host: &H, tightened: Tightened) {
        self.touch(host, tightened.what());
        tightened.used_up();
    }

    #[inline(always)]
    fn touch<H: Host>(&mut self, host: &H, cleared: &Cleared) {
        check_space(cleared.space, self.space);
        stale(host, cleared, true);
        self.touched.add(cleared.page, cleared.pages as u64, cleared.order);
    }

    /// A page-table page was taken out of the tree.
    pub fn table(&mut self, table: Pfn) {
        self.touched.freed_tables = true;
        self.tables.push(table);
    }

    /// Free a page-table page that was reserved for the tree; hardware never saw it.
    pub fn unused_table(&mut self, table: Pfn) {
        self.tables.push(table);
    }
}

/// A [`Gather`] for page-sized entries in ascending order, which records their hull once.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// let (kernel, ledger) = Kernel::that_was_read(Shape::Collect { listed: false });
/// let unmap = |gather: &mut Gather| {
///     let mut ascending = gather.ascending();
///     [P, Q].into_iter().for_each(|page| ascending.emptied(&kernel, kernel.clear(A, page)));
/// };
/// ledger.gather(&kernel, A, unmap, |finished| assert_eq!(finished.folios.len(), 2));
/// ```
pub struct Ascending<'a> {
    gather: &'a mut Gather,
    space: SpaceId,
    /// From the first page to the last, if any.
    first: Vpn,
    end: Vpn,
}

impl Ascending<'_> {
    /// [`Gather::emptied`] of a page-sized entry after the previous ones.
    #[inline(always)]
    pub fn emptied<H: Host>(&mut self, host: &H, emptied: Emptied) {
        let what = emptied.what();
        check_space(what.space, self.space);
        stale(host, what, true);
        if self.end == Vpn(0) {
            self.first = what.page;
        }
        self.end = Vpn(what.page.0 + what.pages as u64);
        self.gather.drop_later(emptied);
    }

    /// The gather, for 2 MiB entries and tables.
    pub fn gather(&mut self) -> &mut Gather {
        self.gather
    }

    /// The next entry is at a lower address.
    pub fn descend(&mut self) {
        if self.first < self.end {
            self.gather.touched.add(self.first, self.end.0 - self.first.0, Order::ZERO);
        }
        (self.first, self.end) = (Vpn(0), Vpn(0));
    }
}

impl Drop for Ascending<'_> {
    fn drop(&mut self) {
        self.descend();
    }
}

/// What a gather has collected, after its flush.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// let (kernel, ledger) = Kernel::that_was_read(Shape::Collect { listed: false });
/// // Nothing of what a gather took is free before its flush, and all of it is here afterwards.
/// let free = |finished: Finished<'_>| {
///     assert!(finished.folios.is_empty());
///     finished.tables.iter().for_each(|&table| kernel.free_table(table));
/// };
/// ledger.gather(&kernel, A, |gather| gather.table(kernel.unlink_table(A)), free);
/// ```
pub struct Finished<'a> {
    /// Folios, with the number of references to drop of each.
    pub folios: &'a [(Pfn, u32)],
    /// Page-table pages to free.
    pub tables: &'a [Pfn],
}

/// Entries lose rights or marks; no entry loses its page, and addresses keep their content. Only [`Tlb::tighten`]
/// makes one, and flushes when the change is complete. Debts of reclaim stay unpaid.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// let (kernel, ledger) = Kernel::that_was_read(Shape::Collect { listed: false });
/// // fork: the parent's pages are shared from now on.
/// ledger.tighten(&kernel, A, |tightening| {
///     [P, Q].into_iter().for_each(|page| tightening.tightened(&kernel, kernel.forbid_stores(A, page)));
/// });
/// ```
pub struct Tightening {
    space: SpaceId,
    touched: Touched,
    all: bool,
}

impl Tightening {
    /// The space whose entries are changed.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Take entries that lost rights or marks.
    #[inline]
    pub fn tightened<H: Host>(&mut self, host: &H, tightened: Tightened) {
        let what = tightened.what();
        check_space(what.space, self.space);
        stale(host, what, true);
        self.touched.add(what.page, what.pages as u64, what.order);
        tightened.used_up();
    }

    /// Entries of some pages lost their young bits. A CPU that has cached them would not set the bits again.
    #[inline]
    pub fn aged(&mut self, page: Vpn, pages: u64, order: Order) {
        self.touched.add(page, pages, order);
    }

    /// Flush the whole space.
    pub fn everything(&mut self) {
        self.all = true;
    }

    fn range(&self) -> Option<Range> {
        if self.all { Some(Range::ALL) } else { self.touched.range() }
    }
}

impl Tlb {
    /// Change entries of a space. `change` records what it clears. On return that has been flushed, and other debts
    /// of the space have been paid, unless the space has ended: then no CPU runs it. `release` frees what the change
    /// collected.
    pub fn gather<H: Host, R>(
        &self,
        host: &H,
        space: SpaceId,
        change: impl FnOnce(&mut Gather) -> R,
        release: impl FnOnce(Finished<'_>),
    ) -> R {
        let alive = self.is_alive(space);
        self.begin_tightening(space);
        let mut gather = Gather::new(space);
        let result = change(&mut gather);
        let range = self.to_flush(space, gather.touched.range()).filter(|_| alive);
        let _scope = in_step(host, Step::Finish);
        if let Some(range) = range {
            self.flush(host, space, range);
        }
        self.end_tightening(space);
        if alive {
            self.settle_space(host, space);
        }
        flushed(host, space, range);
        if let Some((start, end)) = gather.changed {
            host.tell(Notice::Changed(space, start, end.0 - start.0));
        }
        release(Finished { folios: &gather.folios, tables: &gather.tables });
        result
    }

    /// What a change that touched `own` must flush: the whole space if another change is in flight.
    #[inline]
    fn to_flush(&self, space: SpaceId, own: Option<Range>) -> Option<Range> {
        if !self.is_nested(space) {
            return own;
        }
        let freed_tables = own.is_some_and(|range| range.freed_tables);
        Some(Range { freed_tables, ..Range::ALL })
    }

    /// Take rights or marks from entries of a space. `change` records which. On return that has been flushed.
    pub fn tighten<H: Host, R>(
        &self,
        host: &H,
        space: SpaceId,
        change: impl FnOnce(&mut Tightening) -> R,
    ) -> R {
        self.begin_tightening(space);
        let mut tightening = Tightening { space, touched: Touched::NOTHING, all: false };
        let result = change(&mut tightening);
        let range = self.to_flush(space, tightening.range());
        let _scope = in_step(host, Step::Finish);
        if let Some(range) = range {
            self.flush(host, space, range);
        }
        self.end_tightening(space);
        flushed(host, space, range);
        result
    }
}

/// The flushed entries must belong to the flushed space. (Taken by value: a reference would force them into memory.)
#[inline(always)]
fn check_space(space: SpaceId, flushed: SpaceId) {
    if space != flushed {
        not_flushed(space, flushed);
    }
}

#[cold]
#[inline(never)]
fn not_flushed(space: SpaceId, flushed: SpaceId) -> ! {
    panic!("entries of {space} must not be given to a flush of {flushed}");
}

/// Report to observers that no CPU holds what a flush was for.
pub(crate) fn flushed<H: Host>(host: &H, space: SpaceId, range: Option<Range>) {
    if let Some(range) = range {
        host.tell(Notice::Flushed(space, range));
    }
}

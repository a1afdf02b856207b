//! Ranges to flush.

use base::units::*;

/// Pages whose translations are to be dropped.
///
/// ```
/// # use pagefold_flush::{Order, Range, Vpn};
/// assert_eq!(Range::page(Vpn(5)), Range::pages(Vpn(5), 1));
/// let large = Range::entries(Vpn(512), 1024, Order(9));
/// assert_eq!(large.pages >> large.stride.0, 2, "two entries of 2 MiB");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First page.
    pub start: Vpn,
    /// Number of pages; `u64::MAX`: the whole space.
    pub pages: u64,
    /// Size of what each entry mapped: a page, or 2 MiB. One invalidation drops an entry.
    pub stride: Order,
    /// Whether page-table pages were freed. Then lazy CPUs must catch up too: they may walk the tables speculatively.
    pub freed_tables: bool,
}

impl Range {
    /// One page.
    pub const fn page(page: Vpn) -> Range {
        Range::pages(page, 1)
    }

    /// Some pages.
    pub const fn pages(start: Vpn, pages: u64) -> Range {
        Range::entries(start, pages, Order::ZERO)
    }

    /// Pages that were mapped by entries of one size.
    pub const fn entries(start: Vpn, pages: u64, stride: Order) -> Range {
        Range { start, pages, stride, freed_tables: false }
    }

    /// Everything.
    pub const ALL: Range = Range::pages(Vpn(0), u64::MAX);
}

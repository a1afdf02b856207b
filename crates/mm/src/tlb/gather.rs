//! Unmapping by the process itself: collect the pages and tables of one range, flush once, then let go of them.

use super::Range;
use crate::units::*;
use std_alloc::vec::Vec;

/// What one munmap, madvise or exit takes away. Settled by [`Memory::finish`](crate::memory::Memory::finish).
#[must_use = "a gather must be finished: pages wait in it"]
pub struct Gather {
    pub(crate) space: SpaceId,
    pub(crate) start: Vpn,
    pub(crate) end: Vpn,
    pub(crate) freed_tables: bool,
    /// Is the whole space going? Then no CPU runs it and there is nothing to flush.
    pub(crate) whole_space: bool,
    /// Folios that lost a mapping: one reference each is to be dropped after the flush.
    pub(crate) pages: Vec<Pfn>,
    /// Page-table pages to free after the flush.
    pub(crate) tables: Vec<Pfn>,
}

impl Gather {
    /// Nothing taken yet.
    pub fn new(space: SpaceId, whole_space: bool) -> Gather {
        let (pages, tables) = (Vec::new(), Vec::new());
        Gather { space, start: Vpn(u64::MAX), end: Vpn(0), freed_tables: false, whole_space, pages, tables }
    }

    /// A present entry was cleared; if it mapped a folio whose reference is to be dropped, that too.
    #[inline]
    pub fn page(&mut self, page: Vpn, folio: Option<Pfn>) {
        self.touched(page);
        self.pages.extend(folio);
    }

    /// An entry lost rights.
    #[inline]
    pub fn touched(&mut self, page: Vpn) {
        self.start = self.start.min(page);
        self.end = self.end.max(Vpn(page.0 + 1));
    }

    /// A page-table page was taken out of the tree.
    pub fn table(&mut self, table: Pfn) {
        self.freed_tables = true;
        self.tables.push(table);
    }

    /// What must be flushed, if anything.
    pub(crate) fn range(&self) -> Option<Range> {
        let something = self.start < self.end || self.freed_tables;
        (something && !self.whole_space).then(|| Range {
            start: self.start.min(self.end),
            pages: if self.freed_tables { u64::MAX } else { self.end.0 - self.start.0 },
            freed_tables: self.freed_tables,
        })
    }
}

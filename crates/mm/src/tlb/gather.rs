//! Changing a range of a space: collect what was taken away, flush once, then let go of it.

use super::Range;
use crate::units::*;
use smallvec::SmallVec;

/// Why entries are changed, which decides what must be true when the change is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Addresses get another meaning, or lose rights: on return no CPU may use what the entries said before, nor what
    /// entries said that reclaim had cleared already.
    Meaning,
    /// Only what is known of their use changes.
    Age,
    /// The whole space goes, and no CPU runs it.
    Exit,
}

/// What one munmap, mprotect, madvise or exit takes away.
///
/// Only [`Memory::gather`](crate::memory::Memory::gather) makes one, and settles when the change is over. So whoever holds
/// one may change what addresses mean: nobody will hold an old translation when the call returns.
pub struct Gather {
    pub(crate) space: SpaceId,
    pub(crate) purpose: Purpose,
    start: Vpn,
    end: Vpn,
    /// What 2 MiB entries mapped.
    large: Option<(Vpn, Vpn)>,
    freed_tables: bool,
    /// Pages whose meaning or rights change.
    changed: Option<(Vpn, Vpn)>,
    /// Folios that lost mappings, and the references that these held, which are dropped after the flush.
    /// A few stand in place: most calls take few.
    pub(crate) folios: SmallVec<[(Pfn, u32); 8]>,
    /// Page-table pages to free after the flush.
    pub(crate) tables: SmallVec<[Pfn; 4]>,
}

impl Gather {
    /// Nothing taken yet.
    pub(crate) fn new(space: SpaceId, purpose: Purpose) -> Gather {
        let (folios, tables) = (SmallVec::new(), SmallVec::new());
        Gather {
            space,
            purpose,
            start: Vpn(u64::MAX),
            end: Vpn(0),
            large: None,
            freed_tables: false,
            changed: None,
            folios,
            tables,
        }
    }

    /// The meaning or the rights of `[start, end)` change, whatever entries say.
    pub fn changes(&mut self, start: Vpn, end: Vpn) {
        assert_ne!(self.purpose, Purpose::Age, "a change of meaning under a gather that does not settle");
        let (first, last) = self.changed.unwrap_or((start, end));
        self.changed = Some((first.min(start), last.max(end)));
    }

    /// The hull of what changes its meaning or its rights.
    pub(crate) fn changed(&self) -> Option<(Vpn, Vpn)> {
        self.changed
    }

    /// The space whose entries are changed.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// The entries of some pages mapped parts of a folio and are cleared: the references that they held are to be dropped.
    #[inline]
    pub fn folio(&mut self, head: Pfn, refs: u32) {
        match self.folios.last_mut() {
            Some((last, more)) if *last == head => *more += refs,
            _ => self.folios.push((head, refs)),
        }
    }

    /// The same for one entry of a folio that is one page.
    #[inline]
    pub fn page(&mut self, page: Pfn) {
        self.folios.push((page, 1));
    }

    /// The entries of some pages were cleared or lost rights.
    #[inline]
    pub fn touched(&mut self, page: Vpn, pages: u64) {
        self.start = self.start.min(page);
        self.end = self.end.max(Vpn(page.0 + pages));
    }

    /// A 2 MiB entry was cleared or lost rights.
    pub fn touched_large(&mut self, page: Vpn) {
        let end = Vpn(page.0 + TABLE_ENTRIES as u64);
        let (first, last) = self.large.unwrap_or((page, end));
        self.large = Some((first.min(page), last.max(end)));
    }

    /// A page-table page was taken out of the tree.
    pub fn table(&mut self, table: Pfn) {
        self.freed_tables = true;
        self.tables.push(table);
    }

    /// A page-table page that was kept for a tree is not needed any more; hardware never saw it.
    pub fn unused_table(&mut self, table: Pfn) {
        self.tables.push(table);
    }

    /// What must be flushed, if anything.
    pub(crate) fn range(&self) -> Option<Range> {
        let pages = self.start < self.end;
        let something = pages || self.large.is_some() || self.freed_tables;
        (something && self.purpose != Purpose::Exit).then(|| {
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

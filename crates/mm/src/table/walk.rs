//! Finding entries, one or a range.

use super::{Bits, Entry, LEVEL_BITS, LEVELS, Locked, Slot};
use crate::machine::{Machine, Work};
use crate::tlb::{Cleared, Gather};
use crate::units::*;

/// Index of a page's entry in the table of `level`.
#[inline]
pub(super) const fn index(page: Vpn, level: u32) -> usize {
    (page.0 >> (level * LEVEL_BITS)) as usize & (TABLE_ENTRIES - 1)
}

/// Pages that one entry of `level` spans.
#[inline]
const fn span(level: u32) -> u64 {
    1 << (level * LEVEL_BITS)
}

/// An entry that maps pages, or could.
#[derive(Clone, Copy, Debug)]
pub struct Leaf {
    /// First page that the entry is for.
    pub page: Vpn,
    /// Where it stands.
    pub slot: Slot,
    /// What it was when found.
    pub entry: Entry,
    /// Size of what it maps: one page, or 2 MiB.
    pub order: Order,
}

impl Leaf {
    /// The entry of `space`, which mapped a page of the folio at `head`, has been cleared; `old`: as it was.
    pub fn cleared(&self, space: SpaceId, old: Entry, head: Pfn) -> Cleared {
        Cleared {
            space,
            page: self.page,
            pfn: old.pfn(),
            head,
            writable: old.has(Bits::WRITE),
            never_used: !old.bits().intersects(Bits::YOUNG | Bits::AGED | Bits::DIRTY),
            dropped: false,
        }
    }
}

impl<'a, M: Machine> Locked<'a, M> {
    /// The entry of a page, if there is a table for it.
    #[inline]
    pub fn find(&self, page: Vpn) -> Option<Leaf> {
        if let Some(table) = self.counts.recent.get(page) {
            let slot = self.slot(table, page, 0);
            self.base.charge(Work::TableLevel, LEVELS as u64);
            return Some(Leaf { page, slot, entry: self.read(slot), order: Order::ZERO });
        }
        self.find_from_root(page)
    }

    fn find_from_root(&self, page: Vpn) -> Option<Leaf> {
        let mut table = self.root;
        for level in (0..LEVELS).rev() {
            let slot = self.slot(table, page, level);
            let entry = self.read(slot);
            if level == 0 {
                self.base.charge(Work::TableLevel, LEVELS as u64);
                self.counts.recent.set(page, table);
                return Some(Leaf { page, slot, entry, order: Order::ZERO });
            }
            if !entry.is_present() {
                return None;
            }
            if entry.has(Bits::LARGE) {
                let page = Vpn(page.0 & !(span(level) - 1));
                return Some(Leaf { page, slot, entry, order: Order((level * LEVEL_BITS) as u8) });
            }
            table = entry.pfn();
        }
        None
    }

    /// Visit all entries of `[start, end)` that are not empty, in order. The visitor may change the entry that it is
    /// shown. Whole missing tables are stepped over.
    pub fn for_each(&mut self, start: Vpn, end: Vpn, visit: &mut dyn FnMut(&mut Self, Leaf)) {
        let root = self.root;
        self.visit_table(root, LEVELS - 1, start, end, visit);
    }

    fn visit_table(
        &mut self,
        table: Pfn,
        level: u32,
        start: Vpn,
        end: Vpn,
        visit: &mut dyn FnMut(&mut Self, Leaf),
    ) {
        let mut page = start;
        let mut empty = 0;
        while page < end {
            let next = Vpn((page.0 | (span(level) - 1)) + 1).min(end);
            let slot = self.slot(table, page, level);
            let entry = self.read(slot);
            if entry.is_none() {
                empty += 1;
            } else if level == 0 {
                visit(self, Leaf { page, slot, entry, order: Order::ZERO });
            } else if entry.has(Bits::LARGE) {
                let page = Vpn(page.0 & !(span(level) - 1));
                visit(self, Leaf { page, slot, entry, order: Order((level * LEVEL_BITS) as u8) });
            } else {
                self.visit_table(entry.pfn(), level - 1, page, next, visit);
            }
            page = next;
        }
        if level == 0 {
            self.base.charge(Work::EntryScan, empty);
        }
    }

    /// Take all tables out of the tree that lie in `[start, end)`, or partly in it, and have no entry left.
    pub fn take_empty_tables(&mut self, start: Vpn, end: Vpn, gather: &mut Gather) {
        let root = self.root;
        self.take_empty_below(root, LEVELS - 1, start, end, gather);
    }

    fn take_empty_below(&mut self, table: Pfn, level: u32, start: Vpn, end: Vpn, gather: &mut Gather) {
        let mut page = start;
        while page < end {
            let next = Vpn((page.0 | (span(level) - 1)) + 1).min(end);
            let slot = self.slot(table, page, level);
            let entry = self.read(slot);
            if entry.is_present() && !entry.has(Bits::LARGE) {
                let below = entry.pfn();
                if level > 1 {
                    self.take_empty_below(below, level - 1, page, next, gather);
                }
                if self.base.frames[below].private() == 0 {
                    self.replace(slot, Entry::NONE);
                    self.counts.tables -= 1;
                    self.counts.recent.forget();
                    gather.table(below);
                }
            }
            page = next;
        }
    }

    /// Check that every table's count of entries is right and that no entry leads outside memory. Returns the number
    /// of entries that map or hold a page.
    pub fn validate(&self) -> Result<u64, std_alloc::string::String> {
        let mut tables = 0;
        let leaves = self.validate_table(self.root, LEVELS - 1, &mut tables)?;
        if tables != self.counts.tables {
            return Err(std_alloc::format!("{tables} tables found, {} counted", self.counts.tables));
        }
        Ok(leaves)
    }

    fn validate_table(
        &self,
        table: Pfn,
        level: u32,
        tables: &mut u32,
    ) -> Result<u64, std_alloc::string::String> {
        *tables += 1;
        let (mut used, mut leaves) = (0, 0);
        for i in 0..TABLE_ENTRIES {
            let entry = self.at(table, i);
            used += u64::from(!entry.is_none());
            if entry.is_present() && self.base.frames.get(entry.pfn()).is_none() {
                return Err(std_alloc::format!("entry {i} of table {table} leads to {}", entry.pfn()));
            }
            leaves += match level {
                0 => u64::from(!entry.is_none()),
                _ if entry.has(Bits::LARGE) => 1,
                _ if entry.is_present() => self.validate_table(entry.pfn(), level - 1, tables)?,
                _ => 0,
            };
        }
        let counted = self.base.frames[table].private();
        if used != counted {
            return Err(std_alloc::format!("table {table} has {used} entries, counted {counted}"));
        }
        Ok(leaves)
    }
}

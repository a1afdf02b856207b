//! Finding entries, one or a range.

use super::run::exchange;
use super::{Bits, Entry, LEVEL_BITS, LEVELS, Locked, Run};
use crate::machine::{Machine, Work};
use crate::primitive::{AtomicU64, Ordering::*};
use crate::tlb::Gather;
use crate::units::*;

/// Index of a page's entry in the table of `level`.
#[inline]
pub(super) const fn index(page: Vpn, level: u32) -> usize {
    (page.0.wrapping_shr(shift(level))) as usize & (TABLE_ENTRIES - 1)
}

/// Pages that one entry of `level` spans.
#[inline]
const fn span(level: u32) -> u64 {
    1u64.wrapping_shl(shift(level))
}

/// log2 of that. Every step of every walk needs it: no check whether the level is one of [`LEVELS`].
#[inline]
const fn shift(level: u32) -> u32 {
    level.wrapping_mul(LEVEL_BITS)
}

impl<'a, M: Machine> Locked<'a, M> {
    /// The entry of a page, if there is a table for it.
    #[inline]
    pub fn find(&self, page: Vpn) -> Option<Run> {
        if let Some(table) = self.counts.recent.get(page) {
            let slot = self.slot(table, page, 0);
            self.base.charge(Work::TableLevel, LEVELS as u64);
            return Some(Run {
                page,
                slot,
                entry: self.read(slot),
                order: Order::ZERO,
                count: 1,
                head: Pfn::NONE,
            });
        }
        self.find_from_root(page)
    }

    fn find_from_root(&self, page: Vpn) -> Option<Run> {
        let mut table = self.root;
        for level in (0..LEVELS).rev() {
            let slot = self.slot(table, page, level);
            let entry = self.read(slot);
            if level == 0 {
                self.base.charge(Work::TableLevel, LEVELS as u64);
                self.counts.recent.set(page, table);
                return Some(Run { page, slot, entry, order: Order::ZERO, count: 1, head: Pfn::NONE });
            }
            if !entry.is_present() {
                return None;
            }
            if entry.has(Bits::LARGE) {
                let page = Vpn(page.0 & !(span(level) - 1));
                return Some(Run {
                    page,
                    slot,
                    entry,
                    order: Order((level * LEVEL_BITS) as u8),
                    count: 1,
                    head: Pfn::NONE,
                });
            }
            table = entry.pfn();
        }
        None
    }

    /// Visit all entries of `[start, end)` that are not empty, in order and in runs. The visitor may change the entries that
    /// it is shown. Whole missing tables are stepped over. A 2 MiB entry is shown whole, wherever the range begins or ends.
    #[inline]
    pub fn for_each(&mut self, start: Vpn, end: Vpn, mut visit: impl FnMut(&mut Self, Run)) {
        let mut visit = |tables: &mut Self, run: &mut Run, _: &[AtomicU64]| {
            visit(tables, *run);
            0
        };
        self.visit_range(start, end, &mut visit);
    }

    /// As [`Locked::for_each`], but clear those runs that are `wanted` before they are shown. Their entry is then as hardware
    /// left it.
    #[inline]
    pub fn take_each(
        &mut self,
        start: Vpn,
        end: Vpn,
        wanted: impl Fn(&Run) -> bool,
        mut visit: impl FnMut(&mut Self, &Run),
    ) {
        let mut visit = |tables: &mut Self, run: &mut Run, cells: &[AtomicU64]| {
            if !wanted(run) {
                return 0;
            }
            run.entry = exchange(cells, |_| Entry::NONE);
            visit(tables, run);
            run.count
        };
        self.visit_range(start, end, &mut visit);
    }

    /// Walk the tables of a range, from the root or, if it lies in the table that was found last, from there.
    #[inline]
    fn visit_range(
        &mut self,
        start: Vpn,
        end: Vpn,
        visit: &mut impl FnMut(&mut Self, &mut Run, &[AtomicU64]) -> u32,
    ) {
        let longest = self.longest_run();
        match self.counts.recent.get(start) {
            Some(table) if start < end && end.0 - start.0 <= (TABLE_ENTRIES - index(start, 0)) as u64 => {
                self.visit_lowest(table, (start, end), longest, visit);
            }
            _ => self.visit_table(self.root, LEVELS - 1, (start, end), longest, visit),
        }
    }

    /// Walk a table of a level above the lowest. The visitor is given the places of a run too, and says how many of them it left
    /// empty.
    fn visit_table(
        &mut self,
        table: Pfn,
        level: u32,
        (start, end): (Vpn, Vpn),
        longest: usize,
        visit: &mut impl FnMut(&mut Self, &mut Run, &[AtomicU64]) -> u32,
    ) {
        let base = self.base;
        let cells = base.machine.table(table);
        let mut page = start;
        while page < end {
            let next = Vpn((page.0 | (span(level) - 1)) + 1).min(end);
            let at = index(page, level);
            let entry = Entry::from_raw(cells[at].load(Acquire));
            if entry.is_none() {
                // Nothing below.
            } else if entry.has(Bits::LARGE) {
                let page = Vpn(page.0 & !(span(level) - 1));
                let slot = self.slot(table, page, level);
                let order = Order((level * LEVEL_BITS) as u8);
                let mut run = Run { page, slot, entry, order, count: 1, head: entry.pfn() };
                let gone = visit(self, &mut run, &cells[at..=at]);
                self.count_entries(table, -i64::from(gone));
            } else if level == 1 {
                self.visit_lowest(entry.pfn(), (page, next), longest, visit);
            } else {
                self.visit_table(entry.pfn(), level - 1, (page, next), longest, visit);
            }
            page = next;
        }
    }

    #[inline]
    fn visit_lowest(
        &mut self,
        table: Pfn,
        (start, end): (Vpn, Vpn),
        longest: usize,
        visit: &mut impl FnMut(&mut Self, &mut Run, &[AtomicU64]) -> u32,
    ) {
        let base = self.base;
        let first = index(start, 0);
        let cells = &base.machine.table(table)[first..first + (end.0 - start.0) as usize];
        let slot = self.slot(table, start, 0);
        let (mut at, mut empty, mut gone) = (0, 0, 0);
        while at < cells.len() {
            let entry = Entry::from_raw(cells[at].load(Acquire));
            if entry.is_none() {
                empty += 1;
                at += 1;
                continue;
            }
            let page = Vpn(start.0 + at as u64);
            let mut run = Run::one(page, slot.ahead(at as u32), entry);
            if self.is_of_large_folio(&mut run) {
                let most = longest.min(cells.len() - at);
                self.lengthen(&mut run, &cells[at..at + most]);
            }
            let count = run.count as usize;
            gone += visit(self, &mut run, &cells[at..][..count]);
            at += count;
        }
        self.count_entries(table, -i64::from(gone));
        base.charge(Work::EntryScan, empty);
    }

    /// Take tables out of the tree that lie in `range`, or partly in it, and have no entry left: those that span nothing beyond
    /// `hole`. What a table spans beside it, ranges will probably need a table for again.
    pub fn take_empty_tables(&mut self, range: (Vpn, Vpn), hole: (Vpn, Vpn), gather: &mut Gather) {
        let root = self.root;
        self.take_empty_below(root, LEVELS - 1, range, hole, gather);
    }

    fn take_empty_below(
        &mut self,
        table: Pfn,
        level: u32,
        (start, end): (Vpn, Vpn),
        hole: (Vpn, Vpn),
        gather: &mut Gather,
    ) {
        let mut page = start;
        while page < end {
            let next = Vpn((page.0 | (span(level) - 1)) + 1).min(end);
            let slot = self.slot(table, page, level);
            let entry = self.read(slot);
            if entry.is_present() && !entry.has(Bits::LARGE) {
                let below = entry.pfn();
                if level > 1 {
                    self.take_empty_below(below, level - 1, (page, next), hole, gather);
                }
                let first = page.0 & !(span(level) - 1);
                let inside = hole.0.0 <= first && first + span(level) <= hole.1.0;
                if inside && self.base.frames[below].private() == 0 {
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

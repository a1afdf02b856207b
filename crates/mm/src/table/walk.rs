//! Lookup of entries: one, or those of a range.

use super::run::exchange;
use super::{Absent, Bits, Entry, EntryRun, LEVEL_BITS, LEVELS, LockedTables, Slot, Tree};
use crate::machine::{Machine, Work};
use crate::mmu::Mmu;
use crate::primitive::{AtomicU64, Ordering::*};
use crate::tlb::{Emptied, Gather};
use crate::units::*;
use base::demand;

/// Index of a page's entry in the table of `level`.
#[inline]
pub(super) const fn index(page: Vpn, level: u32) -> usize {
    (page.0.wrapping_shr(shift(level))) as usize & (TABLE_ENTRIES - 1)
}

/// Pages that one entry of `level` covers.
#[inline]
const fn span(level: u32) -> u64 {
    1u64.wrapping_shl(shift(level))
}

/// log2 of this span. Every step of every walk calls this, so it does not check that the level is one of [`LEVELS`].
#[inline]
const fn shift(level: u32) -> u32 {
    level.wrapping_mul(LEVEL_BITS)
}

/// The first page after those that the entry of `page` covers in the table of `level`.
pub(super) fn behind(page: Vpn, level: u32) -> Vpn {
    Vpn((page.0 | (span(level) - 1)) + 1)
}

/// Whether `hole` contains everything that the entry of `page` covers in the table of `level`.
#[inline]
fn is_within(page: Vpn, level: u32, hole: (Vpn, Vpn)) -> bool {
    let first = page.0 & !(span(level) - 1);
    hole.0.0 <= first && first + span(level) <= hole.1.0
}

impl Tree {
    /// The entry of a page, of any size, as it is at this moment: no lock keeps it so.
    #[inline]
    pub(crate) fn look<M: Machine>(&self, mmu: &Mmu<M>, page: Vpn) -> Entry {
        let _inside = self.gate.share();
        let Some(table) = self.recent(mmu, page) else { return self.look_from_root(mmu, page) };
        Entry::from_raw(mmu.machine.table(table)[index(page, 0)].load(Acquire))
    }

    #[inline(never)]
    fn look_from_root<M: Machine>(&self, mmu: &Mmu<M>, page: Vpn) -> Entry {
        let (table, level) = match self.way(mmu, page) {
            Way::Table(table) => (table, 0),
            Way::Large(table, level) => (table, level),
            Way::Hole => return Entry::NONE,
        };
        Entry::from_raw(mmu.machine.table(table)[index(page, level)].load(Acquire))
    }

    /// The lowest table for a page, if it was found last.
    #[inline(always)]
    fn recent<M: Machine>(&self, mmu: &Mmu<M>, page: Vpn) -> Option<Pfn> {
        let table = self.recent.get(page)?;
        mmu.charge(Work::TableLevel, LEVELS as u64);
        Some(table)
    }

    /// The way to the entry of a page, from the root. The caller is inside the tree.
    #[inline(never)]
    fn way<M: Machine>(&self, mmu: &Mmu<M>, page: Vpn) -> Way {
        let mut table = Pfn(self.root.load(Acquire));
        for level in (1..LEVELS).rev() {
            let entry = Entry::from_raw(mmu.machine.table(table)[index(page, level)].load(Acquire));
            // This includes a large entry whose folio is being migrated.
            if entry.has(Bits::LARGE) {
                return Way::Large(table, level);
            }
            if !entry.is_present() {
                return Way::Hole;
            }
            table = entry.pfn();
        }
        mmu.charge(Work::TableLevel, LEVELS as u64);
        self.recent.set(page, table);
        Way::Table(table)
    }
}

/// Where the way to an entry ends.
enum Way {
    /// At this table of the lowest level.
    Table(Pfn),
    /// At a large entry in this table, of this level. No lock keeps it so, but a table does not follow it.
    Large(Pfn, u32),
    /// At an empty entry.
    Hole,
}

impl<'a, M: Machine> LockedTables<'a, M> {
    /// The entry of a page, if there is a table for it.
    #[inline]
    pub fn find(&self, page: Vpn) -> Option<EntryRun> {
        // The search does not get `self` by address, which would keep what is held out of registers.
        let table = match self.tree.recent(self.mmu, page) {
            Some(table) => table,
            None => match self.tree.way(self.mmu, page) {
                Way::Table(table) => table,
                Way::Large(table, level) => {
                    self.enter(table);
                    let slot = self.slot(table, page, level);
                    let entry = self.read(slot);
                    return entry.has(Bits::LARGE).then(|| self.large_run(page, level, slot, entry));
                }
                Way::Hole => return None,
            },
        };
        self.enter(table);
        let slot = self.slot(table, page, 0);
        let entry = self.read(slot);
        Some(EntryRun { page, slot, entry, order: Order::ZERO, count: 1, head: Pfn::NONE })
    }

    #[inline]
    pub(super) fn large_run(&self, page: Vpn, level: u32, slot: Slot, entry: Entry) -> EntryRun {
        let page = Vpn(page.0 & !(span(level) - 1));
        EntryRun { page, slot, entry, order: Order((level * LEVEL_BITS) as u8), count: 1, head: Pfn::NONE }
    }

    /// Visit all non-empty entries of `[start, end)` in order, in runs. The visitor may change the entries it is
    /// given. Missing tables are skipped. A 2 MiB entry is visited whole, even if the range covers a part of it.
    #[inline]
    pub fn for_each(&mut self, start: Vpn, end: Vpn, mut visit: impl FnMut(&mut Self, EntryRun)) {
        let mut visit = |tables: &mut Self, run: EntryRun, _: &[AtomicU64]| {
            visit(tables, run);
            0
        };
        self.visit_range(start, end, &mut visit);
    }

    /// As [`LockedTables::for_each`], but empties the `wanted` runs first. The visitors get what absent entries held,
    /// and what was removed from present ones.
    #[inline]
    pub(crate) fn take_each(
        &mut self,
        start: Vpn,
        end: Vpn,
        wanted: impl Fn(&EntryRun) -> bool,
        mut absent: impl FnMut(&mut Self, Absent),
        mut mapped: impl FnMut(&mut Self, Emptied),
    ) {
        self.vacated.add(start, end.0.saturating_sub(start.0));
        let mut visit = |tables: &mut Self, run: EntryRun, cells: &[AtomicU64]| {
            if !wanted(&run) {
                return 0;
            }
            let old = exchange(cells, |_| Entry::NONE);
            if old.is_present() {
                let emptied = tables.emptied(&run, old);
                mapped(tables, emptied);
            } else {
                absent(tables, old.absent());
            }
            run.count
        };
        self.visit_range(start, end, &mut visit);
    }

    /// Walk the tables of a range, from the root, or from the last table found if the range is within it.
    #[inline]
    fn visit_range(
        &mut self,
        start: Vpn,
        end: Vpn,
        visit: &mut impl FnMut(&mut Self, EntryRun, &[AtomicU64]) -> u32,
    ) {
        let longest = self.longest_run();
        match self.tree.recent.get(start) {
            Some(table) if start < end && end.0 - start.0 <= (TABLE_ENTRIES - index(start, 0)) as u64 => {
                self.visit_entries(table, 0, (start, end.0 - start.0), longest, visit);
            }
            _ => self.visit_table(self.root(), LEVELS - 1, (start, end), longest, visit),
        }
    }

    /// Walk a table above the lowest level. The visitor also gets the cells of a run, and returns how many of them it
    /// left empty.
    fn visit_table(
        &mut self,
        table: Pfn,
        level: u32,
        (start, end): (Vpn, Vpn),
        longest: usize,
        visit: &mut impl FnMut(&mut Self, EntryRun, &[AtomicU64]) -> u32,
    ) {
        let mmu = self.mmu;
        let cells = mmu.machine.table(table);
        let mut page = start;
        while page < end {
            let next = Vpn((page.0 | (span(level) - 1)) + 1).min(end);
            let entry = Entry::from_raw(cells[index(page, level)].load(Acquire));
            if entry.is_none() {
                // There is no table below.
            } else if entry.has(Bits::LARGE) {
                let first = Vpn(page.0 & !(span(level) - 1));
                self.visit_entries(table, level, (first, 1), longest, visit);
            } else if level == 1 {
                self.visit_entries(entry.pfn(), 0, (page, next.0 - page.0), longest, visit);
            } else {
                self.visit_table(entry.pfn(), level - 1, (page, next), longest, visit);
            }
            page = next;
        }
    }

    /// Visit `count` non-empty entries of one table, starting with that of page `start`. This is the only place that
    /// calls visitors, so that they are inlined into it.
    #[inline(never)]
    fn visit_entries(
        &mut self,
        table: Pfn,
        level: u32,
        (start, count): (Vpn, u64),
        longest: usize,
        visit: &mut impl FnMut(&mut Self, EntryRun, &[AtomicU64]) -> u32,
    ) {
        let mmu = self.mmu;
        self.enter_apart(table);
        let hold = self.hold.get();
        let first = index(start, level);
        let cells = &mmu.machine.table(table)[first..first + count as usize];
        let slot = self.slot(table, start, level);
        let order = Order((level * LEVEL_BITS) as u8);
        let (mut at, mut empty, mut gone) = (0, 0, 0);
        while at < cells.len() {
            let entry = Entry::from_raw(cells[at].load(Acquire));
            if entry.is_none() {
                empty += 1;
                at += 1;
                continue;
            }
            let page = Vpn(start.0 + at as u64);
            let slot = slot.ahead(at as u32);
            let mut run = EntryRun { page, slot, entry, order, count: 1, head: Pfn::NONE };
            if level > 0 {
                run.head = entry.pfn();
            } else if self.is_of_large_folio(&mut run) {
                let most = longest.min(cells.len() - at);
                (run.count, run.entry, run.head) = self.lengthen(entry, &cells[at..at + most]);
            }
            let count = run.count as usize;
            gone += visit(self, run, &cells[at..][..count]);
            at += count;
        }
        demand!(self.hold.get() == hold, [table]; "a visitor of {table} has gone to another table");
        self.count_entries(table, -i64::from(gone));
        mmu.charge(Work::EntryScan, empty);
        self.held.pass();
    }

    /// Unlink tables that `range` covers fully or partly and that have no entry left, if they cover nothing outside
    /// `hole`. A table that also covers addresses outside the hole will probably be needed again.
    pub(crate) fn take_empty_tables(&mut self, range: (Vpn, Vpn), hole: (Vpn, Vpn), gather: &mut Gather) {
        self.assert_alone("unlinking tables");
        let (start, end) = range;
        let is_in_one = start < end && start.0 / span(1) == (end.0 - 1) / span(1);
        if is_in_one {
            self.take_empty_above(start, hole, gather);
        } else {
            self.take_empty_below(self.root(), LEVELS - 1, range, hole, gather);
        }
    }

    /// As [`LockedTables::take_empty_tables`], for the tables on the path to one page, from the lowest up: a table
    /// above one with entries is not empty.
    fn take_empty_above(&mut self, page: Vpn, hole: (Vpn, Vpn), gather: &mut Gather) {
        let is_used = |table: Pfn| self.mmu.frames[table].as_table() != 0;
        if self.tree.recent.get(page).is_some_and(is_used) {
            return;
        }
        // The tables on the path, by level.
        let mut way = [self.root(); LEVELS as usize];
        let mut lowest = LEVELS - 1;
        while lowest > 0 {
            let entry = self.at(way[lowest as usize], index(page, lowest));
            if !entry.is_present() || entry.has(Bits::LARGE) {
                break;
            }
            lowest -= 1;
            way[lowest as usize] = entry.pfn();
        }
        for level in lowest + 1..LEVELS {
            let below = way[level as usize - 1];
            if !is_within(page, level, hole) || self.mmu.frames[below].as_table() != 0 {
                return;
            }
            self.take_table(self.slot(way[level as usize], page, level), below, gather);
        }
    }

    /// Unlink an empty table.
    fn take_table(&mut self, slot: Slot, table: Pfn, gather: &mut Gather) {
        self.replace(slot, Entry::NONE);
        self.tree.counts.tables.fetch_sub(1, Relaxed);
        self.tree.recent.forget();
        self.end_table(table);
        gather.table(table);
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
                if is_within(page, level, hole) && self.mmu.frames[below].as_table() == 0 {
                    self.take_table(slot, below, gather);
                }
            }
            page = next;
        }
    }

    /// Check every table's count of entries, and that no entry points outside memory. Returns the number of entries
    /// that map or hold a page.
    pub fn validate(&self) -> Result<u64, std_alloc::string::String> {
        let mut tables = 0;
        let leaves = self.validate_table(self.root(), LEVELS - 1, &mut tables)?;
        let counted = self.tree.counts.tables();
        if tables != counted {
            return Err(std_alloc::format!("{tables} tables found, {counted} counted"));
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
            if entry.is_present() && self.mmu.frames.get(entry.pfn()).is_none() {
                return Err(std_alloc::format!("entry {i} of table {table} leads to {}", entry.pfn()));
            }
            leaves += match level {
                0 => u64::from(!entry.is_none()),
                _ if entry.has(Bits::LARGE) => 1,
                _ if entry.is_present() => self.validate_table(entry.pfn(), level - 1, tables)?,
                _ => 0,
            };
        }
        let counted = self.mmu.frames[table].as_table();
        if used != counted {
            return Err(std_alloc::format!("table {table} has {used} entries, counted {counted}"));
        }
        Ok(leaves)
    }
}

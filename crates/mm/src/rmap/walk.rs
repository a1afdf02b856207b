//! The walk over the entries that map folios.
//!
//! Problem: reclaim isolates the pages of a file in the order in which they were read. Finding the spans that show a
//! page, locking their tables and walking to its entry is most of the work for it, and the way to the next page is the
//! same.
//!
//! Rule: a walk is for a run of folios ([`FolioRun`]); one folio is a run of one. The walk goes to a span's tables
//! once, and locks one after the other (all of them for a folio of 2 MiB, whose entry may have to be split). For single
//! pages, it finds each table once ([`TableWindow`]), and a visitor may record the debt for all entries of a table in
//! one step, after the last entry was cleared and before the lock is released. A larger folio is visited by runs of
//! entries, which save the same work.

use super::spans::Spans;
use super::{Span, shown};
use crate::frame::FolioRun;
use crate::machine::{Machine, Work};
use crate::memory::Memory;
use crate::table::{Entry, EntryRun, LockedTables, TableWindow};
use crate::units::*;

/// A run of entries that maps pages of a folio.
pub(super) struct Mapping<'s> {
    pub span: &'s Span,
    /// The folio's number in its run.
    pub at: usize,
    pub entries: EntryRun,
}

/// An entry that maps a page, a folio by itself.
#[derive(Clone, Copy)]
pub(super) struct MappedPage<'s> {
    pub span: &'s Span,
    /// The page's number in its run.
    pub at: usize,
    pub entry: Entry,
}

impl<'s> MappedPage<'s> {
    /// The entry, at `place` of a window, as a run.
    #[inline]
    pub(super) fn as_run<M: Machine>(&self, window: &TableWindow<'_, '_, M>, place: usize) -> Mapping<'s> {
        Mapping { span: self.span, at: self.at, entries: window.run(place, self.entry) }
    }
}

/// What a walk does with the entries that it finds.
pub(super) trait Visit<M: Machine> {
    /// Visit a run of entries. Returns whether the walk needs no more entries of this folio.
    fn entries(&mut self, tables: &mut LockedTables<'_, M>, found: &Mapping<'_>) -> bool;

    /// The same for the entry at `place` of a window.
    #[inline]
    fn page(&mut self, window: &mut TableWindow<'_, '_, M>, place: usize, found: MappedPage<'_>) -> bool {
        let found = found.as_run(window, place);
        self.entries(window.tables(), &found)
    }

    #[inline]
    fn leave(&mut self, _window: &mut TableWindow<'_, '_, M>) {}
}

/// A visitor that wants all entries.
impl<M: Machine, F: FnMut(&mut LockedTables<'_, M>, &Span, &EntryRun)> Visit<M> for F {
    #[inline]
    fn entries(&mut self, tables: &mut LockedTables<'_, M>, found: &Mapping<'_>) -> bool {
        self(tables, found.span, &found.entries);
        false
    }
}

/// Visit the entries below `spans`, the locked list of the owner, that map the wanted folios of a run.
#[inline]
pub(super) fn walk<M: Machine, const N: usize>(
    memory: &Memory<M>,
    run: FolioRun<'_, N>,
    spans: &Spans,
    visitor: &mut impl Visit<M>,
) {
    let (first, last) = run.ends();
    let large = memory.frames[first].order() > Order::ZERO;
    debug_assert!(!large || first == last, "a run of several folios is of single pages");
    // Only such a folio can be mapped by an entry that a visitor splits.
    let is_whole = memory.frames[first].order() >= PAGEBLOCK_ORDER;
    let (start, last) = (memory.frames[first].page_index(), &memory.frames[last]);
    let mut wanted = run.wanted();
    for span in spans.holding(start, last.page_index().0 + u64::from(last.pages()) - start.0) {
        let mut tables = if is_whole {
            memory.tables.lock(memory, span.space)
        } else {
            memory.tables.lock_one(memory, span.space)
        };
        if !large {
            wanted = walk_pages(memory, &mut tables, span, run.with(wanted), visitor);
        } else if walk_large(memory, &mut tables, span, run, visitor) {
            wanted = 0;
        }
        if wanted == 0 {
            return;
        }
    }
}

/// Visit the entries of a span that map a folio of several pages, a run of one. Returns whether the visitor needs no
/// more of them.
fn walk_large<M: Machine, const N: usize>(
    memory: &Memory<M>,
    tables: &mut LockedTables<'_, M>,
    span: &Span,
    run: FolioRun<'_, N>,
    visitor: &mut impl Visit<M>,
) -> bool {
    memory.charge(Work::RmapVma, 1);
    let (head, at) = (run.ends().0, run.wanted().trailing_zeros() as usize);
    let index = memory.frames[head].page_index().0;
    let (mut page, end) = shown(&memory.frames[head], span);
    while page < end {
        let Some(entries) = tables.find_run(page, end) else {
            // No table: skip all pages that it would hold.
            page = Vpn((page.0 | (TABLE_ENTRIES as u64 - 1)) + 1);
            continue;
        };
        // A large entry of another folio may begin before this one.
        let shown = (span.index.0 + (entries.page.0 - span.start.0)).checked_sub(index);
        let maps = |shown: u64| entries.entry.pfn() == head.add(shown as u32);
        if entries.entry.is_present()
            && shown.is_some_and(maps)
            && visitor.entries(tables, &Mapping { span, at, entries })
        {
            return true;
        }
        page = entries.end();
    }
    false
}

/// Visit the entries of a span that map the wanted pages of a run. Returns the bits of the pages that the visitor wants
/// in other spans, too.
#[inline]
fn walk_pages<M: Machine, const N: usize>(
    memory: &Memory<M>,
    tables: &mut LockedTables<'_, M>,
    span: &Span,
    run: FolioRun<'_, N>,
    visitor: &mut impl Visit<M>,
) -> u32 {
    let (mut wanted, mut rest) = (run.wanted(), run.wanted());
    let index = |rest: u32| memory.frames[run.folio(rest.trailing_zeros() as usize)].page_index();
    while rest != 0 {
        let from = index(rest);
        let Some(page) = span.page_of(from) else {
            rest &= rest - 1;
            continue;
        };
        // The way to the first entry is before the lock of its table.
        memory.charge(Work::RmapVma, 1);
        let mut window = tables.window(page, span.start.0 + span.pages - page.0);
        // Without a table, skip all pages that it would hold.
        let room =
            window.as_ref().map_or(TABLE_ENTRIES - page.0 as usize % TABLE_ENTRIES, TableWindow::places);
        while rest != 0 {
            let (at, place) = (rest.trailing_zeros() as usize, (index(rest).0 - from.0) as usize);
            if place >= room {
                break;
            }
            rest &= rest - 1;
            let Some(window) = &mut window else {
                memory.charge(Work::RmapVma, u64::from(place > 0));
                continue;
            };
            if place > 0 {
                window.charge_between(Work::RmapVma);
            }
            let entry = window.read(place);
            if entry.is_present() && entry.pfn() == run.folio(at) {
                let enough = visitor.page(window, place, MappedPage { span, at, entry });
                wanted &= !(u32::from(enough) << at);
            }
        }
        if let Some(window) = &mut window {
            visitor.leave(window);
        }
    }
    wanted
}

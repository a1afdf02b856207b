//! The walk over the entries that map folios.
//!
//! Problem: reclaim meets the pages of a file in the order in which they were read. To look one up is to find the spans
//! that show it, to lock their tables and to walk to its entry. That is most of what is done for it, and the way to its
//! neighbour is the same.
//!
//! Rule: a walk is for a run of folios ([`FolioRun`]); one folio is a run of one. A span's tables are locked once. For
//! single pages, each table is found once ([`TableWindow`]), and a visitor may note what is owed for all entries of a
//! table in one step, after the last of them was cleared and before the lock goes. The entries of a larger folio are
//! visited in runs, which do for it what a window does for pages.

use super::spans::Spans;
use super::{Span, shown};
use crate::frame::FolioRun;
use crate::machine::{Machine, Work};
use crate::memory::Memory;
use crate::table::{Entry, EntryRun, LockedTables, TableWindow};
use crate::units::*;

/// What a walk does with the entries that it finds.
pub(super) trait Visit<M: Machine> {
    /// A run of entries maps pages of folio number `at`. Returns whether that is enough of this folio.
    fn entries(
        &mut self,
        tables: &mut LockedTables<'_, M>,
        span: &Span,
        at: usize,
        entries: &EntryRun,
    ) -> bool;

    /// The same for an entry that maps a single page.
    #[inline]
    fn page(
        &mut self,
        window: &mut TableWindow<'_, '_, M>,
        span: &Span,
        at: usize,
        page: MappedPage,
    ) -> bool {
        let entries = window.run(page.place, page.entry);
        self.entries(window.tables(), span, at, &entries)
    }

    /// The last entry of a window was visited.
    #[inline]
    fn leave(&mut self, _window: &mut TableWindow<'_, '_, M>) {}
}

/// A visitor that wants all entries.
impl<M: Machine, F: FnMut(&mut LockedTables<'_, M>, &Span, &EntryRun)> Visit<M> for F {
    #[inline]
    fn entries(
        &mut self,
        tables: &mut LockedTables<'_, M>,
        span: &Span,
        _at: usize,
        entries: &EntryRun,
    ) -> bool {
        self(tables, span, entries);
        false
    }
}

/// A single page, and the entry that maps it, at a place of a window.
#[derive(Clone, Copy)]
pub(super) struct MappedPage {
    pub pfn: Pfn,
    pub place: usize,
    pub entry: Entry,
}

/// Visit the entries below `spans`, the locked list of the owner, that map the wanted folios of a run.
#[inline]
pub(super) fn walk<M: Machine>(
    memory: &Memory<M>,
    run: FolioRun<'_>,
    spans: &Spans,
    visitor: &mut impl Visit<M>,
) {
    let (first, last) = run.ends();
    let large = memory.frames[first].order() > Order::ZERO;
    debug_assert!(!large || first == last, "a run of several folios is of single pages");
    let (start, last) = (memory.frames[first].page_index(), &memory.frames[last]);
    let mut wanted = run.wanted();
    for span in spans.holding(start, last.page_index().0 + u64::from(last.pages()) - start.0) {
        let mut tables = memory.tables.lock(memory, span.space);
        if large {
            let at = wanted.trailing_zeros() as usize;
            wanted = if walk_large(memory, &mut tables, span, (at, first), visitor) { 0 } else { wanted };
        } else {
            wanted = walk_pages(memory, &mut tables, span, run.with(wanted), visitor);
        }
        if wanted == 0 {
            return;
        }
    }
}

/// Visit the entries of a span that map a folio of several pages. Returns whether that is enough of it.
fn walk_large<M: Machine>(
    memory: &Memory<M>,
    tables: &mut LockedTables<'_, M>,
    span: &Span,
    (at, head): (usize, Pfn),
    visitor: &mut impl Visit<M>,
) -> bool {
    memory.charge(Work::RmapVma, 1);
    let frame = &memory.frames[head];
    let index = frame.page_index().0;
    let (mut page, end) = shown(frame, span);
    while page < end {
        let Some(run) = tables.find_run(page, end) else {
            // There is no table for it, nor for those that would share it.
            page = Vpn((page.0 | (TABLE_ENTRIES as u64 - 1)) + 1);
            continue;
        };
        // A large entry of another folio may begin before this one.
        let shown = (span.index.0 + (run.page.0 - span.start.0)).checked_sub(index);
        let maps =
            run.entry.is_present() && shown.is_some_and(|shown| run.entry.pfn() == head.add(shown as u32));
        if maps && visitor.entries(tables, span, at, &run) {
            return true;
        }
        page = run.end();
    }
    false
}

/// Visit the entries of a span that map the wanted pages of a run. Returns the bits of those that other spans are to be
/// asked for.
#[inline]
fn walk_pages<M: Machine>(
    memory: &Memory<M>,
    tables: &mut LockedTables<'_, M>,
    span: &Span,
    run: FolioRun<'_>,
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
        let mut window = tables.window(page, span.start.0 + span.pages - page.0);
        // Where there is no table, the pages that would share it are skipped.
        let room =
            window.as_ref().map_or(TABLE_ENTRIES - page.0 as usize % TABLE_ENTRIES, TableWindow::places);
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            let place = (index(rest).0 - from.0) as usize;
            if place >= room {
                break;
            }
            rest &= rest - 1;
            memory.charge(Work::RmapVma, 1);
            let Some(window) = &mut window else { continue };
            let (pfn, entry) = (run.folio(at), window.read(place));
            let maps = entry.is_present() && entry.pfn() == pfn;
            if maps && visitor.page(window, span, at, MappedPage { pfn, place, entry }) {
                wanted &= !(1 << at);
            }
        }
        if let Some(window) = &mut window {
            visitor.leave(window);
        }
    }
    wanted
}

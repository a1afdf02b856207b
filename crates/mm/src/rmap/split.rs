//! Splitting a folio of anonymous memory, where it is mapped.
//!
//! A split changes neither the content nor the rights of an address: each entry maps the same frame before and after.
//! Only the record that counts an entry's mapping and reference changes. So no task may go from an entry to the folio,
//! or remove the entry, while the folio's pages become folios of their own. A task that does so holds the lock of the
//! entry's tables. So the split takes the locks of all tables that may map the folio: those of the spans in the owner's
//! list, which is locked, too, so that no span is added. Then the folio's references are exactly those of its entries
//! and the caller's; otherwise another task uses the folio, and the split fails. No flush is needed, because no
//! translation is removed or changed.
//!
//! Linux replaces the folio's entries by migration entries and maps the pages again. That never needs the locks of two
//! page-table trees at once; but it writes every entry twice and flushes every CPU, and all code that reads entries
//! must handle a third kind.
//!
//! A 2 MiB entry of the folio is split into page entries first; this has a flush of its own.
//!
//! The split waits for the first lock only. If another lock is held, it fails. So it cannot deadlock with fork, which
//! holds two.

use super::Rmap;
use super::spans::Spans;
use crate::frame::{FolioPages, FrameFlags, List};
use crate::machine::{Machine, Work};
use crate::memory::Memory;
use crate::stat::SizeStat;
use crate::table::{EntryRun, LockedTables};
use crate::units::*;
use smallvec::SmallVec;

impl Rmap {
    /// Split an anonymous folio into single pages. The caller has locked it and holds one reference. Afterwards the
    /// caller holds the lock of the first page and a reference to it. Other pages that no entry maps are freed. If the
    /// caller has isolated the folio, it gets each of the rest in `isolated`, with a reference, the second page at the
    /// tail. Returns the number of pages freed. `None`: the folio is in use elsewhere and is unchanged, but 2 MiB
    /// entries of it may have been split.
    pub(crate) fn split_anon<M: Machine>(
        &self,
        memory: &Memory<M>,
        head: Pfn,
        mut isolated: Option<&mut List>,
    ) -> Option<u64> {
        let frame = &memory.frames[head];
        let (order, pages) = (frame.order(), FolioPages::all(&memory.frames, head));
        assert!(
            frame.has(FrameFlags::LOCKED) && frame.is_anon() && order > Order::ZERO,
            "folio {head} must be locked, anonymous and larger than a page to be split"
        );
        if !self.make_pages(memory, head) {
            memory.sizes.count(SizeStat::SplitFailed, order, 1);
            return None;
        }
        memory.sizes.count(SizeStat::Split, order, 1);
        memory.sizes.drop_from(SizeStat::NrAnon, order, 1);
        memory.charge(Work::RmapAdd, pages.count as u64);
        let mut freed = 0;
        for page in pages.iter().skip(1) {
            let mapped = memory.frames[page].mapcount() > 0;
            if let (true, Some(list)) = (mapped, &mut isolated) {
                list.push_head(&memory.frames, page);
            } else {
                freed += u64::from(!mapped);
                memory.put(page);
            }
        }
        Some(freed)
    }

    /// Split all 2 MiB entries that map the folio. `tables` are those of all spans that show it.
    #[cold]
    fn split_entries<M: Machine>(
        &self,
        memory: &Memory<M>,
        head: Pfn,
        spans: &Spans,
        tables: &mut [LockedTables<'_, M>],
    ) {
        let index = memory.frames[head].page_index();
        for span in spans.holding(index, memory.frames[head].pages() as u64) {
            // A 2 MiB entry is within one range, so a range that shows only a part of the folio has none.
            let Some(page) = span.page_of(index) else { continue };
            let mut of_space = tables.iter_mut().filter(|locked| locked.space() == span.space);
            let Some(locked) = of_space.next() else { continue };
            let maps = |run: &EntryRun| run.is_large() && run.entry.pfn() == head;
            if let Some(run) = locked.find(page).filter(maps) {
                let split = locked.split_large(&run);
                self.split_large(memory, split);
            }
        }
    }

    fn make_pages<M: Machine>(&self, memory: &Memory<M>, head: Pfn) -> bool {
        let (frame, frames) = (&memory.frames[head], &memory.frames);
        let busy = FrameFlags::SWAPCACHE | FrameFlags::WRITEBACK;
        if frame.has_any(busy) {
            return false;
        }
        let spans = self.spans(frame.owner()).map(|list| list.lock());
        let mut tables: SmallVec<[LockedTables<'_, M>; 4]> = SmallVec::new();
        let showing = spans.iter().flat_map(|spans| spans.holding(frame.page_index(), frame.pages() as u64));
        for span in showing {
            memory.charge(Work::RmapVma, 1);
            if tables.iter().any(|locked| locked.space() == span.space) {
                continue;
            }
            let locked = match tables.is_empty() {
                true => Some(memory.tables.lock(memory, span.space)),
                false => memory.tables.try_lock(memory, span.space),
            };
            let Some(locked) = locked else { return false };
            tables.push(locked);
        }
        if frames.entire_mapcount(head) > 0 && frame.refs() == frame.mapcount() + 1 {
            spans.iter().for_each(|spans| self.split_entries(memory, head, spans, &mut tables));
        }
        if !frame.freeze(frame.mapcount() + 1) {
            return false;
        }
        memory.lru.forget_split(memory, head);
        frame.clear(FrameFlags::READAHEAD | FrameFlags::RECLAIM);
        memory.lru.split(memory, head, Order::ZERO, || frames.split_to_pages(head));
        true
    }
}

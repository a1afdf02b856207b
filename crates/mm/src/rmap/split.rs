//! Splitting a folio of anonymous memory, where it is mapped.
//!
//! A split changes neither what an address shows nor what a process may do with it: each entry maps the same frame
//! before and after. What changes is which record counts an entry's mapping and reference. So nobody may come from an
//! entry to the folio, or go from it, while its pages become folios of their own. Whoever does so holds the lock of the
//! entry's tables; so the split takes the locks of all tables that may map the folio: those of the spans that the
//! owner's list names, which is locked, too, so that none is added. Then the folio's references are exactly its
//! entries' and the caller's, or somebody else uses it and the split fails. Nothing needs a flush, as no translation
//! goes or changes.
//!
//! Linux puts migration entries in the place of the folio's and maps the pages again. That needs no two tables' locks
//! at a time; but every entry is written twice, every CPU is flushed, and whatever meets an entry must know of a third
//! kind.
//!
//! A 2 MiB entry of the folio is split into entries of pages first; that has a flush of its own.
//!
//! Only the first lock is waited for; where another is taken, the split fails. So it cannot wait in a circle with
//! fork, which holds two.

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
    /// Split a folio of anonymous memory into single pages. The caller has locked it and holds one reference.
    /// Afterwards the caller has the first page locked, and a reference to it. Pages that nobody maps are freed, but
    /// for the first; of the others, if the caller has isolated the folio, each comes in `isolated`, with a reference,
    /// the second page at the tail. Returns how many pages were freed. `None`: somebody uses the folio, and it is as it
    /// was, but that 2 MiB entries of it may have been split.
    pub fn split_anon<M: Machine>(
        &self,
        memory: &Memory<M>,
        head: Pfn,
        mut isolated: Option<&mut List>,
    ) -> Option<u64> {
        let frame = &memory.frames[head];
        let (order, pages) = (frame.order(), FolioPages::all(&memory.frames, head));
        assert!(
            frame.has(FrameFlags::LOCKED) && frame.is_anon() && order > Order::ZERO,
            "{head} cannot be split: not locked, not anonymous or a page"
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

    /// Have no 2 MiB entry map the folio: `tables` are those of all spans that show it.
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
            // An entry lies in one range, so one that shows only a part has none.
            let Some(page) = span.page_of(index) else { continue };
            let mut of_space = tables.iter_mut().filter(|locked| locked.space() == span.space);
            let Some(locked) = of_space.next() else { continue };
            let maps = |run: &EntryRun| run.is_large() && run.entry.pfn() == head;
            if let Some(run) = locked.find(page).filter(maps) {
                locked.split_large(&run);
                self.split_large(memory, head);
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

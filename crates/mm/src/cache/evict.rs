//! Dropping pages: at truncation, or on request.

use super::tree::{TreeEntry, TreeMark};
use super::{CACHE_AND_CALLER, Cache, drop_swap_entry};
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Machine, Scope};
use crate::memory::Memory;
use crate::tlb::FileSettled;
use crate::units::*;
use core::ops::Range;
use smallvec::SmallVec;

/// Number of folios gathered in one hold of the tree's lock.
const BATCH: usize = 16;

/// Folios with a reference for the walk, and their first indices.
type EvictBatch = SmallVec<[(PageIndex, Pfn); BATCH]>;

impl Cache {
    /// Drop all pages from `first` on, with their content, their shadows and their swap slots. The size has been set,
    /// so no new pages come. Waits for folios that are locked or under write-back. A page that is still mapped leaves
    /// the cache now and memory when it is unmapped. Afterwards no CPU can read a dropped page through an old
    /// translation (left by reclaim's unmapping, for example): this pays for the flushes that are owed.
    ///
    /// A folio that begins before `first` stays whole: the caller has split it or zeroed its end ([`crate::truncate`]).
    pub fn truncate<M: Machine>(&self, memory: &Memory<M>, file: FileId, first: PageIndex) {
        let astride = self.file(file).tree.look().folio(first).filter(|folio| folio.first(first) < first);
        let first = PageIndex(astride.map_or(first.0, |folio| folio.end(first)));
        let rest = first.0..super::tree::MAX_INDEX;
        loop {
            let batch = self.gather(memory, file, rest.clone());
            for &(_, pfn) in &batch {
                self.truncate_folio(memory, file, first, pfn);
            }
            let swapped = self.forget_entries(memory, file, rest.clone());
            if batch.is_empty()
                && !swapped
                && self.file(file).tree.look().next(TreeMark::Folio, first).is_none()
            {
                break;
            }
        }
        // The proof is for the change that was just made: pages that left the cache may still be in a TLB.
        let _used: FileSettled = memory.tlb.settle_file(memory.host(), file);
    }

    /// The folio that holds page `first` and pages before it, with a reference.
    pub(crate) fn astride<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        first: PageIndex,
    ) -> Option<Pfn> {
        loop {
            // The tree stays locked until the reference is taken: otherwise the folio could be freed, and its frame get
            // another use.
            let tree = self.file(file).tree.look();
            let found = tree.folio(first).filter(|folio| folio.first(first) < first)?;
            // A task that has frozen its references takes it out or unfreezes them.
            if memory.try_get(found.head) {
                return Some(found.head);
            }
        }
    }

    fn truncate_folio<M: Machine>(&self, memory: &Memory<M>, file: FileId, first: PageIndex, pfn: Pfn) {
        memory.lock_folio(pfn);
        memory.wait_writeback(pfn);
        let frame = &memory.frames[pfn];
        let is_it = frame.owner() == Owner::File(file) && frame.page_index() >= first;
        if is_it {
            self.remove(memory, pfn);
        }
        memory.unlock_folio(pfn);
        memory.put_many(pfn, 1 + u32::from(is_it));
    }

    /// Drop the shadows and swap slots of a range. Returns whether there were slots.
    fn forget_entries<M: Machine>(&self, memory: &Memory<M>, id: FileId, range: Range<u64>) -> bool {
        let mut swapped = false;
        loop {
            let mut tree = self.file(id).tree.lock();
            while let Some((index, _)) = tree.next(TreeMark::Shadow, PageIndex(range.start)) {
                tree.remove(index);
            }
            let next = tree.next(TreeMark::Swap, PageIndex(range.start));
            if let Some((index, _)) = next {
                tree.remove(index);
            }
            self.unlock_tree(memory, id, tree);
            let Some((_, TreeEntry::Swap(slot))) = next else { return swapped };
            swapped = true;
            #[expect(clippy::disallowed_methods, reason = "the file's tree does not name it any more")]
            drop_swap_entry(memory, slot);
        }
    }

    /// Drop the clean and unused pages of `[first, end)`. The others are deactivated, so that reclaim takes them first.
    /// Folios that are only partly in the range are skipped. Returns the number of pages dropped.
    pub(crate) fn invalidate<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        first: PageIndex,
        end: PageIndex,
    ) -> u64 {
        let mut dropped = 0;
        let mut from = first.0;
        if self.file(file).is_shmem() {
            return 0;
        }
        loop {
            let batch = self.gather(memory, file, from..end.0);
            for &(index, pfn) in &batch {
                let pages = memory.frames[pfn].pages() as u64;
                from = index.0 + pages;
                if index < first || from > end.0 {
                    memory.put(pfn);
                } else if self.invalidate_folio(memory, pfn) {
                    dropped += pages;
                } else {
                    memory.lru.deactivate_file(memory, pfn);
                    memory.put(pfn);
                }
            }
            if batch.len() < BATCH {
                return dropped;
            }
        }
    }

    /// Drop a clean folio that only the cache and the caller hold, with the caller's reference.
    fn invalidate_folio<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) -> bool {
        let frame = &memory.frames[pfn];
        if !memory.try_lock_folio(pfn) {
            return false;
        }
        let fits = !frame.has(FrameFlags::WRITEBACK) && matches!(frame.owner(), Owner::File(_));
        let _scope = memory.scope(Scope::RemoveMapping);
        if !fits || !frame.freeze_clean(CACHE_AND_CALLER) {
            memory.unlock_folio(pfn);
            return false;
        }
        self.remove(memory, pfn);
        memory.unlock_folio(pfn);
        memory.free_folio(pfn);
        true
    }

    /// Take references of the first few folios of a range.
    fn gather<M: Machine>(&self, memory: &Memory<M>, file: FileId, range: Range<u64>) -> EvictBatch {
        let tree = self.file(file).tree.look();
        let folios = tree.folios_in(TreeMark::Folio, range);
        let held = folios.filter(|(_, folio)| memory.try_get(folio.head));
        held.take(BATCH).map(|(index, folio)| (index, folio.head)).collect()
    }

    /// The first folio of a range (it may be only partly in it) that has a mark, with a reference and its first index.
    pub(crate) fn next_marked<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        mark: TreeMark,
        range: Range<u64>,
    ) -> Option<(PageIndex, Pfn)> {
        let tree = self.file(file).tree.look();
        let mut folios = tree.folios_in(mark, range);
        let found = folios.find(|(_, folio)| memory.try_get(folio.head));
        found.map(|(index, folio)| (index, folio.head))
    }

    /// Mark the dirty folios of a range as chosen for writing, at most `most` pages; only the last folio may exceed
    /// this. Returns the number of pages.
    pub(crate) fn choose_dirty(&self, file: FileId, range: Range<u64>, most: u64) -> u64 {
        let mut tree = self.file(file).tree.lock();
        let mut from = range.start;
        let mut chosen = 0;
        while chosen < most {
            let next = tree.folios_in(TreeMark::Dirty, from..range.end).next();
            let Some((index, folio)) = next else { break };
            tree.set_mark(index, TreeMark::ToWrite);
            chosen += folio.pages();
            from = folio.end(index);
        }
        chosen
    }

    /// The folio is not written after all.
    pub(crate) fn unchoose(&self, file: FileId, index: PageIndex) {
        self.file(file).tree.lock().clear_mark(index, TreeMark::ToWrite);
    }

    pub(crate) fn is_dirty(&self, file: FileId) -> bool {
        self.file(file).tree.look().any(TreeMark::Dirty)
    }
}

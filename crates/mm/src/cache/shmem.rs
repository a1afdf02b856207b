//! Shmem: files in memory and swap.
//!
//! A page is zeroes until it is written. The file's tree holds the page while it is in memory, and its slot when it is
//! swapped out. New folios may be large (`shmem.max_order`); reclaim splits them before it swaps them out, because a
//! slot holds a page. On the way out a folio moves from the tree to the swap cache, on the way back from the swap
//! cache to the tree; then the slot is freed, because memory holds the newest copy.

use super::tree::{CachedFolio, TreeEntry, TreeMark};
use super::{
    BlockRequest, Cache, CacheError, Page, drop_swap_entry, is_page_of, remove_from_swap_cache, swapin,
};
use crate::frame::{FrameFlags, Owner};
use crate::knobs::Knob;
use crate::machine::{Machine, Work};
use crate::memory::{Gfp, Memory, Shortage, Worth};
use crate::stat::{SizeStat, Stat};
use crate::units::*;
use core::ops::Range;

/// What a page's file tree holds for it.
enum ShmemEntry {
    /// A folio; `true`: with a reference for the caller; else another task is taking it out.
    Folio(CachedFolio, bool),
    /// A slot, with a reference for the caller.
    Swap(SwapSlot),
    Nothing,
}

impl Cache {
    pub(super) fn get_shmem_page<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        index: PageIndex,
        gfp: Gfp,
    ) -> Result<Page, CacheError> {
        let f = self.file(id);
        let mut major = false;
        while index.0 < f.pages() {
            let found = {
                let tree = f.tree.look();
                match tree.get(index) {
                    Some(TreeEntry::Folio(folio)) => ShmemEntry::Folio(folio, memory.try_get(folio.head)),
                    Some(TreeEntry::Swap(slot)) => {
                        // Keeps the slot if the page is truncated during the read.
                        memory.swap.dup(slot);
                        ShmemEntry::Swap(slot)
                    }
                    Some(TreeEntry::Shadow(_)) | None => ShmemEntry::Nothing,
                }
            };
            match found {
                ShmemEntry::Folio(_, false) => memory.charge(Work::CacheLookup, 1),
                ShmemEntry::Folio(folio, true) => {
                    // The task that has added it has not filled it with zeroes yet.
                    if !memory.frames[folio.head].has(FrameFlags::UPTODATE) {
                        memory.wait_unlocked(folio.head);
                    }
                    if is_page_of(memory, folio.head, id, index) {
                        return Ok(Page { folio: folio.head, pfn: folio.frame(index), major, waited: major });
                    }
                    // Truncated, or moved to swap, during the wait.
                    memory.put(folio.head);
                }
                ShmemEntry::Swap(slot) => {
                    let page = swapin(memory, slot, gfp);
                    if let Ok(page) = page {
                        major |= page.major;
                        self.move_from_swap(memory, id, index, slot, page.folio);
                        memory.put(page.folio);
                    }
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "it is the reference that this look-up took"
                    )]
                    drop_swap_entry(memory, slot);
                    page?;
                }
                ShmemEntry::Nothing => {
                    if let Some(folio) = self.add_shmem(memory, id, index, gfp)? {
                        self.fill(memory, f, folio.head, &mut BlockRequest::default());
                        // It is clean: until it is written it can be dropped and made again.
                        return Ok(Page { folio: folio.head, pfn: folio.frame(index), major, waited: major });
                    }
                }
            }
        }
        Err(CacheError::BeyondEnd)
    }

    /// Add a new folio that holds the page at `index`, as large as the file and the blocks of memory allow. `None`:
    /// another task has added one, or the file has become shorter.
    fn add_shmem<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        index: PageIndex,
        gfp: Gfp,
    ) -> Result<Option<CachedFolio>, Shortage> {
        let f = self.file(id);
        let most = memory.knobs.get(Knob::ShmemMaxOrder) as u8;
        for order in (1..=most).rev().map(Order) {
            let first = PageIndex(index.0 >> order.0 << order.0);
            let pages = order.frames() as u64;
            if first.0 + pages > f.pages() || !f.tree.look().is_free(first, pages) {
                continue;
            }
            if !memory.find_block(order, gfp, Worth::of_anon(&memory.knobs, false))? {
                memory.sizes.count(SizeStat::ShmemFallback, order, 1);
            } else if let Ok(Some(head)) = self.add_new(memory, id, (first, order), gfp) {
                memory.sizes.count(SizeStat::ShmemAlloc, order, 1);
                return Ok(Some(CachedFolio { head, order }));
            }
        }
        Ok(self.add_new(memory, id, (index, Order::ZERO), gfp)?.map(CachedFolio::single))
    }

    /// Put `pfn`, a folio that the caller holds and that has the content of `slot`, at `index` in place of the slot,
    /// unless another task has changed the place.
    fn move_from_swap<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        index: PageIndex,
        slot: SwapSlot,
        pfn: Pfn,
    ) {
        let f = self.file(id);
        let frame = &memory.frames[pfn];
        memory.lock_folio(pfn);
        // The slot must stay during write-back, and must be freed at once afterwards.
        memory.wait_writeback(pfn);
        let cached = frame.has(FrameFlags::SWAPCACHE) && frame.swap_slot() == slot;
        if cached {
            let mut tree = f.tree.lock();
            let still_there = tree.get(index) == Some(TreeEntry::Swap(slot));
            if still_there {
                frame.get(1);
                frame.set_owner(Owner::File(id), index);
                tree.insert(index, TreeEntry::Folio(CachedFolio::single(pfn)));
                drop(tree);
                self.count_added(memory, f, 1, 1);
                #[expect(clippy::disallowed_methods, reason = "the file's tree names the folio now")]
                memory.free_swap_entry(slot);
                remove_from_swap_cache(memory, pfn, None);
                frame.set(FrameFlags::DIRTY);
            }
        }
        memory.unlock_folio(pfn);
    }

    /// Move a locked, unmapped folio from its file to the swap cache. `false`: swap is full.
    pub(super) fn move_to_swap<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) -> bool {
        let frame = &memory.frames[pfn];
        assert!(
            frame.mapcount() == 0 && frame.order() == Order::ZERO,
            "folio {pfn} must be a page and not mapped"
        );
        let Owner::File(id) = frame.owner() else { unreachable!("folio {pfn} must be of a file") };
        let Some(slot) = memory.swap.alloc(memory, frame.group()) else { return false };
        memory.swap.dup(slot);
        // It must be in the swap cache before the tree has the slot.
        memory.swap.cache_insert(memory, slot, pfn);
        memory.note_swap_nodes();
        self.take_out(memory, id, pfn, Some(TreeEntry::Swap(slot)));
        // The tree's reference; the caller and the swap cache hold others.
        let last = frame.put(1);
        assert!(!last, "the caller must hold folio {pfn}");
        true
    }

    /// Start reading the pages of a range of a shmem file that are in swap.
    pub(super) fn read_ahead_shmem<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        range: Range<u64>,
        gfp: Gfp,
    ) {
        let f = self.file(id);
        let mut from = range.start;
        loop {
            let next = f.tree.look().iter(TreeMark::Swap, from..range.end).next();
            let Some((index, TreeEntry::Swap(slot))) = next else { return };
            match super::swapin::read_ahead(memory, slot, gfp) {
                Ok(true) => memory.count(Stat::SwapRa, 1),
                Ok(false) => {}
                Err(_) => return,
            }
            from = index.0 + 1;
        }
    }
}

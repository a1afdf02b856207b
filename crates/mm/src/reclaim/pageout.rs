//! Where a folio's content goes before the folio is freed: swap, its file, or nowhere.

use super::references::Verdict;
use super::shrink::{Fate, Pass};
use super::{Reclaim, ScanControl};
use crate::event::Event;
use crate::frame::{Frame, FrameFlags, Owner};
use crate::machine::{Machine, Scope};
use crate::primitive::Ordering::Relaxed;
use crate::rmap::Pages;
use crate::stat::Stat;
use crate::units::*;

/// References of a folio that only its cache and the isolating reclaimer hold.
const CACHE_AND_ISOLATION: u32 = 2;

impl<M: Machine> Reclaim<'_, M> {
    /// A dirty folio that is not mapped any more: write it, if that is reclaim's business. `Ok`: it is clean now and
    /// can be freed.
    pub(super) fn write_dirty(
        self,
        pfn: Pfn,
        verdict: Verdict,
        pages: u64,
        pass: &mut Pass<'_>,
    ) -> Result<(), Fate> {
        let frame = &self.st.frames[pfn];
        if !frame.has(FrameFlags::SWAPBACKED) && !self.may_write_file(frame, pass.sc, pass.node) {
            // The flushers write in better order. It is freed first once they have.
            self.st.count(Stat::NrVmscanImmediateReclaim, pages as i64);
            frame.set(FrameFlags::RECLAIM);
            return Err(Fate::Activate);
        }
        if verdict == Verdict::ReclaimClean || !pass.sc.may_writepage {
            return Err(Fate::Keep);
        }
        if pass.batch.defers() && pass.batch.owes_for_writable() {
            return Err(Fate::Write);
        }
        self.write(pfn, pages, pass)
    }

    /// Only kswapd writes file pages, and only when it meets nothing but dirty pages that nobody writes, and meets this
    /// one for the second time.
    fn may_write_file(self, frame: &Frame, sc: &ScanControl, node: NodeId) -> bool {
        sc.kswapd && frame.has(FrameFlags::RECLAIM) && self.node(node).dirty.load(Relaxed)
    }

    /// Write a dirty folio through which no CPU can store any more, once the batch is settled. `Ok`: it is clean
    /// already.
    pub(super) fn write(self, pfn: Pfn, pages: u64, pass: &mut Pass<'_>) -> Result<(), Fate> {
        let _scope = self.st.scope(Scope::Pageout);
        let (st, frame) = (self.st, &self.st.frames[pfn]);
        assert!(
            frame.has(FrameFlags::LOCKED) && frame.mapcount() == 0,
            "{pfn} is written out while it can be stored to"
        );
        pass.batch.settle_dirty(st.memory().ground(), &st.tlb);
        let cached = frame.has(FrameFlags::SWAPCACHE) || matches!(frame.owner(), Owner::File(_));
        // More may come, but whoever has one must lock the folio to map it, and looks then whose it is.
        if frame.refs() != CACHE_AND_ISOLATION || !cached {
            return Err(Fate::Keep);
        }
        frame.set(FrameFlags::RECLAIM);
        if !st.cache.write_page_start(st.memory(), pfn) {
            frame.clear(FrameFlags::RECLAIM);
            return Err(Fate::Activate);
        }
        st.unlock_folio(pfn);
        pass.out.pageout += pages;
        st.count(Stat::NrVmscanWrite, pages as i64);
        st.event(Event::MmVmscanWriteFolio, [pfn.0 as u64, frame.is_anon() as u64, 0, 0]);
        let busy = FrameFlags::WRITEBACK | FrameFlags::DIRTY;
        if frame.has_any(busy) || !st.try_lock_folio(pfn) {
            return Err(Fate::KeepUnlocked);
        }
        // The device was fast enough.
        frame.clear(FrameFlags::RECLAIM);
        if frame.has_any(busy) { Err(Fate::Keep) } else { Ok(()) }
    }

    /// Take a clean folio out of its cache, if nobody but the cache and the caller refers to it; what `top`, the
    /// driving group, must know when the page returns is left in its place.
    pub(super) fn remove_mapping(self, pfn: Pfn, top: GroupId) -> bool {
        let _scope = self.st.scope(Scope::RemoveMapping);
        let (st, frame) = (self.st, &self.st.frames[pfn]);
        let (swap, file) = (frame.has(FrameFlags::SWAPCACHE), matches!(frame.owner(), Owner::File(_)));
        if !(swap || file) || !frame.freeze(CACHE_AND_ISOLATION) {
            return false;
        }
        if frame.has(FrameFlags::DIRTY) {
            frame.unfreeze(CACHE_AND_ISOLATION);
            return false;
        }
        let base = st.memory().ground();
        if swap {
            let shadow = st.lru.eviction(base, pfn, top);
            st.swap.cache_remove(base, frame.swap_slot(), Some(shadow));
        } else {
            let evicted = !frame.has(FrameFlags::SWAPBACKED);
            let shadow = evicted.then(|| st.lru.eviction(base, pfn, top));
            st.cache.remove(st.memory(), pfn, shadow);
        }
        true
    }

    /// The same for those of some pages of a file whose bits are set in `wanted`. Returns the bits of those that are
    /// out.
    pub(super) fn remove_pages(self, pages: Pages<'_>, wanted: u32, top: GroupId) -> u32 {
        if wanted == 0 {
            return 0;
        }
        let _scope = self.st.scope(Scope::RemoveMapping);
        let (st, base) = (self.st, self.st.memory().ground());
        let shadow = |pfn| st.lru.eviction(base, pfn, top);
        st.cache.evict_pages(st.memory(), pages.file, pages.pfns, wanted, CACHE_AND_ISOLATION, shadow)
    }
}

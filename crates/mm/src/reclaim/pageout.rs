//! Writing a folio to swap or to its file before it is freed, and taking it out of its cache.

use super::pass::{Pass, ReclaimFate};
use super::{Reclaim, ScanControl};
use crate::cache::BlockRequest;
use crate::event::Event;
use crate::frame::{FolioRun, Frame, FrameFlags, Owner};
use crate::machine::{Machine, Scope};
use crate::primitive::Ordering::Relaxed;
use crate::stat::Stat;
use crate::units::*;

/// References of a folio that only its cache and the reclaimer that isolated it hold.
const CACHE_AND_ISOLATION: u32 = 2;

impl<M: Machine> Reclaim<'_, M> {
    /// Write a dirty folio that is not mapped any more, if reclaim may write it. `Ok`: it is clean now and can be
    /// freed.
    pub(super) fn write_dirty(
        self,
        pfn: Pfn,
        only_if_clean: bool,
        pass: &mut Pass<'_>,
    ) -> Result<(), ReclaimFate> {
        let frame = &self.core.frames[pfn];
        if !frame.has(FrameFlags::SWAPBACKED) && !self.may_write_file(frame, pass.sc, pass.node) {
            // The flushers write in a better order. The mark has the folio reclaimed first once it is clean.
            self.core.count(Stat::NrVmscanImmediateReclaim, i64::from(frame.pages()));
            frame.set(FrameFlags::RECLAIM);
            return Err(ReclaimFate::Activate);
        }
        if only_if_clean || !pass.sc.may_writepage {
            return Err(ReclaimFate::Keep);
        }
        if pass.batch.defers() && pass.batch.owes_for_stores() {
            return Err(ReclaimFate::Write);
        }
        self.write(pfn, pass)
    }

    /// Only kswapd writes pages of files, and only if it finds nothing but dirty pages that are not under write-back,
    /// and finds this one for the second time.
    fn may_write_file(self, frame: &Frame, sc: &ScanControl, node: NodeId) -> bool {
        sc.kswapd && frame.has(FrameFlags::RECLAIM) && self.node(node).dirty.load(Relaxed)
    }

    /// Settle the batch, so that no CPU can store to the folio any more, and write it. `Ok`: it is clean already.
    pub(super) fn write(self, pfn: Pfn, pass: &mut Pass<'_>) -> Result<(), ReclaimFate> {
        let _scope = self.core.scope(Scope::Pageout);
        let (core, frame) = (self.core, &self.core.frames[pfn]);
        let pages = u64::from(frame.pages());
        assert!(
            frame.has(FrameFlags::LOCKED) && frame.mapcount() == 0,
            "folio {pfn} must be locked and not mapped to be written"
        );
        pass.batch.settle_dirty(core.host(), &core.tlb);
        let cached = frame.has(FrameFlags::SWAPCACHE) || matches!(frame.owner(), Owner::File(_));
        // More references may come, but their holder must lock the folio to map it, and checks the owner then.
        if frame.refs() != CACHE_AND_ISOLATION || !cached {
            return Err(ReclaimFate::Keep);
        }
        frame.set(FrameFlags::RECLAIM);
        if !core.cache.write_page_start(core, pfn, &mut BlockRequest::default()) {
            frame.clear(FrameFlags::RECLAIM);
            return Err(ReclaimFate::Activate);
        }
        core.unlock_folio(pfn);
        pass.out.pageout += pages;
        core.count(Stat::NrVmscanWrite, pages as i64);
        core.event(Event::MmVmscanWriteFolio, [pfn.0 as u64, frame.is_anon() as u64, 0, 0]);
        let busy = FrameFlags::WRITEBACK | FrameFlags::DIRTY;
        if frame.has_any(busy) || !core.try_lock_folio(pfn) {
            return Err(ReclaimFate::KeepUnlocked);
        }
        // The device has finished already.
        frame.clear(FrameFlags::RECLAIM);
        if frame.has_any(busy) { Err(ReclaimFate::Keep) } else { Ok(()) }
    }

    /// Take the wanted folios of a run, which are clean, out of their cache, if only the cache and the caller refer to
    /// them. Each leaves a shadow for `top`, the group that drives reclaim. Returns the folios that were taken out.
    pub(super) fn remove_mapping<'r, const N: usize>(
        self,
        run: FolioRun<'r, N>,
        top: GroupId,
    ) -> FolioRun<'r, N> {
        let _scope = self.core.scope(Scope::RemoveMapping);
        let (core, first) = (self.core, &self.core.frames[run.ends().0]);
        let shadow = |pfn| core.lru.eviction(core, pfn, top);
        match first.owner() {
            _ if first.has(FrameFlags::SWAPCACHE) => run.filter(|_, pfn| {
                let frozen = core.frames[pfn].freeze_clean(CACHE_AND_ISOLATION);
                if frozen {
                    core.remove_from_swap(core.frames[pfn].swap_slot(), Some(shadow(pfn)));
                }
                frozen
            }),
            Owner::File(file) => core.cache.evict(core, file, run, CACHE_AND_ISOLATION, shadow),
            _ => run.with(0),
        }
    }
}

//! The inner loop that all reclaim shares: decide about each isolated folio, unmap it, write it, free it.
//!
//! The steps and their order are those of Linux's `shrink_folio_list`, with one difference: a flush policy that defers
//! collects the folios that must be written, and writes them after one flush, where Linux flushes before each. Each
//! folio ends with a [`ReclaimFate`]. A folio is freed only after the batch of unmaps has been settled, so no CPU can
//! reach it through an old translation. If CPUs could store through its entries, the batch is settled before the
//! content is written to its device.
//!
//! A folio may be truncated from its file between its isolation and its lock: then the cache's reference is gone, and
//! reclaim's reference keeps the folio. Under the lock the owner tells this, and does not change any more. Such a folio
//! is neither split nor written; it is freed when it is put back.

use super::pass::{Pass, ReclaimFate, ReferenceRule, Shrunk};
use super::references::seen_used;
use super::stretch::{FilePosition, Stretch};
use super::{DirtyCounts, Reclaim, ScanControl};
use crate::cache::{add_to_swap, free_swap};
use crate::event::{Concern, Event};
use crate::frame::{FolioRun, Frame, FrameFlags, List, Owner};
use crate::lru::evictable;
use crate::machine::{Machine, Scope, Work};
use crate::primitive::Ordering::Relaxed;
use crate::rmap::UnmapMode;
use crate::stat::{SizeStat, Stat};
use crate::tlb::UnmapBatch;
use crate::units::*;
use base::demand;
use smallvec::SmallVec;

/// Number of folios that are freed together.
const FREE_BATCH: usize = 31;

/// Folios by their fate.
#[derive(Default)]
struct ShrinkLists {
    kept: List,
    /// Written when the batch has been settled.
    write: List,
    /// Kept, but locked until the batch has been settled.
    held: List,
    /// Freed in this order when the batch has been settled.
    free: SmallVec<[Pfn; FREE_BATCH]>,
    /// Cold: moved to a slower tier at the end, the tail first.
    demote: List,
}

impl<M: Machine> Reclaim<'_, M> {
    /// Reclaim from isolated folios of one node, the list's tail first. The caller puts back the folios that are left
    /// in `folios`.
    pub(super) fn shrink_folio_list(
        self,
        node: NodeId,
        folios: &mut List,
        sc: &mut ScanControl,
        rule: ReferenceRule,
    ) -> Shrunk {
        let mut pass = Pass {
            sc,
            node,
            // A program does not want the pages that it gives up in any tier.
            demotes: rule != ReferenceRule::Nothing && self.demotes(node),
            rule,
            batch: UnmapBatch::new(self.core.host()),
            look: None,
            out: Shrunk::default(),
            parts: List::new(),
        };
        let cold = self.shrink_once(folios, &mut pass);
        if !cold.is_empty() {
            self.shrink_by_demotion(cold, folios, &mut pass);
        }
        pass.out
    }

    /// Move cold folios to a slower tier, and reclaim from those that could not be moved.
    #[cold]
    fn shrink_by_demotion(self, cold: List, folios: &mut List, pass: &mut Pass<'_>) {
        let (moved, mut stay) = self.demote(pass.node, cold, pass.sc);
        pass.out.reclaimed += moved;
        if !stay.is_empty() {
            pass.demotes = false;
            // The knob of the flush policy may have been set since.
            pass.batch = UnmapBatch::new(self.core.host());
            self.shrink_once(&mut stay, pass);
        }
        folios.splice_head(&self.core.frames, &mut stay);
    }

    /// One pass over the folios. Returns the folios to demote, the first at the tail.
    fn shrink_once(self, folios: &mut List, pass: &mut Pass<'_>) -> List {
        let core = self.core;
        let _scope = core.scope(Scope::ShrinkFolioList);
        core.charge(Work::ReclaimBatch, 1);
        core.charge(Work::ReclaimFolio, folios.len() as u64);
        if pass.rule == ReferenceRule::Chances {
            pass.look = self.begin_look(pass.node, folios, pass.sc);
        }
        let activated = pass.out.activated;
        let mut lists = ShrinkLists::default();
        self.decide_each(folios, pass, &mut lists);
        while let Some(pfn) = lists.write.pop_tail(&core.frames) {
            core.machine.resched();
            let fate = match self.write(pfn, pass) {
                Ok(()) if self.release(FolioRun::one(&pfn), pass.sc).is_empty() => ReclaimFate::Keep,
                Ok(()) => ReclaimFate::Free,
                Err(fate) => fate,
            };
            self.sort(pfn, fate, pass, &mut lists);
        }
        self.free_batch(&mut lists.free, &mut pass.batch);
        while let Some(pfn) = lists.held.pop_tail(&core.frames) {
            // The next holder of the lock may write it: the batch has been settled.
            let concern = Concern::Frames { first: pfn, count: core.frames[pfn].pages() };
            core.event(Event::TlbSettle, concern.args());
            core.unlock_folio(pfn);
            lists.kept.push_head(&core.frames, pfn);
        }
        if let Some(look) = pass.look.take() {
            self.end_look(look);
        }
        *folios = lists.kept;
        if pass.out.activated > activated {
            core.count(Stat::Pgactivate, (pass.out.activated - activated) as i64);
        }
        lists.demote
    }

    /// Decide about each folio, in runs where folios can join.
    fn decide_each(self, folios: &mut List, pass: &mut Pass<'_>, lists: &mut ShrinkLists) {
        let frames = &self.core.frames;
        let mut stretch = Stretch::default();
        while let Some(pfn) = pass.parts.pop_tail(frames).or_else(|| folios.pop_tail(frames)) {
            // A batch takes long enough for other CPUs to begin and end what it asks about.
            self.core.machine.resched();
            let admitted = self.admit(pfn, pass);
            // With demotion each folio is a run by itself: it may go to another tier, and is not unmapped here.
            let page = admitted.ok().filter(|()| !pass.demotes).and_then(|()| FilePosition::of(&frames[pfn]));
            let room = FREE_BATCH - lists.free.len();
            if page.is_some_and(|page| stretch.push(page, pfn, room)) {
                continue;
            }
            self.decide_stretch(&mut stretch, pass, lists);
            match (page, admitted) {
                (Some(page), _) => {
                    stretch.push(page, pfn, room);
                }
                (None, Ok(())) => self.decide(FolioRun::one(&pfn), pass, lists),
                (None, Err(fate)) => self.sort(pfn, fate, pass, lists),
            }
        }
        self.decide_stretch(&mut stretch, pass, lists);
    }

    /// Decide about the folios of a stretch, and empty it.
    #[inline(always)]
    fn decide_stretch(self, stretch: &mut Stretch, pass: &mut Pass<'_>, lists: &mut ShrinkLists) {
        match stretch.len() {
            0 => return,
            1 => self.decide(FolioRun::one(&stretch.pages()[0]), pass, lists),
            len => self.decide(FolioRun::first(stretch.pages(), len), pass, lists),
        }
        stretch.clear();
    }

    /// Do with a folio what its fate says.
    #[inline(always)]
    fn sort(self, pfn: Pfn, fate: ReclaimFate, pass: &mut Pass<'_>, lists: &mut ShrinkLists) {
        let frames = &self.core.frames;
        // It may have been split since it was admitted.
        let pages = || u64::from(frames[pfn].pages());
        match fate {
            ReclaimFate::Write => return lists.write.push_head(frames, pfn),
            ReclaimFate::KeepUnlocked => return lists.kept.push_head(frames, pfn),
            ReclaimFate::Activate => self.activate(pfn, pages(), &mut pass.out),
            ReclaimFate::Demote => {
                self.core.unlock_folio(pfn);
                return lists.demote.push_head(frames, pfn);
            }
            ReclaimFate::Keep | ReclaimFate::Free => {}
        }
        if fate == ReclaimFate::Free {
            self.core.unlock_folio(pfn);
            pass.out.reclaimed += pages();
            lists.free.push(pfn);
            if lists.free.len() == FREE_BATCH {
                self.free_batch(&mut lists.free, &mut pass.batch);
            }
        } else if pass.batch.owes_for_stores() {
            // Another task could write its content to the device while a CPU can still store to it.
            lists.held.push_head(frames, pfn);
        } else {
            self.core.unlock_folio(pfn);
            lists.kept.push_head(frames, pfn);
        }
    }

    #[inline(never)]
    fn free_batch(self, free: &mut SmallVec<[Pfn; FREE_BATCH]>, batch: &mut UnmapBatch) {
        let core = self.core;
        batch.settle(core.host(), &core.tlb);
        let _scope = core.scope(Scope::FreeUnrefFolios);
        if core.machine.listens() {
            for &pfn in free.iter() {
                let concern = Concern::Frames { first: pfn, count: core.frames[pfn].pages() };
                core.event(Event::TlbHazard, concern.args());
            }
        }
        core.free_folios(free);
        free.clear();
    }

    /// Lock an isolated folio, and check whether it is a candidate at all. `Err`: it is not.
    #[inline]
    fn admit(self, pfn: Pfn, pass: &mut Pass<'_>) -> Result<(), ReclaimFate> {
        let frame = &self.core.frames[pfn];
        if !self.core.try_lock_folio(pfn) {
            return Err(ReclaimFate::KeepUnlocked);
        }
        let isolated = !frame.has_any(FrameFlags::ACTIVE | FrameFlags::LRU);
        demand!(isolated, [pfn]; "folio {pfn} must be isolated and inactive");
        let pages = frame.pages() as u64;
        pass.sc.nr_scanned += pages;
        if !evictable(frame) {
            return Err(ReclaimFate::Activate);
        }
        if !pass.sc.may_unmap && frame.mapcount() > 0 {
            return Err(ReclaimFate::Keep);
        }
        if seen_used(frame, pass) {
            return Err(ReclaimFate::Keep);
        }
        if frame.has_any(FrameFlags::DIRTY | FrameFlags::WRITEBACK) {
            note_dirty(frame, pages, &mut pass.out.dirty_counts);
            if frame.has(FrameFlags::WRITEBACK) {
                return Err(self.count_writeback(frame, pages, pass));
            }
        }
        Ok(())
    }

    /// Decide about a run of admitted folios. Each folio is judged by itself and has the fate that it would
    /// have alone. Most runs are of one folio: it needs no arrays.
    fn decide<const N: usize>(self, run: FolioRun<'_, N>, pass: &mut Pass<'_>, lists: &mut ShrinkLists) {
        let mut fates = [ReclaimFate::Keep; N];
        let (wanted, if_clean) = match pass.rule {
            ReferenceRule::Nothing => (run, 0),
            _ => self.check_references(run, pass, &mut fates),
        };
        if !wanted.is_empty() {
            self.try_each(wanted, if_clean, pass, &mut fates);
        }
        for (at, pfn) in run.iter() {
            self.sort(pfn, fates[at], pass, lists);
        }
    }

    /// Demote the folios of a run, or unmap, clean and release them, and set the fate of each. Those whose bits are in
    /// `if_clean` are not written.
    #[inline(always)]
    fn try_each<const N: usize>(
        self,
        run: FolioRun<'_, N>,
        if_clean: u32,
        pass: &mut Pass<'_>,
        fates: &mut [ReclaimFate; N],
    ) {
        let core = self.core;
        if pass.demotes {
            return run.iter().for_each(|(at, pfn)| fates[at] = self.demote_or_keep(pfn, pass.sc));
        }
        let mut refused = |at: usize, fate: ReclaimFate| {
            fates[at] = fate;
            false
        };
        // Several folios are pages of a file, which need no slots.
        let slotted = match N {
            1 => run.filter(|at, pfn| match self.give_slots(pfn, pass) {
                Ok(()) => true,
                Err(fate) => refused(at, fate),
            }),
            _ => run,
        };
        // A folio that has to stay is still mapped afterwards.
        let dirty = core.rmap.try_to_unmap(core, slotted, UnmapMode::default(), &mut pass.batch);
        dirty.iter().for_each(|(_, pfn)| core.cache.mark_dirty(core, pfn));
        let clean = slotted.filter(|at, pfn| match self.make_clean(pfn, if_clean >> at & 1 != 0, pass) {
            Ok(()) => true,
            Err(fate) => refused(at, fate),
        });
        self.release(clean, pass.sc).iter().for_each(|(at, _)| fates[at] = ReclaimFate::Free);
    }

    /// After unmapping: a folio that is still mapped stays, and a dirty one is written if reclaim may write it. `Ok`:
    /// it is clean now.
    #[inline(always)]
    fn make_clean(self, pfn: Pfn, only_if_clean: bool, pass: &mut Pass<'_>) -> Result<(), ReclaimFate> {
        let frame = &self.core.frames[pfn];
        if frame.mapcount() > 0 {
            return Err(ReclaimFate::Activate);
        }
        if frame.has(FrameFlags::DIRTY) {
            let shmem = frame.has(FrameFlags::SWAPBACKED) && matches!(frame.owner(), Owner::File(_));
            if shmem && frame.order() > Order::ZERO && !self.split_for_swap(pfn, pass) {
                return Err(ReclaimFate::Activate);
            }
            self.write_dirty(pfn, only_if_clean, pass)?;
        }
        Ok(())
    }

    /// Take clean folios that are not mapped out of their cache. Returns the folios to free: those that only reclaim
    /// refers to.
    fn release<'r, const N: usize>(self, run: FolioRun<'r, N>, sc: &ScanControl) -> FolioRun<'r, N> {
        if run.is_empty() {
            return run;
        }
        let first = &self.core.frames[run.ends().0];
        assert!(first.has(FrameFlags::LOCKED), "folio {} must be locked to be freed", run.ends().0);
        if !first.is_anon() || first.has(FrameFlags::SWAPBACKED) {
            return self.remove_mapping(run, sc.top());
        }
        // Lazily freed: only the mappings, which are gone, and the isolation referred to it.
        run.filter(|_, pfn| {
            let frame = &self.core.frames[pfn];
            let freed = frame.freeze(1);
            if freed {
                self.core.count(Stat::Pglazyfreed, i64::from(frame.pages()));
            }
            freed
        })
    }

    /// A folio under write-back cannot be freed now. It is marked, so that it is reclaimed first when the write ends,
    /// and goes to the active list so that reclaim does not isolate it again before that.
    fn count_writeback(self, frame: &Frame, pages: u64, pass: &mut Pass<'_>) -> ReclaimFate {
        let marked = frame.has(FrameFlags::RECLAIM);
        if pass.sc.kswapd && marked && self.node(pass.node).writeback.load(Relaxed) {
            pass.out.dirty_counts.immediate += pages;
        } else {
            frame.set(FrameFlags::RECLAIM);
            pass.out.dirty_counts.writeback += pages;
        }
        ReclaimFate::Activate
    }

    /// Put an anonymous folio that must be swapped into the swap cache, unless it is there already. `Err`: it cannot be
    /// reclaimed now.
    #[inline(always)]
    fn give_slots(self, pfn: Pfn, pass: &mut Pass<'_>) -> Result<(), ReclaimFate> {
        let flags = self.core.frames[pfn].flags();
        let slotless = flags & (FrameFlags::SWAPBACKED | FrameFlags::SWAPCACHE) == FrameFlags::SWAPBACKED;
        if slotless && self.core.frames[pfn].is_anon() { self.add_to_swap(pfn, pass) } else { Ok(()) }
    }

    /// Put an anonymous folio into the swap cache, with consecutive slots for its pages. Without such slots it is
    /// split, and its first page goes to the swap cache. A folio that is mapped only in part is split first, which
    /// frees the pages that are not mapped. `Err`: it cannot be reclaimed now.
    fn add_to_swap(self, pfn: Pfn, pass: &mut Pass<'_>) -> Result<(), ReclaimFate> {
        let (core, frame) = (self.core, &self.core.frames[pfn]);
        let order = frame.order();
        if order == Order::ZERO {
            return if add_to_swap(core, pfn) { Ok(()) } else { Err(ReclaimFate::Activate) };
        }
        // Another reference would prevent the split and the freeing. And a split is useless if no page can be swapped.
        if frame.refs() != frame.mapcount() + 1 || core.swap.free_for(frame.group()) == 0 {
            return Err(ReclaimFate::Activate);
        }
        if core.frames.pages_mapped(pfn) < frame.pages() {
            self.split_anon(pfn, pass)?;
        } else if add_to_swap(core, pfn) {
            return Ok(());
        } else {
            self.split_anon(pfn, pass)?;
            core.sizes.count(SizeStat::SwpoutFallback, order, 1);
        }
        if add_to_swap(core, pfn) { Ok(()) } else { Err(ReclaimFate::Activate) }
    }

    /// Split an anonymous folio: its other pages are reclaimed later in this pass, those that are not mapped are freed.
    /// `Err`: the folio is in use; or its first page is freed, too.
    fn split_anon(self, pfn: Pfn, pass: &mut Pass<'_>) -> Result<(), ReclaimFate> {
        let (core, frame) = (self.core, &self.core.frames[pfn]);
        let others = frame.pages() as u64 - 1;
        let freed = core.rmap.split_anon(core, pfn, Some(&mut pass.parts)).ok_or(ReclaimFate::Activate)?;
        pass.out.reclaimed += freed;
        core.charge(Work::ReclaimFolio, others - freed);
        // Each part is counted when it is scanned itself.
        pass.sc.nr_scanned -= others;
        if frame.mapcount() == 0 && frame.freeze(1) { Err(ReclaimFate::Free) } else { Ok(()) }
    }

    /// A swap slot holds a page: a folio of shmem is split into pages before it is swapped out. Returns `false` if it
    /// is in use.
    fn split_for_swap(self, pfn: Pfn, pass: &mut Pass<'_>) -> bool {
        let core = self.core;
        let (order, pages) = (core.frames[pfn].order(), u64::from(core.frames[pfn].pages()));
        if !core.cache.split(core, pfn, Order::ZERO, Some(&mut pass.parts)) {
            return false;
        }
        core.sizes.count(SizeStat::SwpoutFallback, order, 1);
        core.charge(Work::ReclaimFolio, pages - 1);
        // Each part is counted when it is scanned itself.
        pass.sc.nr_scanned -= pages - 1;
        true
    }

    /// Reclaim could not free the folio: it becomes active.
    fn activate(self, pfn: Pfn, pages: u64, out: &mut Shrunk) {
        let (core, frame) = (self.core, &self.core.frames[pfn]);
        let useless = || core.swap.is_half_full() || frame.has(FrameFlags::MLOCKED);
        if frame.has(FrameFlags::SWAPCACHE) && useless() {
            free_swap(core, pfn);
        }
        if !frame.has(FrameFlags::MLOCKED) {
            frame.set(FrameFlags::ACTIVE);
            out.activated += pages;
        }
    }
}

/// Count dirty pages of files for the flushers. Anonymous memory does not count: only reclaim writes it.
fn note_dirty(frame: &Frame, pages: u64, dirty_counts: &mut DirtyCounts) {
    let flags = frame.flags();
    let file = !flags.contains(FrameFlags::SWAPBACKED) && !frame.is_anon();
    let dirty = file && flags.contains(FrameFlags::DIRTY);
    let writeback = file && flags.contains(FrameFlags::WRITEBACK);
    if dirty || writeback {
        dirty_counts.dirty += pages;
    }
    if dirty && !writeback {
        dirty_counts.unqueued_dirty += pages;
    }
    if writeback && flags.contains(FrameFlags::RECLAIM) {
        dirty_counts.congested += pages;
    }
}

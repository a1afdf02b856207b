//! The inner loop that all reclaim shares: for each isolated folio decide, unmap, write, free.
//!
//! The steps and their order are Linux's `shrink_folio_list`, but for one thing: a flush policy that defers gathers the
//! folios that are to be written, and writes them after one payment, where Linux flushes before each. What a step means
//! for the folio is a [`ReclaimFate`]. A folio is freed only after the batch of unmaps has been settled, so no CPU can reach
//! it through an old translation; a folio whose entries could have been written through is settled before its content
//! goes to the store.
//!
//! A folio may be cut off its file between its isolation and its lock: the cache's reference is gone then, and ours
//! keeps it. Under the lock the owner says so, and does not change any more. Such a folio is neither split nor written;
//! it is freed when it is put back.

use super::references::ReferenceRule;
use super::stretch::{FilePosition, Stretch};
use super::{DirtyCounts, Reclaim, ScanControl};
use crate::cache::{add_to_swap, free_swap};
use crate::event::{Concern, Event};
use crate::frame::{FolioRun, Frame, FrameFlags, List, Owner};
use crate::lru::evictable;
use crate::lru::mglru::LookAround;
use crate::machine::{Machine, Scope, Work};
use crate::primitive::Ordering::Relaxed;
use crate::rmap::UnmapMode;
use crate::stat::{SizeStat, Stat};
use crate::tlb::UnmapBatch;
use crate::units::*;
use smallvec::SmallVec;

/// Folios that are freed together.
const FREE_BATCH: usize = 31;

/// What the loop did, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Shrunk {
    /// Freed.
    pub reclaimed: u64,
    /// Handed to a device.
    pub pageout: u64,
    /// Activated.
    pub activated: u64,
    /// Dirty and written pages on the way; `taken` is the caller's to fill in.
    pub dirty_counts: DirtyCounts,
}

/// What becomes of a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReclaimFate {
    /// Active from now on.
    Activate,
    /// Back on the list that it came from.
    Keep,
    /// The same, and its lock is gone already.
    KeepUnlocked,
    /// To be written once the batch has been settled; it stays locked until then.
    Write,
    /// Nobody refers to it any more.
    Free,
    /// To a slower tier of memory.
    Demote,
}

/// Folios by what becomes of them.
#[derive(Default)]
pub(super) struct ShrinkLists {
    kept: List,
    /// To be written when the batch has been settled.
    write: List,
    /// To be kept, and locked until the batch has been settled.
    held: List,
    /// To be freed when the batch has been settled, the first first.
    free: SmallVec<[Pfn; FREE_BATCH]>,
    /// Cold, and to be moved to a slower tier at the end; the first at the tail.
    demote: List,
}

/// On whose behalf a list is shrunk, and what is owed until the end.
pub(super) struct Pass<'a> {
    pub sc: &'a mut ScanControl,
    pub node: NodeId,
    /// Cold folios go to a slower tier.
    pub demotes: bool,
    /// What pages' use means.
    pub rule: ReferenceRule,
    pub batch: UnmapBatch,
    /// What is learned around used entries, for a policy that looks there.
    pub look: Option<LookAround>,
    pub out: Shrunk,
    /// Parts of folios that were split on the way: they have their turn, too.
    pub parts: List,
}

impl<M: Machine> Reclaim<'_, M> {
    /// Reclaim from isolated folios of one node, the list's tail first. Those that stay are left in `folios`, to be put
    /// back by the caller.
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
            // What a program gives up is not wanted anywhere.
            demotes: rule != ReferenceRule::Nothing && self.demotes(node),
            rule,
            batch: UnmapBatch::new(self.core),
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

    /// Move what is cold to a slower tier, and do with what is not moved what else can be done.
    #[cold]
    fn shrink_by_demotion(self, cold: List, folios: &mut List, pass: &mut Pass<'_>) {
        let (moved, mut stay) = self.demote(pass.node, cold, pass.sc);
        pass.out.reclaimed += moved;
        if !stay.is_empty() {
            pass.demotes = false;
            // A policy may have been set since.
            pass.batch = UnmapBatch::new(self.core);
            self.shrink_once(&mut stay, pass);
        }
        folios.splice_head(&self.core.frames, &mut stay);
    }

    /// The work itself. What is to be demoted is returned, the first at the tail.
    fn shrink_once(self, folios: &mut List, pass: &mut Pass<'_>) -> List {
        let core = self.core;
        let _scope = core.scope(Scope::ShrinkFolioList);
        core.charge(Work::ReclaimBatch, 1);
        core.charge(Work::ReclaimFolio, folios.len() as u64);
        if pass.rule == ReferenceRule::Chances {
            pass.look = self.begin_look(pass.node, folios);
        }
        let activated = pass.out.activated;
        let mut lists = ShrinkLists::default();
        self.decide_each(folios, pass, &mut lists);
        while let Some(pfn) = lists.write.pop_tail(&core.frames) {
            let fate = match self.write(pfn, pass) {
                Ok(()) if self.release(FolioRun::one(&pfn), pass.sc).is_empty() => ReclaimFate::Keep,
                Ok(()) => ReclaimFate::Free,
                Err(fate) => fate,
            };
            self.sort(pfn, fate, pass, &mut lists);
        }
        self.free_batch(&mut lists.free, &mut pass.batch);
        while let Some(pfn) = lists.held.pop_tail(&core.frames) {
            // The next holder of the lock may write it: the batch was settled for it, whatever becomes of it.
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

    /// Take each folio through the steps up to its fate: those that can, in runs.
    fn decide_each(self, folios: &mut List, pass: &mut Pass<'_>, lists: &mut ShrinkLists) {
        let frames = &self.core.frames;
        let mut stretch = Stretch::default();
        while let Some(pfn) = pass.parts.pop_tail(frames).or_else(|| folios.pop_tail(frames)) {
            let admitted = self.admit(pfn, pass);
            // Where cold folios are demoted, each is looked at by itself.
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

    /// Have a stretch decided; it is empty afterwards.
    #[inline]
    fn decide_stretch(self, stretch: &mut Stretch, pass: &mut Pass<'_>, lists: &mut ShrinkLists) {
        if !stretch.is_empty() {
            self.decide(stretch.run(), pass, lists);
            stretch.clear();
        }
    }

    /// Put a folio where its fate sends it.
    #[inline]
    fn sort(self, pfn: Pfn, fate: ReclaimFate, pass: &mut Pass<'_>, lists: &mut ShrinkLists) {
        let frames = &self.core.frames;
        // It may have been split since it was admitted.
        let pages = u64::from(frames[pfn].pages());
        match fate {
            ReclaimFate::Write => return lists.write.push_head(frames, pfn),
            ReclaimFate::KeepUnlocked => return lists.kept.push_head(frames, pfn),
            ReclaimFate::Activate => self.activate(pfn, pages, &mut pass.out),
            ReclaimFate::Demote => {
                self.core.unlock_folio(pfn);
                return lists.demote.push_head(frames, pfn);
            }
            ReclaimFate::Keep | ReclaimFate::Free => {}
        }
        if fate == ReclaimFate::Free {
            self.core.unlock_folio(pfn);
            pass.out.reclaimed += pages;
            lists.free.push(pfn);
            if lists.free.len() == FREE_BATCH {
                self.free_batch(&mut lists.free, &mut pass.batch);
            }
        } else if pass.batch.owes_for_writable() {
            // Somebody else could write its content away while a CPU can still store to it.
            lists.held.push_head(frames, pfn);
        } else {
            self.core.unlock_folio(pfn);
            lists.kept.push_head(frames, pfn);
        }
    }

    #[inline(never)]
    fn free_batch(self, free: &mut SmallVec<[Pfn; FREE_BATCH]>, batch: &mut UnmapBatch) {
        let core = self.core;
        batch.settle(core, &core.tlb);
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

    /// The first steps for an isolated folio: lock it, unless that alone says what becomes of it (`Err`).
    #[inline]
    fn admit(self, pfn: Pfn, pass: &mut Pass<'_>) -> Result<(), ReclaimFate> {
        let frame = &self.core.frames[pfn];
        if !self.core.try_lock_folio(pfn) {
            return Err(ReclaimFate::KeepUnlocked);
        }
        assert!(
            !frame.has_any(FrameFlags::ACTIVE | FrameFlags::LRU),
            "{pfn} is not an isolated inactive folio"
        );
        let pages = frame.pages() as u64;
        pass.sc.nr_scanned += pages;
        if !evictable(frame) {
            return Err(ReclaimFate::Activate);
        }
        if !pass.sc.may_unmap && frame.mapcount() > 0 {
            return Err(ReclaimFate::Keep);
        }
        if frame.has_any(FrameFlags::DIRTY | FrameFlags::WRITEBACK) {
            note_dirty(frame, pages, &mut pass.out.dirty_counts);
            if frame.has(FrameFlags::WRITEBACK) {
                return Err(self.meet_writeback(frame, pages, pass));
            }
        }
        Ok(())
    }

    /// The other steps, for a run of folios. Each is judged by itself, and goes where it would go alone.
    fn decide(self, run: FolioRun<'_>, pass: &mut Pass<'_>, lists: &mut ShrinkLists) {
        let core = self.core;
        let mut fates = [ReclaimFate::Keep; FolioRun::MOST];
        let (wanted, if_clean) = match pass.rule {
            ReferenceRule::Nothing => (run, 0),
            _ => self.check_references(run, pass, &mut fates),
        };
        let mut refused = |at: usize, fate: ReclaimFate| {
            fates[at] = fate;
            false
        };
        let mut clean = wanted.with(0);
        if pass.demotes {
            wanted.iter().for_each(|(at, pfn)| _ = refused(at, self.demote_or_keep(pfn, pass.sc)));
        } else {
            let slotted = wanted.filter(|at, pfn| match self.give_slots(pfn, pass) {
                Ok(()) => true,
                Err(fate) => refused(at, fate),
            });
            // What has to stay is still mapped.
            let dirty = core.rmap.try_to_unmap(core, slotted, UnmapMode::default(), &mut pass.batch);
            dirty.iter().for_each(|(_, pfn)| core.cache.mark_dirty(core, pfn));
            clean = slotted.filter(|at, pfn| match self.make_clean(pfn, if_clean >> at & 1 != 0, pass) {
                Ok(()) => true,
                Err(fate) => refused(at, fate),
            });
        }
        self.release(clean, pass.sc).iter().for_each(|(at, _)| fates[at] = ReclaimFate::Free);
        for (at, pfn) in run.iter() {
            self.sort(pfn, fates[at], pass, lists);
        }
    }

    /// The step after the unmapping: what is still mapped stays, what is dirty is written if it is reclaim's business.
    /// `Ok`: it is clean now.
    #[inline]
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

    /// The last step for clean folios that are not mapped: only reclaim may still refer to them. Returns those that are
    /// to be freed.
    fn release<'r>(self, run: FolioRun<'r>, sc: &ScanControl) -> FolioRun<'r> {
        if run.is_empty() {
            return run;
        }
        let first = &self.core.frames[run.ends().0];
        assert!(first.has(FrameFlags::LOCKED), "folio {} must be locked to be freed", run.ends().0);
        if !first.is_anon() || first.has(FrameFlags::SWAPBACKED) {
            return self.remove_mapping(run, sc.top());
        }
        // Lazily freed: nothing but the mappings, which are gone, and our isolation referred to it.
        run.filter(|_, pfn| {
            let frame = &self.core.frames[pfn];
            let freed = frame.freeze(1);
            if freed {
                self.core.count(Stat::Pglazyfreed, i64::from(frame.pages()));
            }
            freed
        })
    }

    /// A folio that is being written cannot be freed now. It is marked, so that it is freed first when the write ends,
    /// and goes to the active list so that reclaim does not meet it again before.
    fn meet_writeback(self, frame: &Frame, pages: u64, pass: &mut Pass<'_>) -> ReclaimFate {
        let marked = frame.has(FrameFlags::RECLAIM);
        if pass.sc.kswapd && marked && self.node(pass.node).writeback.load(Relaxed) {
            pass.out.dirty_counts.immediate += pages;
        } else {
            frame.set(FrameFlags::RECLAIM);
            pass.out.dirty_counts.writeback += pages;
        }
        ReclaimFate::Activate
    }

    /// Put an anonymous folio that is to be swapped into the swap cache, if it is not there. `Err`: it goes no further.
    #[inline]
    fn give_slots(self, pfn: Pfn, pass: &mut Pass<'_>) -> Result<(), ReclaimFate> {
        let flags = self.core.frames[pfn].flags();
        let slotless = flags & (FrameFlags::SWAPBACKED | FrameFlags::SWAPCACHE) == FrameFlags::SWAPBACKED;
        if slotless && self.core.frames[pfn].is_anon() { self.add_to_swap(pfn, pass) } else { Ok(()) }
    }

    /// Put an anonymous folio into the swap cache, with a slot for each page: all in a row, else it is split and its
    /// first page goes there. What is mapped only in part is split first, and its other pages are free. `Err`: it goes
    /// no further.
    fn add_to_swap(self, pfn: Pfn, pass: &mut Pass<'_>) -> Result<(), ReclaimFate> {
        let (core, frame) = (self.core, &self.core.frames[pfn]);
        let order = frame.order();
        if order == Order::ZERO {
            return if add_to_swap(core, pfn) { Ok(()) } else { Err(ReclaimFate::Activate) };
        }
        // Who holds it would keep it from being freed, and from being split. And why split it if no page can go?
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

    /// Split an anonymous folio: its other pages have their turn later, those that nobody maps are free. `Err`:
    /// somebody uses it; or its first page is free, too.
    fn split_anon(self, pfn: Pfn, pass: &mut Pass<'_>) -> Result<(), ReclaimFate> {
        let (core, frame) = (self.core, &self.core.frames[pfn]);
        let others = frame.pages() as u64 - 1;
        let freed = core.rmap.split_anon(core, pfn, Some(&mut pass.parts)).ok_or(ReclaimFate::Activate)?;
        pass.out.reclaimed += freed;
        core.charge(Work::ReclaimFolio, others - freed);
        // Each part is scanned in its own turn.
        pass.sc.nr_scanned -= others;
        if frame.mapcount() == 0 && frame.freeze(1) { Err(ReclaimFate::Free) } else { Ok(()) }
    }

    /// A slot of swap is a page: shmem that is to be swapped out becomes pages first. `false`: somebody uses it.
    fn split_for_swap(self, pfn: Pfn, pass: &mut Pass<'_>) -> bool {
        let core = self.core;
        let (order, pages) = (core.frames[pfn].order(), u64::from(core.frames[pfn].pages()));
        if !core.cache.split(core, pfn, Order::ZERO, Some(&mut pass.parts)) {
            return false;
        }
        core.sizes.count(SizeStat::SwpoutFallback, order, 1);
        core.charge(Work::ReclaimFolio, pages - 1);
        // Each part is scanned in its own turn.
        pass.sc.nr_scanned -= pages - 1;
        true
    }

    /// Reclaim could not take it.
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

/// Count what the flushers should be told about. They do not care for anonymous memory: only reclaim writes it.
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

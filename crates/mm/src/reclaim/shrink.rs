//! The inner loop that all reclaim shares: for each isolated folio decide, unmap, write, free.
//!
//! The steps and their order are Linux's `shrink_folio_list`, but for one thing: a flush policy that defers gathers the
//! folios that are to be written, and writes them after one payment, where Linux flushes before each. What a step means
//! for the folio is a [`Fate`]. A folio is freed only after the batch of unmaps has been settled, so no CPU can reach
//! it through an old translation; a folio whose entries could have been written through is settled before its content
//! goes to the store.
//!
//! A folio may be cut off its file between its isolation and its lock: the cache's reference is gone then, and ours
//! keeps it. Under the lock the owner says so, and does not change any more. Such a folio is neither split nor written;
//! it is freed when it is put back.

use super::references::{Heed, Verdict};
use super::stretch::{Place, Stretch};
use super::{Met, Reclaim, ScanControl};
use crate::cache::{add_to_swap, free_swap};
use crate::event::{Concern, Event};
use crate::frame::{Frame, FrameFlags, List, Owner};
use crate::lru::evictable;
use crate::lru::mglru::Look;
use crate::machine::{Machine, Scope, Work};
use crate::primitive::Ordering::Relaxed;
use crate::rmap::UnmapMode;
use crate::stat::{SizeStat, Stat};
use crate::tlb::Batch;
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
    pub met: Met,
}

impl Shrunk {
    fn add(&mut self, more: Shrunk) {
        self.reclaimed += more.reclaimed;
        self.pageout += more.pageout;
        self.activated += more.activated;
        self.met.dirty += more.met.dirty;
        self.met.unqueued_dirty += more.met.unqueued_dirty;
        self.met.congested += more.met.congested;
        self.met.writeback += more.met.writeback;
        self.met.immediate += more.met.immediate;
    }
}

/// What becomes of a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
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
pub(super) struct Lists {
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

/// Who asks, and what is owed meanwhile.
pub(super) struct Pass<'a> {
    pub sc: &'a mut ScanControl,
    pub node: NodeId,
    /// Does what is cold go to a slower tier?
    pub demotes: bool,
    /// What pages' use means.
    pub heed: Heed,
    pub batch: Batch,
    /// What is learned around used entries, for a policy that looks there.
    pub look: Option<Look>,
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
        heed: Heed,
    ) -> Shrunk {
        // What a program gives up is not wanted anywhere.
        let demotes = heed != Heed::Nothing && self.demotes(node);
        let (shrunk, cold) = self.shrink_once((node, demotes), folios, sc, heed);
        if cold.is_empty() {
            return shrunk;
        }
        self.shrink_by_demotion(node, (shrunk, cold), folios, sc, heed)
    }

    /// Move what is cold to a slower tier, and do with what is not moved what else can be done.
    #[cold]
    fn shrink_by_demotion(
        self,
        node: NodeId,
        (mut shrunk, cold): (Shrunk, List),
        folios: &mut List,
        sc: &mut ScanControl,
        heed: Heed,
    ) -> Shrunk {
        let (moved, mut stay) = self.demote(node, cold, sc);
        shrunk.reclaimed += moved;
        if !stay.is_empty() {
            let (again, _) = self.shrink_once((node, false), &mut stay, sc, heed);
            shrunk.add(again);
        }
        folios.splice_head(&self.st.frames, &mut stay);
        shrunk
    }

    /// The work itself. What is to be demoted is returned, the first at the tail.
    fn shrink_once(
        self,
        (node, demotes): (NodeId, bool),
        folios: &mut List,
        sc: &mut ScanControl,
        heed: Heed,
    ) -> (Shrunk, List) {
        let _scope = self.st.scope(Scope::ShrinkFolioList);
        let frames = &self.st.frames;
        self.st.charge(Work::ReclaimBatch, 1);
        self.st.charge(Work::ReclaimFolio, folios.len() as u64);
        let look = if heed == Heed::Chances { self.begin_look(node, folios) } else { None };
        let mut pass = Pass {
            look,
            sc,
            node,
            demotes,
            heed,
            batch: Batch::new(self.st.memory().ground()),
            out: Shrunk::default(),
            parts: List::new(),
        };
        let mut lists = Lists::default();
        let mut stretch = Stretch::default();
        while let Some(pfn) = pass.parts.pop_tail(frames).or_else(|| folios.pop_tail(frames)) {
            let admitted = self.admit(pfn, &mut pass);
            let page = admitted.ok().filter(|()| !demotes).and_then(|()| Place::of(&frames[pfn]));
            let room = FREE_BATCH - lists.free.len();
            if page.is_some_and(|page| stretch.push(page, pfn, room)) {
                continue;
            }
            self.finish(&mut stretch, &mut pass, &mut lists);
            let fate = match (page, admitted) {
                (Some(page), _) => {
                    stretch.push(page, pfn, room);
                    continue;
                }
                (None, Ok(())) => self.decide(pfn, frames[pfn].pages() as u64, &mut pass),
                (None, Err(fate)) => fate,
            };
            // It may have been split.
            self.sort(pfn, frames[pfn].pages() as u64, fate, &mut pass, &mut lists);
        }
        self.finish(&mut stretch, &mut pass, &mut lists);
        while let Some(pfn) = lists.write.pop_tail(frames) {
            let pages = frames[pfn].pages() as u64;
            let fate = match self.write(pfn, pages, &mut pass) {
                Ok(()) => self.release(pfn, pages, pass.sc),
                Err(fate) => fate,
            };
            self.sort(pfn, pages, fate, &mut pass, &mut lists);
        }
        self.free_batch(&mut lists.free, &mut pass.batch);
        while let Some(pfn) = lists.held.pop_tail(frames) {
            // Who takes the lock next may write it: the batch was settled for it, whatever becomes of it.
            let concern = Concern::Frames { first: pfn, count: frames[pfn].pages() };
            self.st.event(Event::TlbSettle, concern.args());
            self.st.unlock_folio(pfn);
            lists.kept.push_head(frames, pfn);
        }
        if let Some(look) = pass.look.take() {
            self.end_look(look);
        }
        let out = pass.out;
        *folios = lists.kept;
        if out.activated > 0 {
            self.st.count(Stat::Pgactivate, out.activated as i64);
        }
        (out, lists.demote)
    }

    /// Put a folio where its fate sends it.
    #[inline]
    pub(super) fn sort(self, pfn: Pfn, pages: u64, fate: Fate, pass: &mut Pass<'_>, lists: &mut Lists) {
        let frames = &self.st.frames;
        match fate {
            Fate::Write => return lists.write.push_head(frames, pfn),
            Fate::KeepUnlocked => return lists.kept.push_head(frames, pfn),
            Fate::Activate => self.activate(pfn, pages, &mut pass.out),
            Fate::Demote => {
                self.st.unlock_folio(pfn);
                return lists.demote.push_head(frames, pfn);
            }
            Fate::Keep | Fate::Free => {}
        }
        if fate == Fate::Free {
            self.st.unlock_folio(pfn);
            pass.out.reclaimed += pages;
            lists.free.push(pfn);
            if lists.free.len() == FREE_BATCH {
                self.free_batch(&mut lists.free, &mut pass.batch);
            }
        } else if pass.batch.owes_for_writable() {
            // Somebody else could write its content away while a CPU can still store to it.
            lists.held.push_head(frames, pfn);
        } else {
            self.st.unlock_folio(pfn);
            lists.kept.push_head(frames, pfn);
        }
    }

    #[inline(never)]
    fn free_batch(self, free: &mut SmallVec<[Pfn; FREE_BATCH]>, batch: &mut Batch) {
        let st = self.st;
        batch.settle(st.memory().ground(), &st.tlb);
        let _scope = st.scope(Scope::FreeUnrefFolios);
        if st.machine.listens() {
            for &pfn in free.iter() {
                let concern = Concern::Frames { first: pfn, count: st.frames[pfn].pages() };
                st.event(Event::TlbHazard, concern.args());
            }
        }
        st.free_folios(free);
        free.clear();
    }

    /// The first steps for an isolated folio: lock it, unless that alone says what becomes of it (`Err`).
    #[inline]
    fn admit(self, pfn: Pfn, pass: &mut Pass<'_>) -> Result<(), Fate> {
        let frame = &self.st.frames[pfn];
        if !self.st.try_lock_folio(pfn) {
            return Err(Fate::KeepUnlocked);
        }
        assert!(
            !frame.has_any(FrameFlags::ACTIVE | FrameFlags::LRU),
            "{pfn} is not an isolated inactive folio"
        );
        let pages = frame.pages() as u64;
        pass.sc.nr_scanned += pages;
        if !evictable(frame) {
            return Err(Fate::Activate);
        }
        if !pass.sc.may_unmap && frame.mapcount() > 0 {
            return Err(Fate::Keep);
        }
        if frame.has_any(FrameFlags::DIRTY | FrameFlags::WRITEBACK) {
            note_dirty(frame, pages, &mut pass.out.met);
            if frame.has(FrameFlags::WRITEBACK) {
                return Err(self.meet_writeback(frame, pages, pass));
            }
        }
        Ok(())
    }

    /// The other steps, for one folio.
    fn decide(self, pfn: Pfn, pages: u64, pass: &mut Pass<'_>) -> Fate {
        let frame = &self.st.frames[pfn];
        let verdict =
            if pass.heed == Heed::Nothing { Verdict::Reclaim } else { self.check_references(pfn, pass) };
        match verdict {
            Verdict::Activate => return Fate::Activate,
            Verdict::Keep => return Fate::Keep,
            Verdict::Reclaim | Verdict::ReclaimClean => {}
        }
        if pass.demotes {
            return self.demote_or_keep(pfn, pass.sc);
        }
        let anon = frame.is_anon() && frame.has(FrameFlags::SWAPBACKED);
        let mut pages = pages;
        if anon && !frame.has(FrameFlags::SWAPCACHE) {
            if let Err(fate) = self.give_slots(pfn, pass) {
                return fate;
            }
            pages = frame.pages() as u64;
        }
        if frame.mapcount() > 0 {
            self.unmap(pfn, pass);
        }
        match self.make_clean(pfn, pages, verdict, pass) {
            Ok(pages) => self.release(pfn, pages, pass.sc),
            Err(fate) => fate,
        }
    }

    /// The step after the unmapping: what is still mapped stays, what is dirty is written if it is reclaim's business.
    /// `Ok`: it is clean and has so many pages.
    #[inline]
    pub(super) fn make_clean(
        self,
        pfn: Pfn,
        pages: u64,
        verdict: Verdict,
        pass: &mut Pass<'_>,
    ) -> Result<u64, Fate> {
        let frame = &self.st.frames[pfn];
        if frame.mapcount() > 0 {
            return Err(Fate::Activate);
        }
        let mut pages = pages;
        if frame.has(FrameFlags::DIRTY) {
            let shmem = frame.has(FrameFlags::SWAPBACKED) && matches!(frame.owner(), Owner::File(_));
            if pages > 1 && shmem {
                if !self.split_for_swap(pfn, pages, pass) {
                    return Err(Fate::Activate);
                }
                pages = 1;
            }
            self.write_dirty(pfn, verdict, pages, pass)?;
        }
        Ok(pages)
    }

    /// The last step for a clean folio that is not mapped: nobody but us may refer to it.
    fn release(self, pfn: Pfn, pages: u64, sc: &ScanControl) -> Fate {
        let frame = &self.st.frames[pfn];
        assert!(frame.has(FrameFlags::LOCKED), "{pfn} is freed by who has not locked it");
        if frame.is_anon() && !frame.has(FrameFlags::SWAPBACKED) {
            // Lazily freed: nothing but the mappings, which are gone, and our isolation referred to it.
            if !frame.freeze(1) {
                return Fate::Keep;
            }
            self.st.count(Stat::Pglazyfreed, pages as i64);
            return Fate::Free;
        }
        if self.remove_mapping(pfn, sc.top()) { Fate::Free } else { Fate::Keep }
    }

    /// A folio that is being written cannot be freed now. It is marked, so that it is freed first when the write ends,
    /// and goes to the active list so that reclaim does not meet it again before.
    fn meet_writeback(self, frame: &Frame, pages: u64, pass: &mut Pass<'_>) -> Fate {
        let marked = frame.has(FrameFlags::RECLAIM);
        if pass.sc.kswapd && marked && self.node(pass.node).writeback.load(Relaxed) {
            pass.out.met.immediate += pages;
        } else {
            frame.set(FrameFlags::RECLAIM);
            pass.out.met.writeback += pages;
        }
        Fate::Activate
    }

    /// Take all mappings away that need not stay.
    fn unmap(self, pfn: Pfn, pass: &mut Pass<'_>) {
        let st = self.st;
        let unmapped = st.rmap.try_to_unmap(st.memory(), pfn, UnmapMode::default(), &mut pass.batch);
        if unmapped.dirty && !st.frames[pfn].is_anon() {
            st.cache.mark_dirty(st.memory(), pfn);
        }
    }

    /// Put an anonymous folio into the swap cache, with a slot for each page: all in a row, else it is split and its
    /// first page goes there. What is mapped only in part is split first, and its other pages are free. `Err`: it goes
    /// no further.
    fn give_slots(self, pfn: Pfn, pass: &mut Pass<'_>) -> Result<(), Fate> {
        let (st, frame) = (self.st, &self.st.frames[pfn]);
        let order = frame.order();
        if order == Order::ZERO {
            return if add_to_swap(st.memory(), pfn) { Ok(()) } else { Err(Fate::Activate) };
        }
        // Who holds it would keep it from being freed, and from being split. And why split it if no page can go?
        if frame.refs() != frame.mapcount() + 1 || st.swap.free_for(frame.group()) == 0 {
            return Err(Fate::Activate);
        }
        if st.frames.pages_mapped(pfn) < frame.pages() {
            self.split_anon(pfn, pass)?;
        } else if add_to_swap(st.memory(), pfn) {
            return Ok(());
        } else {
            self.split_anon(pfn, pass)?;
            st.sizes.count(SizeStat::SwpoutFallback, order, 1);
        }
        if add_to_swap(st.memory(), pfn) { Ok(()) } else { Err(Fate::Activate) }
    }

    /// Split an anonymous folio: its other pages have their turn later, those that nobody maps are free. `Err`:
    /// somebody uses it; or its first page is free, too.
    fn split_anon(self, pfn: Pfn, pass: &mut Pass<'_>) -> Result<(), Fate> {
        let (st, frame) = (self.st, &self.st.frames[pfn]);
        let others = frame.pages() as u64 - 1;
        let freed = st.rmap.split_anon(st.memory(), pfn, Some(&mut pass.parts)).ok_or(Fate::Activate)?;
        pass.out.reclaimed += freed;
        st.charge(Work::ReclaimFolio, others - freed);
        // Each part is scanned in its own turn.
        pass.sc.nr_scanned -= others;
        if frame.mapcount() == 0 && frame.freeze(1) { Err(Fate::Free) } else { Ok(()) }
    }

    /// A slot of swap is a page: shmem that is to be swapped out becomes pages first. `false`: somebody uses it.
    fn split_for_swap(self, pfn: Pfn, pages: u64, pass: &mut Pass<'_>) -> bool {
        let st = self.st;
        let order = st.frames[pfn].order();
        if !st.cache.split(st.memory(), pfn, Order::ZERO, Some(&mut pass.parts)) {
            return false;
        }
        st.sizes.count(SizeStat::SwpoutFallback, order, 1);
        st.charge(Work::ReclaimFolio, pages - 1);
        // Each part is scanned in its own turn.
        pass.sc.nr_scanned -= pages - 1;
        true
    }

    /// Reclaim could not take it.
    fn activate(self, pfn: Pfn, pages: u64, out: &mut Shrunk) {
        let (st, frame) = (self.st, &self.st.frames[pfn]);
        let useless = || st.swap.is_half_full() || frame.has(FrameFlags::MLOCKED);
        if frame.has(FrameFlags::SWAPCACHE) && useless() {
            free_swap(st.memory(), pfn);
        }
        if !frame.has(FrameFlags::MLOCKED) {
            frame.set(FrameFlags::ACTIVE);
            out.activated += pages;
        }
    }
}

/// Count what the flushers should be told about. They do not care for anonymous memory: only reclaim writes it.
fn note_dirty(frame: &Frame, pages: u64, met: &mut Met) {
    let flags = frame.flags();
    let file = !flags.contains(FrameFlags::SWAPBACKED) && !frame.is_anon();
    let dirty = file && flags.contains(FrameFlags::DIRTY);
    let writeback = file && flags.contains(FrameFlags::WRITEBACK);
    if dirty || writeback {
        met.dirty += pages;
    }
    if dirty && !writeback {
        met.unqueued_dirty += pages;
    }
    if writeback && flags.contains(FrameFlags::RECLAIM) {
        met.congested += pages;
    }
}

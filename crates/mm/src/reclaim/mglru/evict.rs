//! Eviction: how much to isolate from a vector, and where folios go that are not freed.

use super::aging::should_age;
use super::groups::Turn;
use crate::alloc::{Reserve, compact_gap, kswapd_mark};
use crate::event::Event;
use crate::frame::{Frame, FrameFlags, List};
use crate::knobs::Knob;
use crate::lru::mglru::form::{MARKS, counts_marks, has_budget, is_reworked, kept};
use crate::lru::mglru::{BATCH, Evictable, Generations, MIN_GENERATIONS, Wanted};
use crate::lru::{PolicyKind, ROOT, evictable};
use crate::machine::{Machine, Scope};
use crate::reclaim::pass::{ReferenceRule, Shrunk};
use crate::reclaim::{DEF_PRIORITY, DirtyCounts, Reclaim, ScanControl};
use crate::stat::{GroupStat, Stat};
use crate::units::*;

/// The marks of a folio that reclaim did not free because it was used.
const USED: FrameFlags = MARKS.union(FrameFlags::WORKINGSET);

impl<M: Machine> Reclaim<'_, M> {
    /// A pass over all groups of a node.
    pub(super) fn shrink_generations(self, node: NodeId, sc: &mut ScanControl) {
        let before = sc.nr_reclaimed;
        // Unmapped folios that need no write are reclaimed first anyway: a reclaim that may take only those would scan
        // everything for few.
        if sc.may_writepage && sc.may_unmap {
            self.set_initial_priority(node, sc);
            sc.mm_walk = sc.kswapd;
            sc.dirty_counts = DirtyCounts::default();
            if sc.kswapd {
                // Pages of earlier passes are no reason to end this one.
                sc.nr_reclaimed = 0;
            }
            if self.core.knobs.get(Knob::LruGenMemcgLru) != 0 {
                self.state.groups(node).pass(&self.core.lru.groups, |groups, group| {
                    let turn = self.shrink_one(node, group, sc, groups.is_at_tail(group));
                    (turn, self.is_enough(node, sc))
                });
            } else {
                self.shrink_all(node, sc);
            }
            sc.nr_reclaimed += self.split_deferred(node, sc);
            if sc.kswapd {
                sc.nr_reclaimed += before;
            }
            if has_budget(&self.core.knobs) {
                self.respond_to_dirty(node, sc.nr_reclaimed - before, sc);
            }
        }
        if sc.nr_reclaimed > before {
            self.made_progress(node);
        }
    }

    /// Reclaim from all groups, and also from groups below memory.low if the others had too little.
    fn shrink_all(self, node: NodeId, sc: &mut ScanControl) {
        let groups = &self.core.lru.groups;
        for low in [false, true] {
            let mut spared = false;
            for group in groups.subtree(ROOT) {
                groups.calculate_protection(ROOT, group);
                let is_low = groups.below_low(ROOT, group);
                if is_low == low {
                    self.shrink_one(node, group, sc, true);
                }
                spared |= is_low;
            }
            if !spared || self.is_enough(node, sc) {
                return;
            }
        }
    }

    /// Reclaim from one group. Returns where it goes in the order of groups.
    fn shrink_one(self, node: NodeId, group: GroupId, sc: &mut ScanControl, at_tail: bool) -> Turn {
        let groups = &self.core.lru.groups;
        groups.calculate_protection(sc.top(), group);
        if groups.below_min(sc.top(), group) {
            return Turn::Young;
        }
        let is_low = groups.below_low(sc.top(), group);
        if is_low && !at_tail {
            return Turn::Tail;
        }
        if is_low {
            groups.count(group, GroupStat::Low, 1);
        }
        if self.core.lru.policy_in(group) != PolicyKind::MgLru {
            // Its front end does not age: each visit takes a share, then other groups are visited.
            self.shrink_vec(node, group, sc);
            self.shrink_slab(node, group, sc);
            return Turn::Young;
        }
        let aged = self.evict(node, group, sc);
        self.shrink_slab(node, group, sc);
        if aged {
            return Turn::Young;
        }
        if self.is_sizable(node, group, sc) {
            Turn::Stay
        } else if at_tail {
            Turn::Young
        } else {
            Turn::Tail
        }
    }

    /// Evict the share of a vector at this priority. Returns whether the vector was short of cold folios and was aged.
    pub(super) fn evict(self, node: NodeId, group: GroupId, sc: &mut ScanControl) -> bool {
        let _scope = self.core.scope(Scope::EvictFolios);
        let swappiness = self.swappiness(node, group, sc);
        if has_budget(&self.core.knobs) {
            return self.evict_budget(node, group, swappiness, sc);
        }
        let (mut scanned, mut aged) = (0, false);
        sc.dirty_counts = DirtyCounts::default();
        loop {
            let Some(share) = self.share(node, group, swappiness > 0, sc) else {
                aged = true;
                break;
            };
            let progress = if share > 0 { self.evict_some(node, group, swappiness, sc, None) } else { 0 };
            scanned += progress;
            if progress == 0 || scanned >= share || self.is_enough(node, sc) {
                break;
            }
            self.core.machine.resched();
        }
        if sc.dirty_counts.unqueued_dirty > 0 && sc.dirty_counts.unqueued_dirty == sc.dirty_counts.file_taken
        {
            // All isolated pages of files are dirty and not under write-back.
            self.core.cache.want_flusher(self.core);
        }
        aged
    }

    /// The same in the form of 7.2: the priority alone sets a budget of pages to scan once, at the beginning, which is
    /// spent batch by batch. If the vector gets short of cold folios, it is aged, and after one more batch other groups
    /// have their turn.
    fn evict_budget(self, node: NodeId, group: GroupId, swappiness: u64, sc: &mut ScanControl) -> bool {
        if self.core.lru.groups.below_min(sc.top(), group) {
            return true;
        }
        let can_swap = swappiness > 0;
        let (mut left, mut aged) = (self.evictable_pages(node, group, can_swap) >> sc.priority, false);
        while left > 0 {
            let short = self.is_short(node, group, can_swap, sc);
            aged |= short && self.age_short(node, group, can_swap, sc);
            let scanned = self.evict_some(node, group, swappiness, sc, Some(left.min(BATCH)));
            if scanned == 0 || self.is_enough(node, sc) || short && !sc.is_group() {
                break;
            }
            left = left.saturating_sub(scanned);
            self.core.machine.resched();
        }
        aged
    }

    /// Whether nothing of a vector can be evicted, or soon nothing could be; the latter not at the first priority,
    /// because other vectors may have enough.
    fn is_short(self, node: NodeId, group: GroupId, can_swap: bool, sc: &ScanControl) -> bool {
        let generations = &self.core.lru.vec(node, group).generations;
        is_exhausted(generations, can_swap)
            || sc.priority < DEF_PRIORITY && should_age(generations, can_swap, true).0
    }

    /// Age a vector that is short of cold folios. Returns whether it was aged.
    fn age_short(self, node: NodeId, group: GroupId, can_swap: bool, sc: &mut ScanControl) -> bool {
        let generations = &self.core.lru.vec(node, group).generations;
        let (seq, exhausted) = (generations.max_seq(), is_exhausted(generations, can_swap));
        self.age_in_pass((node, group), seq, can_swap, sc)
            || exhausted && !sc.kswapd && self.await_generation(node, group, seq)
    }

    /// Pages to scan of a vector. `None`: the vector is protected, or was short of cold folios and was aged.
    pub(super) fn share(
        self,
        node: NodeId,
        group: GroupId,
        can_swap: bool,
        sc: &mut ScanControl,
    ) -> Option<u64> {
        if self.core.lru.groups.below_min(sc.top(), group) {
            return None;
        }
        let generations = &self.core.lru.vec(node, group).generations;
        let seq = generations.max_seq();
        let (short, total) = should_age(generations, can_swap, is_reworked(&self.core.knobs));
        // At the first priority other vectors may have enough.
        if !short || sc.priority == DEF_PRIORITY {
            return Some(total >> sc.priority);
        }
        let aged = self.age_in_pass((node, group), seq, can_swap, sc)
            || !sc.kswapd && sc.priority < DEF_PRIORITY - 1 && self.await_generation(node, group, seq);
        if aged { None } else { Some(0) }
    }

    fn age_in_pass(
        self,
        (node, group): (NodeId, GroupId),
        seq: u64,
        can_swap: bool,
        sc: &mut ScanControl,
    ) -> bool {
        sc.mm_walk |= self.walks_tables() && self.state.aging(node, group).is_due(seq);
        self.age(node, group, seq, can_swap, false)
    }

    /// Whether reclaim of a node has reached its aim.
    fn is_enough(self, node: NodeId, sc: &ScanControl) -> bool {
        // A group's own reclaim takes the share of every group.
        if sc.is_group() {
            return false;
        }
        if sc.nr_reclaimed >= sc.nr_to_reclaim.max(compact_gap(sc.order)) {
            return true;
        }
        if !sc.kswapd || sc.order > Order::ZERO {
            return false;
        }
        let mark = kswapd_mark(&self.core.knobs);
        self.core
            .alloc
            .zones_of(node, sc.reclaim_idx)
            .all(|zone| zone.watermark_ok_above(BATCH, mark, sc.reclaim_idx, Reserve::None))
    }

    /// Evict from the oldest generation of a vector, at most `budget` folios. Returns the progress: 0 if there was
    /// none.
    pub(super) fn evict_some(
        self,
        node: NodeId,
        group: GroupId,
        swappiness: u64,
        sc: &mut ScanControl,
        budget: Option<u64>,
    ) -> u64 {
        let core = self.core;
        let wanted = Wanted { highest: sc.reclaim_idx, swappiness, budget };
        let mut got = core.lru.isolate_oldest(core, node, group, wanted);
        self.count_isolated((sc, group), &got);
        sc.dirty_counts.file_taken += got.dirty;
        sc.dirty_counts.unqueued_dirty += got.unqueued_dirty;
        if got.taken == 0 {
            return got.progress;
        }
        let mut folios = core::mem::take(&mut got.folios);
        for again in [false, true] {
            let shrunk = self.shrink_folio_list(node, &mut folios, sc, ReferenceRule::Chances);
            self.note_shrunk((node, group), sc, &got, &shrunk, again);
            let mut clean = self.mark_kept((node, group), &mut folios, again);
            self.put_back(&mut folios);
            if clean.is_empty() {
                break;
            }
            folios = core::mem::take(&mut clean);
        }
        got.progress
    }

    fn count_isolated(self, (sc, group): (&ScanControl, GroupId), got: &Evictable) {
        self.count_scan((sc, group), got.file, got.taken);
        self.core.lru.groups.count(group, GroupStat::Pgrefill, got.sorted);
        if !sc.is_group() {
            self.core.count(Stat::Pgrefill, got.sorted as i64);
        }
    }

    fn note_shrunk(
        self,
        (node, group): (NodeId, GroupId),
        sc: &mut ScanControl,
        got: &Evictable,
        shrunk: &Shrunk,
        again: bool,
    ) {
        if has_budget(&self.core.knobs) && !again {
            self.note_found(sc, shrunk, got.taken, got.file);
        } else {
            sc.dirty_counts.file_taken += if got.file && !again { got.taken } else { 0 };
            sc.dirty_counts.unqueued_dirty += shrunk.dirty_counts.unqueued_dirty;
        }
        sc.nr_reclaimed += shrunk.reclaimed;
        self.count_steal((sc, group), got.file, shrunk.reclaimed);
        let args = [node.0 as u64, got.progress, shrunk.reclaimed, sc.priority as u64];
        self.core.event(Event::MmVmscanLruShrinkInactive, args);
    }

    /// Mark isolated folios that reclaim did not free for the youngest generation, unless a write decides where they
    /// go. Returns the folios that have no reason to stay (their write may have ended just now), unless this is the
    /// second try (`again`).
    fn mark_kept(self, (node, group): (NodeId, GroupId), folios: &mut List, again: bool) -> List {
        let (frames, reworked) = (&self.core.frames, is_reworked(&self.core.knobs));
        let generations = &self.core.lru.vec(node, group).generations;
        let (mut stays, mut clean) = (List::new(), List::new());
        while let Some(pfn) = folios.pop_tail(frames) {
            let frame = &frames[pfn];
            if !again && is_free_to_go(frame, reworked) {
                clean.push_head(frames, pfn);
                continue;
            }
            if reworked && evictable(frame) {
                let min = generations.min_seq(!frame.has(FrameFlags::SWAPBACKED));
                let window = [min, generations.max_seq()];
                frame.update(|flags| kept(window, flags, counts_marks(&self.core.knobs)));
            } else {
                mark(frame)
            }
            stays.push_head(frames, pfn);
        }
        *folios = stays;
        clean
    }
}

/// Whether the folio has no reason to stay.
fn is_free_to_go(frame: &Frame, reworked: bool) -> bool {
    let mut kept = FrameFlags::ACTIVE | FrameFlags::DIRTY | FrameFlags::WRITEBACK;
    if !reworked {
        kept |= FrameFlags::REFERENCED | FrameFlags::LOCKED;
    }
    evictable(frame) && !frame.has_any(kept) && frame.mapcount() == 0
}

fn is_exhausted(generations: &Generations, can_swap: bool) -> bool {
    generations.oldest_seq(can_swap) + MIN_GENERATIONS > generations.max_seq()
}

fn mark(frame: &Frame) {
    if !evictable(frame) {
        return;
    }
    frame.update(|flags| {
        let written = flags.intersects(FrameFlags::DIRTY | FrameFlags::WRITEBACK);
        if flags.contains(FrameFlags::RECLAIM) && written {
            // It goes to the second youngest generation, and back to the oldest when its write ends. Its uses still
            // count then.
            let used = flags.contains(FrameFlags::WORKINGSET);
            return used.then_some(flags | FrameFlags::REFERENCED);
        }
        Some((flags - USED) | FrameFlags::ACTIVE)
    });
}

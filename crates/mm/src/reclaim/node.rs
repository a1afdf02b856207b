//! One pass over a node: its groups one after the other, then the conclusions about the disks.

use super::{DEF_PRIORITY, DirtyCounts, Reclaim, ScanControl, Throttle};
use crate::alloc::{COSTLY_ORDER, Reserve, Watermark, Zone, compact_gap};
use crate::lru::LruList;
use crate::machine::{Machine, Scope};
use crate::primitive::Ordering::Relaxed;
use crate::stat::GroupStat;
use crate::units::*;

impl<M: Machine> Reclaim<'_, M> {
    /// Reclaim from a node, or from the memory of a group and the groups below on this node, at the priority of `sc`.
    pub(super) fn shrink_node(self, node: NodeId, sc: &mut ScanControl) {
        let _scope = self.core.scope(Scope::ShrinkNode);
        if self.front(sc.top()).shrink_node(self, node, sc) {
            return;
        }
        let mut reclaimable = false;
        loop {
            sc.dirty_counts = DirtyCounts::default();
            let before = sc.nr_reclaimed;
            self.front(sc.top()).prepare(self, node, sc);
            self.shrink_groups(node, sc);
            sc.nr_reclaimed += self.split_deferred(node, sc);
            let reclaimed = sc.nr_reclaimed - before;
            reclaimable |= reclaimed > 0;
            self.respond_to_dirty(node, reclaimed, sc);
            if !self.should_continue(node, reclaimed, sc) {
                break;
            }
        }
        if reclaimable {
            self.made_progress(node);
        } else if sc.cache_trim_mode {
            sc.cache_trim_mode_failed = true;
        }
    }

    fn shrink_groups(self, node: NodeId, sc: &mut ScanControl) {
        let (lru, groups, top) = (&self.core.lru, &self.core.lru.groups, sc.top());
        // kswapd needs steady progress; others may stop early and leave the next groups to the next reclaimer.
        let partial = !sc.kswapd && !sc.memcg_full_walk;
        let mut cycle = None;
        let mut at = if partial { lru.next_shared(top, node, &mut cycle) } else { groups.next(top, None) };
        while let Some(group) = at {
            self.core.machine.resched();
            groups.calculate_protection(top, group);
            if !groups.below_min(top, group) {
                let is_low = groups.below_low(top, group);
                if is_low && !sc.memcg_low_reclaim {
                    sc.memcg_low_skipped = true;
                } else {
                    if is_low {
                        groups.count(group, GroupStat::Low, 1);
                    }
                    self.shrink_vec(node, group, sc);
                    self.shrink_slab(node, group, sc);
                    if partial && sc.nr_reclaimed >= sc.nr_to_reclaim {
                        return;
                    }
                }
            }
            at = if partial { lru.next_shared(top, node, &mut cycle) } else { groups.next(top, Some(group)) };
        }
    }

    /// Note what the pass, which reclaimed `reclaimed` pages, found about the disks, and wait for them if necessary.
    pub(super) fn respond_to_dirty(self, node: NodeId, reclaimed: u64, sc: &ScanControl) {
        if sc.kswapd {
            self.update_node_writeback(node, &sc.dirty_counts);
        }
        self.consider_congestion(node, sc);
        if !sc.kswapd && reclaimed == 0 && sc.dirty_counts.waits_for_devices() {
            self.throttle(node, Throttle::Writeback);
        }
    }

    /// kswapd: note what the pass found about writes.
    fn update_node_writeback(self, node: NodeId, dirty_counts: &DirtyCounts) {
        let state = self.node(node);
        if dirty_counts.writeback > 0 && dirty_counts.writeback == dirty_counts.taken {
            state.writeback.store(true, Relaxed);
        }
        if dirty_counts.unqueued_dirty == dirty_counts.file_taken {
            state.dirty.store(true, Relaxed);
        }
        if dirty_counts.immediate > 0 {
            self.throttle(node, Throttle::Writeback);
        }
    }

    /// If every dirty page is under write-back already, direct reclaimers wait a little for the disks.
    fn consider_congestion(self, node: NodeId, sc: &ScanControl) {
        let vec = self.core.lru.vec(node, sc.top());
        if sc.dirty_counts.dirty > 0
            && sc.dirty_counts.dirty == sc.dirty_counts.congested
            && (sc.is_group() || sc.kswapd)
        {
            vec.set_congested(true);
        }
        if !sc.kswapd && vec.congested() {
            self.throttle(node, Throttle::Congested);
        }
    }

    /// The node is balanced: forget the notes about the disks.
    pub(super) fn clear_congested(self, node: NodeId) {
        let state = self.node(node);
        state.dirty.store(false, Relaxed);
        state.writeback.store(false, Relaxed);
        self.core.lru.node_vec(node).set_congested(false);
    }

    /// For a large block: whether to continue until there is room to make one, or nothing is left to reclaim.
    fn should_continue(self, node: NodeId, reclaimed: u64, sc: &ScanControl) -> bool {
        let large = sc.order > COSTLY_ORDER || (sc.order.0 > 0 && sc.priority < DEF_PRIORITY - 2);
        if !large || reclaimed == 0 {
            return false;
        }
        let mut zones = self.core.alloc.zones_of(node, sc.reclaim_idx);
        let there = |zone: &Zone| zone.watermark_ok(sc.order, Watermark::Min, sc.reclaim_idx, Reserve::None);
        if zones.any(|zone| there(zone) || self.suits_compaction(zone, sc)) {
            return false;
        }
        let vec = self.core.lru.node_vec(node);
        let mut inactive = vec.pages(LruList::InactiveFile);
        if self.can_swap(node, sc.top()) {
            inactive += vec.pages(LruList::InactiveAnon);
        }
        inactive > compact_gap(sc.order)
    }
}

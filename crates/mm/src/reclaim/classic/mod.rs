//! The classic front end: active and inactive lists, balanced by what reclaiming each type has cost.
//!
//! New folios start on the inactive list and are activated if they are used again before they reach its tail. The
//! active list feeds the inactive one when that gets short. [`balance`](super::balance) decides how much of each list
//! is scanned.

mod active;
pub(super) mod inactive;

use super::balance::{Situation, Targets, inactive_is_low, scan_target, unprotected};
use super::{DEF_PRIORITY, Front, Reclaim, SWAP_CLUSTER_MAX, ScanControl};
use crate::alloc::Watermark;
use crate::lru::{Known, LruList, PolicyKind, ROOT};
use crate::machine::{Machine, ZoneKind};
use crate::units::*;

pub(super) struct ClassicFront;

fn known<M: Machine>(cx: Reclaim<'_, M>, node: NodeId, group: GroupId) -> Known {
    cx.core.lru.known(cx.core, node, group)
}

fn is_low(known: &Known, file: bool) -> bool {
    inactive_is_low(known.pages(LruList::new(file, false)), known.pages(LruList::new(file, true)))
}

impl<M: Machine> Front<M> for ClassicFront {
    fn prepare(&self, cx: Reclaim<'_, M>, node: NodeId, sc: &mut ScanControl) {
        let vec = cx.core.lru.vec(node, sc.top());
        let known = known(cx, node, sc.top());
        sc.cost = vec.cost();
        for file in [false, true] {
            // Refaults led to activation: a new working set is being established, and active folios may be stale.
            sc.may_deactivate[file as usize] =
                sc.force_deactivate || vec.refaulted_since(&known, file) || is_low(&known, file);
        }
        let [anon_ages, file_ages] = sc.may_deactivate;
        let inactive_file = known.pages(LruList::InactiveFile);
        sc.cache_trim_mode = inactive_file >> sc.priority != 0 && !file_ages && !sc.no_cache_trim_mode;
        if !sc.is_group() {
            sc.file_is_tiny = file_is_tiny(cx, node, anon_ages, sc.priority);
        }
    }

    fn shrink_vec(&self, cx: Reclaim<'_, M>, node: NodeId, group: GroupId, sc: &mut ScanControl) {
        let mut targets = scan_targets(cx, node, group, sc);
        let mut reclaimed = 0;
        // A direct reclaim at the first priority is no emergency: kswapd is late, so it scans its whole share at once.
        let whole = !sc.is_group() && !sc.kswapd && sc.priority == DEF_PRIORITY;
        while !targets.is_done() {
            for list in LruList::EVICTABLE {
                let pages = targets.take(list);
                if pages > 0 {
                    reclaimed += cx.shrink_list(node, group, list, pages, sc);
                }
            }
            cx.core.machine.resched();
            if reclaimed >= sc.nr_to_reclaim && !whole && !targets.wind_down() {
                break;
            }
        }
        sc.nr_reclaimed += reclaimed;
        // Even if no anonymous page is reclaimed now: keep the lists balanced for later.
        if cx.can_age_anon(node) && is_low(&known(cx, node, group), false) {
            cx.shrink_active(node, group, LruList::ActiveAnon, SWAP_CLUSTER_MAX, sc);
        }
    }

    fn age_node(&self, cx: Reclaim<'_, M>, node: NodeId, sc: &mut ScanControl) {
        if !cx.can_age_anon(node) || !is_low(&known(cx, node, ROOT), false) {
            return;
        }
        let has_lists = |&group: &GroupId| cx.core.lru.policy_in(group) == PolicyKind::Classic;
        for group in cx.core.lru.groups.subtree(ROOT).filter(has_lists) {
            cx.shrink_active(node, group, LruList::ActiveAnon, SWAP_CLUSTER_MAX, sc);
        }
    }

    fn finish(&self, cx: Reclaim<'_, M>, node: NodeId, top: GroupId) {
        cx.core.lru.vec(node, top).snapshot_refaults(&known(cx, node, top));
    }
}

impl<M: Machine> Reclaim<'_, M> {
    fn shrink_list(
        self,
        node: NodeId,
        group: GroupId,
        list: LruList,
        pages: u64,
        sc: &mut ScanControl,
    ) -> u64 {
        if !list.is_active() {
            return self.shrink_inactive(node, group, list, pages, sc);
        }
        if sc.may_deactivate[list.is_file() as usize] {
            self.shrink_active(node, group, list, pages, sc);
        } else {
            sc.skipped_deactivate = true;
        }
        0
    }
}

/// Whether the node's file pages and free memory together are below the high marks, while anonymous memory has cold
/// pages. Then scanning more file pages would only make the few left thrash.
fn file_is_tiny<M: Machine>(cx: Reclaim<'_, M>, node: NodeId, anon_ages: bool, priority: u32) -> bool {
    let vec = cx.core.lru.node_vec(node);
    let (mut free, mut high) = (0, 0);
    for zone in cx.core.alloc.zones_of(node, ZoneKind::Movable) {
        free += zone.free_pages();
        high += zone.mark(Watermark::High);
    }
    let file = vec.pages(LruList::ActiveFile) + vec.pages(LruList::InactiveFile);
    file + free <= high && !anon_ages && vec.pages(LruList::InactiveAnon) >> priority != 0
}

fn scan_targets<M: Machine>(
    cx: Reclaim<'_, M>,
    node: NodeId,
    group: GroupId,
    sc: &mut ScanControl,
) -> Targets {
    let (lru, groups) = (&cx.core.lru, &cx.core.lru.groups);
    let situation = Situation {
        can_swap: sc.may_swap && cx.can_swap(node, group),
        is_group: sc.is_group(),
        swappiness: cx.wanted_swappiness(group, sc),
        priority: sc.priority,
        file_is_tiny: sc.file_is_tiny,
        cache_trim_mode: sc.cache_trim_mode,
        cost: sc.cost,
    };
    let balance = situation.balance();
    let protection = groups.protection(sc.top(), group);
    let usage = groups.usage(group);
    Targets::new(LruList::EVICTABLE.map(|list| {
        let size = lru.vec(node, group).own_pages(list, sc.reclaim_idx);
        let (open, skipped) = unprotected(size, usage, protection, sc.memcg_low_reclaim);
        sc.memcg_low_skipped |= skipped;
        scan_target(balance, list, open, sc.priority)
    }))
}

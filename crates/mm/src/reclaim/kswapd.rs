//! kswapd: one daemon for each node. Woken at the low mark, it reclaims until a zone is above its high mark, naps for a
//! tenth of a second, and sleeps if the node is still balanced.
//!
//! A wake-up leaves a request: the largest order and the highest kind of zone that were wanted. kswapd takes it before
//! it works. Requests that come meanwhile do not make it work again; it does if the marks are not met.

use super::*;
use crate::alloc::{KswapdRequest, Watermark, compact_gap};
use crate::event::Event;
use crate::lru::ROOT;
use crate::machine::{Machine, Scope, Stall, WaitKey};
use crate::mm_core::MmCore;
use std_alloc::vec::Vec;

/// Length of the nap.
const NAP: Nanos = 100_000_000;

/// Run the daemon of a node until the machine stops.
pub fn kswapd<M: Machine>(core: &MmCore<M>, state: &ReclaimState, spaces: &dyn AddressSpaces, node: NodeId) {
    let cx = Reclaim { core, state, spaces };
    let mut wanted = KswapdRequest { order: Order::ZERO, highest: ZoneKind::Movable };
    let mut asked = Order::ZERO;
    while !core.machine.stopping() {
        cx.try_to_sleep(node, wanted, asked);
        if core.machine.stopping() {
            return;
        }
        let again = KswapdRequest { order: Order::ZERO, ..wanted };
        wanted = core.alloc.take_kswapd_request(node).unwrap_or(again);
        asked = wanted.order;
        let reached = cx.balance(node, wanted);
        if reached < wanted.order {
            // A block of that order could not be made: a smaller order is enough before sleeping.
            wanted.order = reached;
        } else if let Some(newer) = core.alloc.kswapd_request(node) {
            wanted = newer;
        }
    }
}

impl<M: Machine> Reclaim<'_, M> {
    /// Sleep if the node is balanced for the request: first a nap, then until the next wake-up. A block of the order
    /// that was `asked` for is left to kcompactd.
    pub(super) fn try_to_sleep(self, node: NodeId, wanted: KswapdRequest, asked: Order) {
        let (core, machine) = (self.core, &self.core.machine);
        let prepare = || {
            core.alloc.set_kswapd_waits(node, true);
            machine.ticket(WaitKey::Kswapd(node))
        };
        let mut ticket = prepare();
        let mut woken_early = false;
        if self.may_sleep(node, wanted) {
            for zone in core.alloc.zones_of(node, ZoneKind::Movable) {
                zone.compaction.forget_if_wanted(&core.frames);
            }
            core.alloc.wake_kcompactd(core, node, KswapdRequest { order: asked, ..wanted });
            woken_early = machine.stopping() || machine.wait(ticket, Some(machine.now() + NAP));
            ticket = prepare();
        }
        if !woken_early && self.may_sleep(node, wanted) {
            if !machine.stopping() {
                core.event(Event::MmVmscanKswapdSleep, [node.0 as u64, 0, 0, 0]);
                machine.wait(ticket, None);
            }
        } else if woken_early {
            core.count(Stat::KswapdLowWmarkHitQuickly, 1);
        } else {
            core.count(Stat::KswapdHighWmarkHitQuickly, 1);
        }
        core.alloc.set_kswapd_waits(node, false);
    }

    /// Whether kswapd may sleep. Wakes the direct reclaimers that wait for it first.
    pub(super) fn may_sleep(self, node: NodeId, wanted: KswapdRequest) -> bool {
        self.unthrottle(node, Throttle::Pfmemalloc);
        if self.state.is_hopeless(node) {
            return true;
        }
        let balanced = self.core.alloc.balanced(&self.core.knobs, node, wanted.order, wanted.highest);
        if balanced {
            self.clear_congested(node);
        }
        balanced
    }

    /// Reclaim until the node is balanced. Returns the order for which it is balanced at the end.
    pub(super) fn balance(self, node: NodeId, wanted: KswapdRequest) -> Order {
        let _scope = self.core.scope(Scope::BalancePgdat);
        let _stall = self.core.stall(Stall::Memory);
        let core = self.core;
        core.event(Event::MmVmscanKswapdWake, [node.0 as u64, wanted.order.0 as u64, 0, 0]);
        core.count(Stat::Pageoutrun, 1);
        let mut sc = ScanControl::new(0, wanted.order, wanted.highest);
        sc.kswapd = true;
        // The boost stays until the end, so that allocations near the mark wait until kswapd has finished.
        let boosts: Vec<(ZoneId, u64)> = core
            .alloc
            .zones_of(node, wanted.highest)
            .filter(|zone| zone.boost() > 0)
            .map(|zone| (zone.id(), zone.boost()))
            .collect();
        let boost: u64 = boosts.iter().map(|(_, pages)| pages).sum();
        core.alloc.set_reclaim_active(node, wanted.highest, true);
        if !self.balance_passes(node, &mut sc, boost) && sc.nr_reclaimed == 0 {
            let failures = self.node(node).failures.fetch_add(1, Relaxed) + 1;
            core.alloc.set_hopeless(node, failures >= MAX_RECLAIM_RETRIES);
        }
        core.alloc.set_reclaim_active(node, wanted.highest, false);
        for &(zone, pages) in &boosts {
            core.alloc.subtract_boost(zone, pages);
        }
        if !boosts.is_empty() && core.knobs.wants_blocks() {
            // Mobility groups were mixed: now there is probably enough free memory to compact whole page blocks.
            let whole = KswapdRequest { order: PAGEBLOCK_ORDER, ..wanted };
            core.alloc.wake_kcompactd(core, node, whole);
        }
        self.front(ROOT).finish(self, node, ROOT);
        sc.order
    }

    /// Make passes with rising priority. Returns whether the node is balanced at the end. `boost`: pages that the
    /// raised marks ask for in addition; while only these are missing, nothing is written or swapped.
    fn balance_passes(self, node: NodeId, sc: &mut ScanControl, mut boost: u64) -> bool {
        let core = self.core;
        'restart: loop {
            sc.priority = DEF_PRIORITY;
            while sc.priority >= 1 {
                let before = sc.nr_reclaimed;
                let balanced = core.alloc.balanced(&core.knobs, node, sc.order, sc.reclaim_idx);
                if !balanced && boost > 0 {
                    boost = 0;
                    continue 'restart;
                }
                if balanced && boost == 0 {
                    return true;
                }
                let mut raise = boost == 0 || sc.priority != DEF_PRIORITY - 2;
                sc.may_writepage = boost == 0 || sc.priority < DEF_PRIORITY - 2;
                sc.may_swap = boost == 0;
                self.front(ROOT).age_node(self, node, sc);
                sc.nr_scanned = 0;
                if self.kswapd_shrink_node(node, sc) {
                    raise = false;
                }
                if self.allow_direct(node) {
                    self.unthrottle(node, Throttle::Pfmemalloc);
                }
                core.machine.resched();
                if core.machine.stopping() {
                    break;
                }
                let reclaimed = sc.nr_reclaimed - before;
                boost = boost.saturating_sub(reclaimed);
                if boost > 0 && reclaimed == 0 {
                    break;
                }
                if raise || reclaimed == 0 {
                    sc.priority -= 1;
                }
            }
            let in_vain = sc.nr_reclaimed == 0 && sc.priority < 1;
            if in_vain && !sc.no_cache_trim_mode && sc.cache_trim_mode_failed {
                sc.no_cache_trim_mode = true;
                continue 'restart;
            }
            return false;
        }
    }

    /// Make one pass. Returns whether enough was scanned, so that a higher priority is not needed.
    fn kswapd_shrink_node(self, node: NodeId, sc: &mut ScanControl) -> bool {
        let before = sc.nr_reclaimed;
        let zones = self.core.alloc.zones_of(node, sc.reclaim_idx);
        sc.nr_to_reclaim = zones.map(|zone| zone.mark(Watermark::High).max(SWAP_CLUSTER_MAX)).sum();
        self.shrink_node(node, sc);
        if sc.order > Order::ZERO && sc.nr_reclaimed >= compact_gap(sc.order) {
            // Enough memory for a block of that order, if it were contiguous.
            sc.order = Order::ZERO;
        }
        sc.nr_scanned.max(sc.nr_reclaimed - before) >= sc.nr_to_reclaim
    }
}

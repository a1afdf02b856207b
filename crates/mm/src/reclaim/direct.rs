//! Reclaim by the task that needs the memory: for allocations, groups at their limit, and programs that give pages up.

use super::pass::ReferenceRule;
use super::throttle::{STUCK, wait_for_writes};
use super::*;
use crate::alloc::{COSTLY_ORDER, NeedsReclaim, Reserve, Watermark, Zone, compact_gap};
use crate::event::Event;
use crate::frame::{FrameFlags, List};
use crate::knobs::Knob;
use crate::machine::{Machine, Scope, Stall};
use crate::mm_core::MmCore;
use smallvec::SmallVec;

/// Reclaim for an allocation that found no memory above the min mark. Returns the pages reclaimed, also more than 0 if
/// a large block has become free.
pub fn direct<M: Machine>(
    core: &MmCore<M>,
    state: &ReclaimState,
    spaces: &dyn AddressSpaces,
    needs: &NeedsReclaim,
) -> u64 {
    let _scope = core.scope(Scope::TryToFreePages);
    let _stall = core.stall(Stall::Memory);
    let cx = Reclaim { core, state, spaces };
    let zones: SmallVec<[ZoneId; 16]> = usable_zones(core, needs).map(Zone::id).collect();
    cx.throttle_direct(&zones);
    core.event(Event::MmVmscanDirectReclaimBegin, [needs.order.0 as u64, 0, 0, 0]);
    let mut sc = ScanControl::new(SWAP_CLUSTER_MAX, needs.order, needs.highest);
    let reclaimed = cx.try_to_free(&zones, &mut sc);
    core.event(Event::MmVmscanDirectReclaimEnd, [reclaimed, 0, 0, 0]);
    reclaimed
}

/// The zones that a request could use, in the request's order.
fn usable_zones<'a, M: Machine>(core: &'a MmCore<M>, needs: &NeedsReclaim) -> impl Iterator<Item = &'a Zone> {
    let zones = core.alloc.zonelist(needs.node, needs.highest).iter().map(|&id| core.alloc.zone(id));
    zones.filter(|zone| needs.could_use(zone))
}

/// Reclaim `pages` from a group and the groups below it. Returns the pages reclaimed.
pub fn group<M: Machine>(
    core: &MmCore<M>,
    state: &ReclaimState,
    spaces: &dyn AddressSpaces,
    group: GroupId,
    pages: u64,
) -> u64 {
    let _scope = core.scope(Scope::TryToFreeMemCgroupPages);
    let cx = Reclaim { core, state, spaces };
    core.event(Event::MmVmscanMemcgReclaimBegin, [group.0 as u64, 0, 0, 0]);
    let mut sc = ScanControl::new(pages.max(SWAP_CLUSTER_MAX), Order::ZERO, ZoneKind::Movable);
    sc.target = Some(group);
    let zones = core.alloc.zonelist(core.node(), ZoneKind::Movable);
    let reclaimed = cx.try_to_free(zones, &mut sc);
    core.event(Event::MmVmscanMemcgReclaimEnd, [reclaimed, 0, 0, 0]);
    reclaimed
}

/// Reclaim isolated folios, used or not (MADV_PAGEOUT), and take over the caller's reference to each. Returns the pages
/// reclaimed; the other folios go back to their lists.
pub fn pageout<M: Machine>(
    core: &MmCore<M>,
    state: &ReclaimState,
    spaces: &dyn AddressSpaces,
    pfns: &[Pfn],
) -> u64 {
    let _scope = core.scope(Scope::ReclaimPages);
    let cx = Reclaim { core, state, spaces };
    let mut reclaimed = 0;
    for run in pfns.chunk_by(|a, b| core.frames[*a].node() == core.frames[*b].node()) {
        for batch in run.chunks(SWAP_CLUSTER_MAX as usize) {
            let mut folios = List::new();
            for &pfn in batch {
                core.frames[pfn].clear(FrameFlags::ACTIVE);
                folios.push_head(&core.frames, pfn);
            }
            if cx.too_many_writes() {
                cx.throttle(core.frames[batch[0]].node(), Throttle::Writeback);
            }
            let mut sc = ScanControl::new(0, Order::ZERO, ZoneKind::Movable);
            reclaimed += cx
                .shrink_folio_list(core.frames[batch[0]].node(), &mut folios, &mut sc, ReferenceRule::Nothing)
                .reclaimed;
            cx.put_back(&mut folios);
            core.machine.resched();
        }
    }
    reclaimed
}

impl<M: Machine> Reclaim<'_, M> {
    /// Make passes over the nodes of a zone list with rising priority until enough is reclaimed. If nothing is, try
    /// again: first visit all groups, then deactivate by force if that was skipped, then ignore memory.low.
    fn try_to_free(self, zones: &[ZoneId], sc: &mut ScanControl) -> u64 {
        loop {
            self.rising_priorities(zones, sc);
            if sc.nr_reclaimed > 0 {
                return sc.nr_reclaimed;
            }
            if sc.compaction_ready {
                return 1;
            }
            if !sc.memcg_full_walk {
                sc.memcg_full_walk = true;
            } else if sc.skipped_deactivate {
                sc.force_deactivate = true;
                sc.skipped_deactivate = false;
            } else if sc.memcg_low_skipped {
                sc.force_deactivate = false;
                sc.memcg_low_reclaim = true;
                sc.memcg_low_skipped = false;
            } else {
                return 0;
            }
        }
    }

    fn rising_priorities(self, zones: &[ZoneId], sc: &mut ScanControl) {
        if !sc.is_group() {
            let stalls = [Stat::AllocstallDma32, Stat::AllocstallNormal, Stat::AllocstallMovable];
            self.core.count(stalls[sc.reclaim_idx as usize], 1);
        }
        for priority in (0..=DEF_PRIORITY).rev() {
            sc.priority = priority;
            sc.nr_scanned = 0;
            self.shrink_zones(zones, sc);
            if sc.nr_reclaimed >= sc.nr_to_reclaim || sc.compaction_ready {
                break;
            }
            if priority < DEF_PRIORITY - 2 {
                sc.may_writepage = true;
            }
        }
        self.each_node(zones, |node| {
            self.front(sc.top()).finish(self, node, sc.top());
            if sc.is_group() {
                self.core.lru.vec(node, sc.top()).set_congested(false);
            }
        });
    }

    fn shrink_zones(self, zones: &[ZoneId], sc: &mut ScanControl) {
        let mut first = None;
        let mut last = None;
        for &id in zones {
            let zone = self.core.alloc.zone(id);
            if !sc.is_group() && sc.order > COSTLY_ORDER && self.may_compact(zone, sc) {
                sc.compaction_ready = true;
                continue;
            }
            if last != Some(zone.node()) {
                last = Some(zone.node());
                first = first.or(last);
                self.shrink_node(zone.node(), sc);
            }
        }
        if let Some(node) = first {
            self.consider_throttle(node, sc);
        }
    }

    /// Whether there is a block, or enough free memory to make one and some to spare.
    fn may_compact(self, zone: &Zone, sc: &ScanControl) -> bool {
        zone.watermark_ok(sc.order, Watermark::Min, sc.reclaim_idx, Reserve::None)
            || self.suits_compaction(zone, sc)
                && zone.watermark_ok_above(
                    compact_gap(sc.order),
                    Watermark::High,
                    sc.reclaim_idx,
                    Reserve::None,
                )
    }

    /// Whether compaction could make the block that reclaim is for.
    pub(super) fn suits_compaction(self, zone: &Zone, sc: &ScanControl) -> bool {
        let threshold = self.core.knobs.get(Knob::ExtfragThreshold);
        zone.compaction_suitable(sc.order, sc.reclaim_idx, threshold)
    }

    /// Visit each node of a zone list once: the zones of a node are consecutive.
    fn each_node(self, zones: &[ZoneId], mut visit: impl FnMut(NodeId)) {
        let mut last = None;
        for &zone in zones {
            let node = self.core.alloc.zone(zone).node();
            if last.replace(node) != Some(node) {
                visit(node);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Retries {
    /// Consecutive rounds of reclaim without progress.
    no_progress: u32,
    /// When this many pages have been written, everything that was under write-back at the last counted round has
    /// arrived.
    awaited: i64,
    /// Pages written at the last check, and when the number last changed.
    written: i64,
    since: Nanos,
}

impl Retries {
    /// Note a round without progress. It counts only if everything that was under write-back at the last counted round
    /// has arrived and did not help, or if devices seem to be stuck. Waits for pages under write-back. Returns `false`
    /// when the rounds are used up.
    ///
    /// The next round knows the present sizes of the lists: by old ones, the inactive list may seem long while it is
    /// empty, and then a round deactivates nothing if there are no file pages. (Linux has the same rule, but its
    /// programs are files.)
    fn failed<M: Machine>(&mut self, core: &MmCore<M>) -> bool {
        let (written, under_way) =
            (core.stats.read(Stat::NrWritten), core.stats.read(Stat::NrWriteback).max(0));
        let now = core.machine.now();
        if written != self.written {
            (self.written, self.since) = (written, now);
        }
        if under_way == 0 || written >= self.awaited || now.saturating_sub(self.since) >= STUCK {
            self.no_progress += 1;
            (self.awaited, self.since) = (written + under_way, now);
        }
        wait_for_writes(core, SWAP_CLUSTER_MAX);
        core.lru.add_up();
        self.no_progress <= MAX_RECLAIM_RETRIES
    }
}

/// Whether to retry after a direct reclaim that freed `freed` pages: while reclaim makes progress, or while pages under
/// write-back may be free soon; else for 16 rounds, if a zone would be above its min mark with all of its reclaimable
/// pages free. Otherwise memory is out.
pub(crate) fn should_retry<M: Machine>(
    core: &MmCore<M>,
    needs: &NeedsReclaim,
    freed: u64,
    retries: &mut Retries,
) -> bool {
    if freed > 0 && needs.order <= COSTLY_ORDER {
        *retries = Retries::default();
    } else if !retries.failed(core) {
        return false;
    }
    let hope = usable_zones(core, needs).any(|zone| {
        let available = reclaimable(core, zone.node(), zone.kind()) + zone.free_pages();
        let reserve = zone.mark(Watermark::Min) + zone.lowmem_reserve(needs.highest);
        available > reserve + needs.order.frames() as u64 - 1
    });
    core.machine.resched();
    hope
}

/// The same after a reclaim in a group that is at its limit.
pub(crate) fn should_retry_group<M: Machine>(core: &MmCore<M>, freed: u64, retries: &mut Retries) -> bool {
    if freed > 0 {
        *retries = Retries::default();
        return true;
    }
    retries.failed(core)
}

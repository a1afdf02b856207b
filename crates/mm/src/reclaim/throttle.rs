//! Making reclaimers wait: for the disks, for each other, or because there is nothing to reclaim.

use super::control::ScanControl;
use super::{Reclaim, SWAP_CLUSTER_MAX, reclaimable};
use crate::alloc::Watermark;
use crate::event::Event;
use crate::lru::LruList;
use crate::machine::{Machine, Scope, WaitKey, ZoneKind};
use crate::mm_core::MmCore;
use crate::primitive::Ordering::*;
use crate::stat::Stat;
use crate::units::*;

/// Linux's unit for these waits (HZ = 250).
const JIFFY: Nanos = 4_000_000;
const SECOND: Nanos = 1_000_000_000;

/// Devices that have completed no write for this long count as stuck.
pub(super) const STUCK: Nanos = 10 * SECOND;

/// The share of memory that may be under write-back to swap: more of it would be neither usable nor free.
const SWAP_WRITES_SHARE: u64 = 16;
/// The most pages, in addition: 4 MiB, the size of a device's queue.
const SWAP_WRITES_MAX: u64 = 1024;

/// The reason for a reclaimer's wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Throttle {
    /// The pages that reclaim finds are under write-back, or the writes to swap are at their limit.
    Writeback = 0,
    /// Reclaimers have isolated too many pages.
    Isolated = 1,
    /// Nothing was reclaimed, even at a high priority.
    NoProgress = 2,
    /// Every dirty page is under write-back.
    Congested = 3,
    /// Free memory is at half of the reserve: direct reclaimers wait for kswapd.
    Pfmemalloc = 4,
}

impl Throttle {
    /// Number of reasons.
    pub const COUNT: usize = 5;

    /// The longest wait.
    fn timeout(self) -> Nanos {
        match self {
            Throttle::Writeback => SECOND / 10,
            Throttle::Isolated => SECOND / 50,
            Throttle::NoProgress | Throttle::Congested => JIFFY,
            Throttle::Pfmemalloc => SECOND,
        }
    }
}

impl<M: Machine> Reclaim<'_, M> {
    /// Sleep until the reason is gone or its timeout is over.
    pub(super) fn throttle(self, node: NodeId, reason: Throttle) {
        let _scope = self.core.scope(Scope::ReclaimThrottle);
        let (machine, state) = (&self.core.machine, self.node(node));
        let vain = matches!(reason, Throttle::NoProgress | Throttle::Congested);
        if vain && self.need_not_throttle(node) {
            machine.resched();
            return;
        }
        let start = machine.now();
        if reason == Throttle::Writeback {
            let throttled = state.writeback_throttled.fetch_add(1, Relaxed) + 1;
            wait_for_writes(self.core, throttled as u64 * SWAP_CLUSTER_MAX);
            state.writeback_throttled.fetch_sub(1, Relaxed);
        } else {
            let seen = state.wakes[reason as usize].load(Acquire);
            state.waiters[reason as usize].fetch_add(1, AcqRel);
            loop {
                let ticket = machine.ticket(WaitKey::Reclaim(node));
                if state.wakes[reason as usize].load(Acquire) != seen
                    || !machine.wait(ticket, Some(start + reason.timeout()))
                {
                    break;
                }
            }
            state.waiters[reason as usize].fetch_sub(1, AcqRel);
        }
        // The task may have woken on another CPU, whose clock may be behind.
        let args = [node.0 as u64, machine.now().saturating_sub(start), reason as u64, 0];
        self.core.event(Event::MmVmscanThrottled, args);
    }

    /// Whether the writes to swap are at their limit, so that reclaim must wait before it submits more. Linux's
    /// reclaimers wait for room in the device's queue at that point, with isolated pages.
    pub(super) fn too_many_writes(self) -> bool {
        let memory: u64 = self.core.alloc.zones().iter().map(|zone| zone.managed()).sum();
        let most = (memory / SWAP_WRITES_SHARE).clamp(2 * SWAP_CLUSTER_MAX, SWAP_WRITES_MAX);
        u64::from(self.core.swap.under_way()) > most
    }

    /// Wake the tasks that wait for this reason.
    pub(super) fn unthrottle(self, node: NodeId, reason: Throttle) {
        if self.node(node).waiters[reason as usize].load(Acquire) == 0 {
            return;
        }
        self.node(node).wakes[reason as usize].fetch_add(1, AcqRel);
        self.core.machine.wake(WaitKey::Reclaim(node));
    }

    /// Whether a lack of progress is no reason to wait: waiting helps only if writes are the obstacle, and a node that
    /// kswapd has given up is nearly out of memory anyway.
    fn need_not_throttle(self, node: NodeId) -> bool {
        if self.state.is_hopeless(node) {
            return true;
        }
        let kinds = [ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::Movable];
        let open: u64 = kinds.iter().map(|&kind| reclaimable(self.core, node, kind)).sum();
        let pending = self.core.stats.read(Stat::NrDirty) + self.core.stats.read(Stat::NrWriteback);
        2 * pending.max(0) as u64 <= open
    }

    /// Whether reclaimers have isolated more pages of the type than an eighth of the inactive list.
    pub(super) fn too_many_isolated(self, node: NodeId, file: bool, sc: &ScanControl) -> bool {
        if sc.kswapd {
            return false;
        }
        let inactive = self.core.lru.node_vec(node).pages(LruList::new(file, false)) >> 3;
        let isolated = self.node(node).isolated[file as usize].load(Relaxed).max(0) as u64;
        let too_many = isolated > inactive;
        if !too_many {
            self.unthrottle(node, Throttle::Isolated);
        }
        too_many
    }

    /// After a pass: wake the tasks that wait for progress if there was some, else wait.
    pub(super) fn consider_throttle(self, node: NodeId, sc: &ScanControl) {
        if sc.nr_reclaimed > sc.nr_scanned >> 3 {
            self.unthrottle(node, Throttle::NoProgress);
        } else if !sc.kswapd && !sc.is_group() && sc.priority == 1 && sc.nr_reclaimed == 0 {
            self.throttle(node, Throttle::NoProgress);
        }
    }

    /// Before direct reclaim: if free memory is so low that kswapd itself may run out, wait for kswapd.
    pub(super) fn throttle_direct(self, zones: &[ZoneId]) {
        let _scope = self.core.scope(Scope::ReclaimThrottle);
        let zones = zones.iter().map(|&zone| self.core.alloc.zone(zone));
        let Some(zone) = zones.into_iter().find(|zone| zone.kind() <= ZoneKind::Normal) else { return };
        let node = zone.node();
        if self.allow_direct(node) {
            return;
        }
        self.core.count(Stat::PgscanDirectThrottle, 1);
        self.throttle(node, Throttle::Pfmemalloc);
    }

    /// Whether more than half of the reserve is free. If not, wakes kswapd.
    pub(super) fn allow_direct(self, node: NodeId) -> bool {
        if self.state.is_hopeless(node) {
            return true;
        }
        let (mut reserve, mut free) = (0, 0);
        for zone in self.core.alloc.zones_of(node, ZoneKind::Normal) {
            if reclaimable(self.core, node, zone.kind()) > 0 {
                reserve += zone.mark(Watermark::Min);
                free += zone.free_pages();
            }
        }
        let allowed = reserve == 0 || free > reserve / 2;
        if !allowed {
            self.core.alloc.rouse_kswapd(self.core, node);
        }
        allowed
    }
}

/// Sleep until `pages` pages have been written, nothing is to be written any more, or a tenth of a second is over. What
/// reclaim asked the flusher for is to be written although the flusher may not have begun.
pub(super) fn wait_for_writes<M: Machine>(core: &MmCore<M>, pages: u64) {
    let written = || core.stats.read(Stat::NrWritten);
    let pending = || core.stats.read(Stat::NrWriteback) > 0 || core.cache.flusher_is_late();
    let (enough, deadline) = (written() + pages as i64, core.machine.now() + Throttle::Writeback.timeout());
    while written() < enough && pending() && core.machine.now() < deadline {
        core.cache.wait_for_a_write(core, deadline);
    }
}

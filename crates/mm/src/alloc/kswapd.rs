//! When kswapd is woken, and for what.
//!
//! A request that finds too little memory above the low mark records its order and highest zone kind for each node
//! that it could have used, and wakes that node's kswapd if that sleeps or naps. Several requests leave the maximum of
//! both. kswapd takes the record with [`Allocator::take_kswapd_request`] before each round of work. What is recorded
//! while it works does not make it work again: it looks at the marks, and naps if they are met.

use super::zone::{KINDS, RECLAIM_ACTIVE, Zone};
use super::{AllocRequest, Allocator, Reserve, Watermark};
use crate::event::Event;
use crate::knobs::{Knob, Knobs};
use crate::machine::{Machine, WaitKey, Work, ZoneKind};
use crate::mmu::Mmu;
use crate::primitive::{AtomicBool, AtomicU32, Ordering::*};
use crate::units::*;

/// The maximum of the requests that woke kswapd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KswapdRequest {
    pub order: Order,
    pub highest: ZoneKind,
}

impl KswapdRequest {
    /// 0 is no request.
    fn pack(self) -> u32 {
        (self.order.0 as u32) << 8 | (self.highest as u32 + 1)
    }

    fn unpack(raw: u32) -> Option<KswapdRequest> {
        let highest = match raw & 0xff {
            0 => return None,
            1 => ZoneKind::Dma32,
            2 => ZoneKind::Normal,
            _ => ZoneKind::Movable,
        };
        Some(KswapdRequest { order: Order((raw >> 8) as u8), highest })
    }

    fn max(self, other: KswapdRequest) -> KswapdRequest {
        KswapdRequest { order: self.order.max(other.order), highest: self.highest.max(other.highest) }
    }
}

/// The allocator's state of a node.
#[derive(Default)]
pub(super) struct NodeRequests {
    request: AtomicU32,
    /// 1 if kswapd sleeps or naps, or is about to, and nobody has woken it.
    waits: AtomicU32,
    compaction: AtomicU32,
    hopeless: AtomicBool,
}

/// Record a request. Returns whether it asks for more than the recorded one.
fn record(cell: &AtomicU32, request: KswapdRequest) -> bool {
    let mut old = cell.load(Acquire);
    loop {
        let new = KswapdRequest::unpack(old).map_or(request, |known| known.max(request)).pack();
        if new == old {
            return false;
        }
        match cell.compare_exchange(old, new, AcqRel, Acquire) {
            Ok(_) => return true,
            Err(now) => old = now,
        }
    }
}

/// The mark up to which kswapd reclaims: one step higher if it has to make room for promotions.
pub(crate) fn kswapd_mark(knobs: &Knobs) -> Watermark {
    if crate::hot::promotes(knobs) { Watermark::Promo } else { Watermark::High }
}

impl Allocator {
    /// Whether a request that no boost holds back would find memory above the min mark of the zone.
    pub(crate) fn allows_last(&self, zone: ZoneId, order: Order, highest: ZoneKind) -> bool {
        self.zone(zone).allows(order, Watermark::Min, highest, Reserve::Boost)
    }

    /// Whether a zone of the node, up to kind `highest`, has memory above kswapd's mark. (For a block, under
    /// `vm.defrag_mode`: as much in whole page blocks.) Also if there is no such zone.
    pub fn balanced(&self, knobs: &Knobs, node: NodeId, order: Order, highest: ZoneKind) -> bool {
        let mark = kswapd_mark(knobs);
        // kswapd switches to single pages once it has made enough room for a block: kcompactd, which runs after it,
        // forms the block.
        let whole = order > Order::ZERO && knobs.get(Knob::DefragMode) != 0;
        let enough = |zone: &Zone| {
            zone.watermark_ok(order, mark, highest, Reserve::None)
                && (!whole || zone.whole_blocks_ok(order, mark, highest))
        };
        let mut zones = self.zones_of(node, highest).peekable();
        zones.peek().is_none() || zones.any(enough)
    }

    /// Zones of a node up to a kind, ascending.
    pub(crate) fn zones_of(&self, node: NodeId, highest: ZoneKind) -> impl Iterator<Item = &Zone> {
        self.zones.iter().filter(move |zone| zone.node() == node && zone.kind() <= highest)
    }

    pub(crate) fn boosted(&self, node: NodeId, highest: ZoneKind) -> bool {
        self.zones_of(node, highest).any(|zone| zone.boost() != 0)
    }

    /// Lower a zone's boost by the room that kswapd has made, in pages.
    pub(crate) fn subtract_boost(&self, zone: ZoneId, pages: u64) {
        let zone = self.zone(zone);
        let _held = zone.lists.lock();
        zone.set_boost(zone.boost().saturating_sub(pages));
    }

    /// The request that woke kswapd of a node.
    pub(crate) fn kswapd_request(&self, node: NodeId) -> Option<KswapdRequest> {
        KswapdRequest::unpack(self.nodes[node.index()].request.load(Acquire))
    }

    /// The same, and clear it: later requests wake kswapd again.
    pub(crate) fn take_kswapd_request(&self, node: NodeId) -> Option<KswapdRequest> {
        KswapdRequest::unpack(self.nodes[node.index()].request.swap(0, AcqRel))
    }

    /// Record whether kswapd has given up on a node (too many rounds without progress): then it is not woken.
    pub(crate) fn set_hopeless(&self, node: NodeId, hopeless: bool) {
        self.nodes[node.index()].hopeless.store(hopeless, Release);
    }

    /// Record whether kswapd is reclaiming on zones of a node up to a kind: meanwhile CPUs' lists stay short.
    pub(crate) fn set_reclaim_active(&self, node: NodeId, highest: ZoneKind, active: bool) {
        for zone in self.zones_of(node, highest) {
            zone.set_pressure(RECLAIM_ACTIVE, active);
        }
    }

    pub(crate) fn reclaim_active(&self, node: NodeId) -> bool {
        self.zones_of(node, ZoneKind::Movable).any(|zone| zone.pressure() & RECLAIM_ACTIVE != 0)
    }

    /// The request that woke kcompactd of a node.
    pub(crate) fn kcompactd_request(&self, node: NodeId) -> Option<KswapdRequest> {
        KswapdRequest::unpack(self.nodes[node.index()].compaction.load(Acquire))
    }

    /// The same, and clear it.
    pub(crate) fn take_kcompactd_request(&self, node: NodeId) -> Option<KswapdRequest> {
        KswapdRequest::unpack(self.nodes[node.index()].compaction.swap(0, AcqRel))
    }

    /// Wake a node's kcompactd to make blocks of an order, if that is larger than a page and compaction can make one.
    pub(crate) fn wake_kcompactd<M: Machine>(&self, mmu: &Mmu<M>, node: NodeId, wanted: KswapdRequest) {
        let KswapdRequest { order, highest } = wanted;
        let suits = |zone: &Zone| zone.suits_kcompactd(&mmu.knobs, order, highest);
        if order == Order::ZERO
            || !self.zones_of(node, highest).any(suits)
            || !record(&self.nodes[node.index()].compaction, wanted)
        {
            return;
        }
        mmu.event(Event::MmCompactionWakeupKcompactd, [node.0 as u64, order.0 as u64, highest as u64, 0]);
        mmu.charge(Work::DaemonWake, 1);
        mmu.machine.wake(WaitKey::Kcompactd(node));
    }

    /// A caller that does not reclaim would like a block: wake the kswapds of the nodes that could provide it, or
    /// kcompactd where kswapd has nothing to do.
    pub(crate) fn wake_for_block<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        node: NodeId,
        order: Order,
        highest: ZoneKind,
    ) {
        let wanted = KswapdRequest { order, highest };
        let mut last = None;
        for &id in self.zonelist(node, highest) {
            let node = self.zone(id).node();
            if last.replace(node) == Some(node) {
                continue;
            }
            if self.rests(&mmu.knobs, node, wanted) {
                self.wake_kcompactd(mmu, node, wanted);
            } else {
                self.wake_kswapd(mmu, self.zone(id), order, highest);
            }
        }
    }

    /// Wake the kswapd of each node that a request could have used.
    pub(super) fn wake_kswapds<M: Machine>(&self, mmu: &Mmu<M>, request: &AllocRequest) {
        let mut last = None;
        // If mobility groups are kept apart, any request may come to need a whole page block.
        let whole = mmu.knobs.get(Knob::DefragMode) != 0;
        let order = if whole { request.order.max(PAGEBLOCK_ORDER) } else { request.order };
        for &id in self.zonelist(request.node, request.highest) {
            let zone = self.zone(id);
            let among = request.among.contains(zone.node());
            let wanted = among && (!request.this_node_only || zone.node() == request.node);
            // The zones of a node are consecutive.
            if wanted && last != Some(zone.node()) {
                last = Some(zone.node());
                self.wake_kswapd(mmu, zone, order, request.highest);
            }
        }
    }

    /// Wake the kswapd of a node that is about to receive a folio of `order`.
    pub(crate) fn wake_kswapd_of<M: Machine>(&self, mmu: &Mmu<M>, node: NodeId, order: Order) {
        if let Some(zone) = self.zones_of(node, ZoneKind::Movable).last() {
            self.wake_kswapd(mmu, zone, order, ZoneKind::Movable);
        }
    }

    /// Whether kswapd of a node has given up, or nothing to do.
    fn rests(&self, knobs: &Knobs, node: NodeId, wanted: KswapdRequest) -> bool {
        let KswapdRequest { order, highest } = wanted;
        self.nodes[node.index()].hopeless.load(Acquire)
            || (self.balanced(knobs, node, order, highest) && !self.boosted(node, highest))
    }

    /// Record a request for a node's kswapd, and wake it if it waits, unless it has given up or there is nothing to do.
    pub(super) fn wake_kswapd<M: Machine>(&self, mmu: &Mmu<M>, zone: &Zone, order: Order, highest: ZoneKind) {
        let (node, wanted) = (zone.node(), KswapdRequest { order, highest });
        record(&self.nodes[node.index()].request, wanted);
        if self.kswapd_waits(node) && !self.rests(&mmu.knobs, node, wanted) && self.rouse_kswapd(mmu, node) {
            mmu.event(Event::MmVmscanWakeupKswapd, [node.0 as u64, zone.id().0 as u64, order.0 as u64, 0]);
        }
    }

    /// Wake a node's kswapd. Returns `false` if it does not wait.
    pub(crate) fn rouse_kswapd<M: Machine>(&self, mmu: &Mmu<M>, node: NodeId) -> bool {
        let waits = self.nodes[node.index()].waits.swap(0, AcqRel) != 0;
        if waits {
            mmu.charge(Work::DaemonWake, 1);
            mmu.machine.wake(WaitKey::Kswapd(node));
        }
        waits
    }

    fn kswapd_waits(&self, node: NodeId) -> bool {
        // A change that changes nothing: it is before kswapd's or after it, and a load could be neither.
        self.nodes[node.index()].waits.fetch_or(0, AcqRel) != 0
    }

    /// Record whether kswapd of a node is about to wait. It must draw its ticket afterwards, and then look at the
    /// marks: a task that lowers free memory and then asks whether kswapd waits is seen by that look, or wakes it.
    pub(crate) fn set_kswapd_waits(&self, node: NodeId, waits: bool) {
        self.nodes[node.index()].waits.swap(u32::from(waits), AcqRel);
    }
}

const _: () = assert!(KINDS < 0xff);

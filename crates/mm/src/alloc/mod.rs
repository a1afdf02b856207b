//! The page allocator: zones and nodes, watermarks, buddy lists with mobility groups, lists of each CPU.
//!
//! A request has an order, a mobility, a preferred node and the highest kind of zone that it can use. It goes through
//! the zones in its order of preference and takes from the first whose free memory is above the mark: for common
//! orders from the CPU's own lists (`pcp`), otherwise from the zone's buddy lists (`buddy`). `zonelist` has the order
//! of the zones, and [`watermark`] decides when memory is short.
//!
//! The allocator never reclaims and never waits. At the low mark it wakes the kswapds of the nodes that it would have
//! used and returns [`NeedsReclaim`]. The slow path, which is above reclaim, retries with the min mark, reclaims, and
//! decides when memory is exhausted.
//!
//! Locks: a CPU's lists, then a zone; both are last in the order of [`lock`](crate::lock). A hot order-0 take or free
//! touches only the CPU's lists and a few counters that are read without a lock.
//!
//! A folio is returned as [`Fresh`], which nothing else can make: so a page that leaves the allocator has no other
//! user. [`tlb::UnmapBatch`](crate::tlb::UnmapBatch) tags the records of frames whose flush is deferred. The tags
//! stay while the frames pass through here, and are paid for before a frame is handed out (`owing`).

mod buddy;
mod compaction;
mod dense;
mod exact;
mod fragmentation;
mod held;
mod kswapd;
mod owing;
mod pcp;
mod setup;
mod split;
#[cfg(test)]
mod tests;
mod validate;
pub mod watermark;
mod zone;
mod zonelist;

pub use compaction::ZoneCompaction;
pub use fragmentation::FreeBlocks;
pub(crate) use fragmentation::{COSTLY_ORDER, compact_gap};
pub(crate) use held::{CLUSTER, SearchOutcome};
pub use held::{HeldBlocks, Search};
pub(crate) use kswapd::{KswapdRequest, kswapd_mark};
pub use owing::Fresh;
pub use setup::LayoutError;
pub(crate) use setup::sets_watermarks;
pub use validate::{BuddyInfo, PageTypeInfo};
pub use watermark::{Means, Reserve, Watermark};
pub use zone::Zone;

use crate::event::Event;
use crate::frame::{Frame, FrameFlags, Mobility};
use crate::knobs::Knob;
use crate::lock::Lock;
use crate::machine::{Machine, Scope, Work, ZoneKind};
use crate::mmu::Mmu;
use crate::primitive::AtomicU64;
use crate::stat::Stat;
use crate::tlb::Generation;
use crate::units::*;
use base::demand;
use buddy::{Debts, LockedZone, Mixing};
use kswapd::NodeRequests;
use owing::Clean;
use pcp::Pcp;
use std_alloc::boxed::Box;
use zonelist::Zonelists;

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocRequest {
    /// Size.
    pub order: Order,
    /// Whether it can be moved or reclaimed later.
    pub mobility: Mobility,
    /// Preferred node.
    pub node: NodeId,
    /// Highest acceptable kind of zone; below Movable unless the mobility is Movable.
    pub highest: ZoneKind,
    /// How far below the watermark it may go.
    pub reserve: Reserve,
    /// Fail rather than take from another node.
    pub this_node_only: bool,
    /// The acceptable nodes.
    pub among: Nodes,
    /// The caller cannot send interrupts, so it accepts only frames that owe no flush. A reserve of those is kept.
    pub atomic: bool,
    /// Whether it may mix mobility groups within a page block even where `vm.defrag_mode` keeps them apart: nothing
    /// else has helped, or the caller will try nothing else.
    pub mixes: bool,
}

impl AllocRequest {
    /// A request of the kernel for itself: above the watermark, from any node, `node` first.
    pub const fn of_kernel(mobility: Mobility, order: Order, node: NodeId) -> AllocRequest {
        AllocRequest {
            order,
            mobility,
            node,
            highest: ZoneKind::Normal,
            reserve: Reserve::None,
            this_node_only: false,
            among: Nodes::ALL,
            atomic: false,
            mixes: true,
        }
    }

    fn debts(&self) -> Debts {
        if self.atomic { Debts::UpTo(Generation::NONE) } else { Debts::Allowed }
    }
}

/// No zone that the request could use has enough memory above the watermark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeedsReclaim {
    /// Its size.
    pub order: Order,
    /// Its preferred node.
    pub node: NodeId,
    /// Its highest acceptable kind of zone.
    pub highest: ZoneKind,
    /// Its acceptable nodes.
    pub among: Nodes,
    /// Whether only a whole free page block helps it besides memory of its own mobility group: `vm.defrag_mode` keeps
    /// it out of the blocks that reclaim frees pages of.
    pub apart: bool,
}

impl NeedsReclaim {
    /// Whether the request is for so large a block that it is given up after little work. One that is kept apart
    /// cannot do without.
    pub(crate) fn is_costly(&self) -> bool {
        self.order > COSTLY_ORDER && !self.apart
    }

    /// What a whole page block for the same request needs.
    pub(crate) fn whole_block(&self) -> NeedsReclaim {
        NeedsReclaim { order: PAGEBLOCK_ORDER, ..*self }
    }

    /// Whether the request could have used this zone of its zonelist.
    pub(crate) fn could_use(&self, zone: &Zone) -> bool {
        self.among.contains(zone.node())
    }
}

/// All memory of the machine.
pub struct Allocator {
    zones: Box<[Zone]>,
    /// Lists of CPU c in zone z at c * zones + z.
    pcps: Box<[Lock<Pcp>]>,
    /// Held by the CPU that drains all lists for an allocation; until when the last such drain took.
    drained: Lock<Nanos>,
    zonelists: Zonelists,
    nodes: Box<[NodeRequests]>,
    /// Number of the next holder of free blocks.
    holders: AtomicU64,
}

/// A folio with one of these flags is in use and must not be freed.
const IN_USE: FrameFlags = FrameFlags::LRU
    .union(FrameFlags::LOCKED)
    .union(FrameFlags::WRITEBACK)
    .union(FrameFlags::SWAPCACHE)
    .union(FrameFlags::UNEVICTABLE)
    .union(FrameFlags::MLOCKED)
    .union(FrameFlags::BUDDY)
    .union(FrameFlags::PCP)
    .union(FrameFlags::HELD)
    .union(FrameFlags::TAIL)
    .union(FrameFlags::RESERVED);

impl Allocator {
    /// All zones, ascending by first frame; a [`ZoneId`] is an index into them.
    #[inline]
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// The zone with this number.
    #[inline]
    pub fn zone(&self, id: ZoneId) -> &Zone {
        &self.zones[id.index()]
    }

    /// Number of nodes: up to the highest that a CPU or a zone belongs to.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Zones in the order in which a request tries them.
    pub(crate) fn zonelist(&self, node: NodeId, highest: ZoneKind) -> &[ZoneId] {
        self.zonelists.get(node, highest)
    }

    /// Take a folio from the first zone that has memory above `mark`.
    ///
    /// If no zone has and the mark is Low, wake the kswapds of the zones' nodes.
    #[inline]
    pub fn take<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        request: &AllocRequest,
        mark: Watermark,
    ) -> Result<Fresh, NeedsReclaim> {
        if request.order == Order::ZERO
            && let Some(fresh) = self.take_hot(mmu, request)
        {
            return Ok(fresh);
        }
        self.take_by_zonelist(mmu, request, mark)
    }

    /// Free folios without references. Consecutive single pages of one zone go to the CPU's list under one hold of
    /// its lock.
    ///
    /// # Panics
    /// If a folio is referenced, mapped, on a list, locked, under writeback, or if a frame is no folio's head.
    pub fn free<M: Machine>(&self, mmu: &Mmu<M>, pfns: &[Pfn]) {
        let cpu = mmu.machine.cpu();
        let mut rest = pfns;
        while let [first, behind @ ..] = rest {
            let record = &mmu.frames[*first];
            if record.order() != Order::ZERO || record.debt() != 0 {
                check_unused(record, *first);
                self.free_slow(mmu, *first);
                rest = behind;
                continue;
            }
            let (order_zone_node, id, mut count) = (record.order_zone_node(), record.zone(), 0);
            let mut pcp = self.pcp(cpu, id).lock();
            while let [pfn, behind @ ..] = rest
                && let frame = &mmu.frames[*pfn]
                && frame.order_zone_node() == order_zone_node
                && frame.debt() == 0
            {
                check_unused(frame, *pfn);
                mmu.event(Event::MmPageFree, [pfn.0 as u64, 0, id.0 as u64, 0]);
                frame.wipe(FrameFlags::PCP);
                if !pcp.push_stack(frame.mobility(), *pfn) {
                    pcp.push(mmu, self.zone(id), *pfn, Order::ZERO);
                }
                count += 1;
                rest = behind;
            }
            mmu.charge(Work::FreePcp, count);
            mmu.stats.add(cpu, Stat::Pgfree, count as i64);
        }
    }

    /// Return all pages on a CPU's lists to their zones.
    #[cfg(test)]
    pub(crate) fn drain_cpu<M: Machine>(&self, mmu: &Mmu<M>, cpu: CpuId) {
        for zone in &self.zones {
            self.drain(mmu, cpu, zone);
        }
    }

    /// Return all pages on all CPUs' lists of one zone to it.
    pub(crate) fn drain_zone<M: Machine>(&self, mmu: &Mmu<M>, zone: ZoneId) {
        for cpu in 0..self.cpus() {
            self.drain(mmu, CpuId(cpu as u16), self.zone(zone));
        }
    }

    /// Return all pages on all CPUs' lists.
    pub(crate) fn drain_all<M: Machine>(&self, mmu: &Mmu<M>) {
        for zone in &self.zones {
            self.drain_zone(mmu, zone.id());
        }
    }

    /// Return all pages on all CPUs' lists for an allocation that found no page after it reclaimed some. If another CPU
    /// is doing so, its drain serves this allocation, too (`__drain_all_pages` in mm/page_alloc.c of Linux 6.12).
    pub(crate) fn drain_after_reclaim<M: Machine>(&self, mmu: &Mmu<M>) {
        let Some(mut drained) = self.drained.try_lock() else { return };
        // A simulator runs one CPU after the other: another's drain may be over, but not yet at this CPU's time.
        if mmu.machine.now() >= *drained {
            self.drain_all(mmu);
            *drained = mmu.machine.now();
        }
    }

    /// Pages on CPUs' lists of one zone.
    pub(crate) fn pcp_pages(&self, zone: ZoneId) -> u64 {
        (0..self.cpus()).map(|cpu| self.pcp(CpuId(cpu as u16), zone).lock().count() as u64).sum()
    }

    fn cpus(&self) -> usize {
        self.pcps.len() / self.zones.len()
    }

    #[inline]
    fn pcp(&self, cpu: CpuId, zone: ZoneId) -> &Lock<Pcp> {
        &self.pcps[cpu.index() * self.zones.len() + zone.index()]
    }

    fn drain<M: Machine>(&self, mmu: &Mmu<M>, cpu: CpuId, zone: &Zone) {
        self.pcp(cpu, zone.id()).lock().drain(mmu, zone);
    }

    /// Return all pages on this CPU's lists of one zone to it.
    pub(crate) fn drain_here<M: Machine>(&self, mmu: &Mmu<M>, zone: ZoneId) {
        self.drain(mmu, mmu.machine.cpu(), self.zone(zone));
    }

    /// The common case: one page, plenty of memory in the first zone of the preferred node, a page on the CPU's list.
    #[inline]
    fn take_hot<M: Machine>(&self, mmu: &Mmu<M>, request: &AllocRequest) -> Option<Fresh> {
        let id = self.zonelists.near(request.node, request.highest)?;
        let zone = self.zone(id);
        if !zone.above_high(request.highest) {
            return None;
        }
        let cpu = mmu.machine.cpu();
        let mut pcp = self.pcp(cpu, id).lock();
        let page = pcp.pop_stack(request.mobility)?;
        let local = pcp.is_local();
        drop(pcp);
        mmu.charge(Work::AllocPcp, 1);
        let stats = mmu.stats.cpu(cpu);
        stats.add(Stat::NumaHit, 1);
        stats.add(if local { Stat::NumaLocal } else { Stat::NumaOther }, 1);
        Some(hand_out(mmu, cpu, zone, page, request))
    }

    /// All other cases of [`Allocator::take`].
    #[cold]
    fn take_by_zonelist<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        request: &AllocRequest,
        mark: Watermark,
    ) -> Result<Fresh, NeedsReclaim> {
        let _scope = mmu.scope(Scope::GetPageFromFreelist);
        let &AllocRequest { order, node, highest, among, .. } = request;
        assert!(order <= MAX_ORDER, "no block can have {order}");
        assert!(
            highest < ZoneKind::Movable || request.mobility == Mobility::Movable,
            "only a movable folio may use movable memory"
        );
        let zones = self.zonelist(node, highest);
        // If ordinary memory comes first and the node has a lower kind, too, use that before mixing mobility groups.
        let near = zones.iter().take_while(|&&id| self.zone(id).node() == self.zone(zones[0]).node()).count();
        let apart = !request.mixes && mmu.knobs.get(Knob::DefragMode) != 0;
        let last = if apart { Mixing::WholeBlocks } else { Mixing::Allowed };
        let spread = !apart && near > 1 && self.zone(zones[0]).kind() == ZoneKind::Normal;
        let taken = spread
            .then(|| self.take_from(mmu, &zones[..near], request, mark, Mixing::WholeBlocks))
            .flatten()
            .or_else(|| self.take_from(mmu, zones, request, mark, last));
        if taken.is_none() && mark == Watermark::Low {
            self.wake_kswapds(mmu, request);
        }
        let apart = apart && request.mobility != Mobility::Movable;
        taken.ok_or(NeedsReclaim { order, node, highest, among, apart })
    }

    /// Take from the first of these zones that is allowed to give and can.
    fn take_from<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        zones: &[ZoneId],
        request: &AllocRequest,
        mark: Watermark,
        mixing: Mixing,
    ) -> Option<Fresh> {
        let &AllocRequest { order, node, highest, reserve, among, .. } = request;
        for &id in zones {
            let zone = self.zone(id);
            if (request.this_node_only && zone.node() != node) || !among.contains(zone.node()) {
                continue;
            }
            if !zone.allows(order, Watermark::High, highest, reserve) {
                zone.set_pressure(zone::BELOW_HIGH, true);
                if !zone.allows(order, mark, highest, reserve) {
                    continue;
                }
            }
            let cpu = mmu.machine.cpu();
            if let Some(block) = self.take_from_zone(mmu, cpu, zone, request, mixing) {
                self.count_numa(mmu, cpu, zone, request);
                return Some(hand_out(mmu, cpu, zone, block, request));
            }
        }
        None
    }

    /// Take from a zone, whatever its watermarks. The folio is formed; its flags are clear except HEAD and PCP.
    fn take_from_zone<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        cpu: CpuId,
        zone: &Zone,
        request: &AllocRequest,
        mixing: Mixing,
    ) -> Option<Clean> {
        let &AllocRequest { order, mobility, .. } = request;
        let debts = request.debts();
        let (taken, boosted) = if pcp::holds(order) {
            mmu.charge(Work::AllocPcp, 1);
            let mut pcp = self.pcp(cpu, zone.id()).lock();
            if let Some(block) = pcp.pop(mmu, zone, order, mobility) {
                return Some(block);
            }
            let want = pcp.refill_size(zone, order);
            drop(pcp);
            let (blocks, boosted) = pcp::fetch(mmu, zone, (order, mobility), (mixing, debts), want);
            // No lock is held: a payment may send interrupts.
            let mut blocks = blocks.settle(mmu, zone);
            let first = blocks.pop(&mmu.frames);
            let taken = first.map(|block| pcp::form(mmu, zone, block, order, FrameFlags::PCP));
            let mut pcp = self.pcp(cpu, zone.id()).lock();
            pcp.accept(mmu, (order, mobility), blocks);
            let pending = if taken.is_none() {
                pcp.pop_pending(mmu, zone, (order, mobility), debts.most())
            } else {
                None
            };
            drop(pcp);
            (taken.or_else(|| Some(pending?.settle(mmu, zone))), boosted)
        } else {
            let mut area = LockedZone::lock(mmu, zone);
            let taken = area.take(order, mobility, mixing, debts);
            let boosted = area.boosted();
            drop(area);
            let taken = taken.map(|block| {
                // After the lock, so that tests can interrupt here: the block is taken and its debt is not paid.
                mmu.charge(Work::AllocBuddy, 1);
                pcp::form(mmu, zone, block.settle(mmu, zone), order, FrameFlags::empty())
            });
            (taken, boosted)
        };
        if boosted {
            self.wake_kswapd(mmu, zone, Order::ZERO, zone.kind());
        }
        taken
    }

    /// Count the node that served a request, as seen from the preferred zone and from the CPU.
    fn count_numa<M: Machine>(&self, mmu: &Mmu<M>, cpu: CpuId, zone: &Zone, request: &AllocRequest) {
        let preferred = self.zone(self.zonelist(request.node, request.highest)[0]).node();
        if zone.node() == preferred {
            mmu.stats.add(cpu, Stat::NumaHit, 1);
        } else {
            mmu.stats.add(cpu, Stat::NumaMiss, 1);
            mmu.stats.add(cpu, Stat::NumaForeign, 1);
        }
        let local = mmu.machine.node_of(cpu) == zone.node();
        mmu.stats.add(cpu, if local { Stat::NumaLocal } else { Stat::NumaOther }, 1);
    }

    /// Free a folio of several pages, or one that owes: to the CPU's list if that holds the order, otherwise to the
    /// buddy lists.
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "its debt has been paid")]
    fn free_slow<M: Machine>(&self, mmu: &Mmu<M>, pfn: Pfn) {
        let (frame, cpu) = (&mmu.frames[pfn], mmu.machine.cpu());
        let (order, zone) = (frame.order(), self.zone(frame.zone()));
        mmu.stats.add(cpu, Stat::Pgfree, order.frames() as i64);
        mmu.event(Event::MmPageFree, [pfn.0 as u64, order.0 as u64, zone.id().0 as u64, 0]);
        mmu.tlb.adopt(mmu.host(), pfn);
        let owes = mmu.tlb.owed_by_tag(zone.id(), frame.debt()) != Generation::NONE;
        if !owes {
            frame.set_debt(0);
        }
        if pcp::holds(order) {
            let single = order == Order::ZERO;
            frame.wipe(if single { FrameFlags::PCP } else { FrameFlags::PCP | FrameFlags::HEAD });
            mmu.charge(Work::FreePcp, 1);
            let mut pcp = self.pcp(cpu, zone.id()).lock();
            if owes {
                pcp.push_pending(mmu, zone, pfn, order);
            } else if !single || !pcp.push_stack(frame.mobility(), pfn) {
                pcp.push(mmu, zone, pfn, order);
            }
        } else {
            frame.wipe(FrameFlags::empty());
            let mut area = LockedZone::lock(mmu, zone);
            area.put(pfn, order);
            mmu.charge(Work::FreeBuddy, 1);
        }
    }
}

/// The last step of every take: one reference, no flags but HEAD, and the counters.
#[inline]
fn hand_out<M: Machine>(
    mmu: &Mmu<M>,
    cpu: CpuId,
    zone: &Zone,
    block: Clean,
    request: &AllocRequest,
) -> Fresh {
    let (pfn, order) = (block.pfn(), request.order);
    let frame = &mmu.frames[pfn];
    demand!(frame.debt() == 0, [pfn]; "{pfn} must owe no flush when it is handed out");
    frame.assign(if order == Order::ZERO { FrameFlags::empty() } else { FrameFlags::HEAD });
    frame.unfreeze(1);
    let stat = match zone.kind() {
        ZoneKind::Dma32 => Stat::PgallocDma32,
        ZoneKind::Normal => Stat::PgallocNormal,
        ZoneKind::Movable => Stat::PgallocMovable,
    };
    mmu.stats.add(cpu, stat, order.frames() as i64);
    let args = [pfn.0 as u64, order.0 as u64, zone.id().0 as u64, request.mobility as u64];
    mmu.event(Event::MmPageAlloc, args);
    initialized(mmu, block.into_fresh(order))
}

/// What is handed out, cleared if `init_on_alloc` asks for it.
#[inline]
fn initialized<M: Machine>(mmu: &Mmu<M>, fresh: Fresh) -> Fresh {
    if mmu.clears_pages() {
        clear(mmu, &fresh);
    }
    fresh
}

#[cold]
#[inline(never)]
#[expect(clippy::disallowed_methods, reason = "nothing shows the pages yet, and they owe no flush")]
fn clear<M: Machine>(mmu: &Mmu<M>, fresh: &Fresh) {
    let pages = fresh.order().frames();
    mmu.machine.zero(fresh.pfn(), pages);
    mmu.charge(Work::ZeroPage, u64::from(pages));
}

#[inline]
fn check_unused(frame: &Frame, pfn: Pfn) {
    // One branch for all three.
    if frame.refs() | frame.mapcount() | (frame.flags() & IN_USE).bits() != 0 {
        refuse(frame, pfn);
    }
}

#[cold]
#[inline(never)]
fn refuse(frame: &Frame, pfn: Pfn) -> ! {
    let (refs, mapcount, flags) = (frame.refs(), frame.mapcount(), frame.flags());
    panic!("{pfn} must be unused when it is freed: {refs} references, mapped {mapcount} times, {flags:?}");
}

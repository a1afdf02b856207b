//! The page allocator: zones and nodes, watermarks, buddy lists with mobility groups, CPUs' own lists.
//!
//! A request names an order, a mobility, a node it prefers and the highest kind of zone it can use. It goes through the
//! zones in its order of preference and takes from the first whose free memory lies above the mark: from the CPU's
//! own lists for common orders (`pcp`), else from the zone's buddy lists (`buddy`). Which zone is asked when is in
//! `zonelist`, when memory counts as short in [`watermark`].
//!
//! The allocator never reclaims and never waits. At the low mark it wakes the kswapds of the nodes it would have liked
//! to use and says [`NeedsReclaim`]; the slow path, which stands above reclaim, asks again with the min mark, reclaims,
//! and decides when memory is out.
//!
//! Locks: a CPU's lists, then a zone; both are leaves (7 in [`lock`](crate::lock)). A hot order-0 take and free touch
//! only the CPU's lists and a few counters that are read without a lock.
//!
//! A taken folio is handed over as [`Fresh`], which cannot be made elsewhere: a page that left the allocator is known
//! to have no other user. Debt tags stay in the frames' records on their way through here; nothing sets one yet.

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
pub use fragmentation::{COSTLY_ORDER, FreeBlocks, compact_gap};
pub use held::{CLUSTER, Found, HeldBlocks, Isolation, Search};
pub use kswapd::{KswapdRequest, kswapd_mark};
pub use owing::Fresh;
pub use setup::{LayoutError, sets_watermarks};
pub use validate::{BuddyInfo, PageTypeInfo};
pub use watermark::{Mark, Means, Reserve};
pub use zone::{PcpSizes, Zone};

use crate::event::Event;
use crate::frame::{Frame, FrameFlags, Mobility};
use crate::ground::Ground;
use crate::knobs::Knob;
use crate::lock::Lock;
use crate::machine::{Machine, Scope, Work, ZoneKind};
use crate::primitive::AtomicU64;
use crate::stat::Stat;
use crate::tlb::Generation;
use crate::units::*;
use buddy::{Area, Debts, Mixing};
use kswapd::NodeState;
use owing::Clean;
use pcp::Pcp;
use std_alloc::boxed::Box;
use zonelist::Zonelists;

/// What is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Size.
    pub order: Order,
    /// Whether it can be moved or taken back later.
    pub mobility: Mobility,
    /// Preferred node.
    pub node: NodeId,
    /// Highest kind of zone that will do; below Movable unless the mobility is Movable.
    pub highest: ZoneKind,
    /// How far below the mark it may go.
    pub reserve: Reserve,
    /// Fail rather than take from another node.
    pub this_node_only: bool,
    /// No others will do.
    pub among: Nodes,
    /// The caller may not send interrupts: only frames for which no flush is owed will do. Some are kept for this.
    pub atomic: bool,
    /// It may mix mobility groups within a page block even where `vm.defrag_mode` keeps them apart: nothing else has
    /// helped, or nobody will try anything else.
    pub mixes: bool,
}

impl Request {
    fn debts(&self) -> Debts {
        if self.atomic { Debts::UpTo(Generation::NONE) } else { Debts::Allowed }
    }
}

/// No zone that the request could use has enough memory above the mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeedsReclaim {
    /// Size that was wanted.
    pub order: Order,
    /// Node that was preferred.
    pub node: NodeId,
    /// Highest kind of zone that would have done.
    pub highest: ZoneKind,
    /// Nodes that would have done.
    pub among: Nodes,
}

impl NeedsReclaim {
    /// Could the request have used this zone, which is in its list?
    pub fn could_use(&self, zone: &Zone) -> bool {
        self.among.contains(zone.node())
    }
}

/// All memory of the machine.
pub struct Allocator {
    zones: Box<[Zone]>,
    /// Lists of CPU c in zone z at c * zones + z.
    pcps: Box<[Lock<Pcp>]>,
    zonelists: Zonelists,
    nodes: Box<[NodeState]>,
    /// Number of the next who holds free blocks.
    holders: AtomicU64,
}

/// A folio with one of these is in use by somebody and must not be freed.
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

    /// The zone of that number.
    #[inline]
    pub fn zone(&self, id: ZoneId) -> &Zone {
        &self.zones[id.index()]
    }

    /// Number of nodes, counting from 0 to the highest that a CPU or a zone belongs to.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Zones in the order in which a request looks at them.
    pub fn zonelist(&self, node: NodeId, highest: ZoneKind) -> &[ZoneId] {
        self.zonelists.get(node, highest)
    }

    /// Take a folio from the first zone that has memory above `mark`.
    ///
    /// Where no zone has, and the mark is Low, the kswapds of the zones' nodes are woken.
    #[inline]
    pub fn take<M: Machine>(
        &self,
        base: &Ground<M>,
        request: &Request,
        mark: Mark,
    ) -> Result<Fresh, NeedsReclaim> {
        if request.order == Order::ZERO
            && let Some(fresh) = self.take_hot(base, request)
        {
            return Ok(fresh);
        }
        self.take_by_zonelist(base, request, mark)
    }

    #[inline]
    fn free_to_pcp<M: Machine>(&self, base: &Ground<M>, cpu: CpuId, zone: ZoneId, pfn: Pfn) {
        let frame = &base.frames[pfn];
        frame.wipe(FrameFlags::PCP);
        base.charge(Work::FreePcp, 1);
        let mut pcp = self.pcp(cpu, zone).lock();
        if !pcp.push_stack(frame.mobility(), pfn) {
            pcp.push(base, self.zone(zone), pfn, Order::ZERO);
        }
    }

    /// Free folios that nobody refers to any more: single pages of one zone that follow each other go to the CPU's list
    /// in one hold of its lock.
    ///
    /// # Panics
    /// If one is still referred to, mapped, on a list, locked, being written, or no folio's head.
    pub fn free<M: Machine>(&self, base: &Ground<M>, pfns: &[Pfn]) {
        let cpu = base.machine.cpu();
        let mut rest = pfns;
        while let [first, behind @ ..] = rest {
            let record = &base.frames[*first];
            if record.order() != Order::ZERO || record.debt() != 0 {
                check_unused(record, *first);
                self.free_slow(base, *first);
                rest = behind;
                continue;
            }
            let (kin, id, mut count) = (record.kin(), record.zone(), 0);
            let mut pcp = self.pcp(cpu, id).lock();
            while let [pfn, behind @ ..] = rest
                && let frame = &base.frames[*pfn]
                && frame.kin() == kin
                && frame.debt() == 0
            {
                check_unused(frame, *pfn);
                base.event(Event::MmPageFree, [pfn.0 as u64, 0, id.0 as u64, 0]);
                frame.wipe(FrameFlags::PCP);
                if !pcp.push_stack(frame.mobility(), *pfn) {
                    pcp.push(base, self.zone(id), *pfn, Order::ZERO);
                }
                count += 1;
                rest = behind;
            }
            base.charge(Work::FreePcp, count);
            base.stats.add(cpu, Stat::Pgfree, count as i64);
        }
    }

    /// Give all pages on a CPU's lists back to their zones.
    pub fn drain_cpu<M: Machine>(&self, base: &Ground<M>, cpu: CpuId) {
        for zone in &self.zones {
            self.drain(base, cpu, zone);
        }
    }

    /// Give all pages on all CPUs' lists of one zone back to it.
    pub fn drain_zone<M: Machine>(&self, base: &Ground<M>, zone: ZoneId) {
        for cpu in 0..self.cpus() {
            self.drain(base, CpuId(cpu as u16), self.zone(zone));
        }
    }

    /// Give all pages on all CPUs' lists back.
    pub fn drain_all<M: Machine>(&self, base: &Ground<M>) {
        for zone in &self.zones {
            self.drain_zone(base, zone.id());
        }
    }

    /// Pages on CPUs' lists of one zone.
    pub fn pcp_pages(&self, zone: ZoneId) -> u64 {
        (0..self.cpus()).map(|cpu| self.pcp(CpuId(cpu as u16), zone).lock().count() as u64).sum()
    }

    fn cpus(&self) -> usize {
        self.pcps.len() / self.zones.len()
    }

    #[inline]
    fn pcp(&self, cpu: CpuId, zone: ZoneId) -> &Lock<Pcp> {
        &self.pcps[cpu.index() * self.zones.len() + zone.index()]
    }

    fn drain<M: Machine>(&self, base: &Ground<M>, cpu: CpuId, zone: &Zone) {
        self.pcp(cpu, zone.id()).lock().drain(base, zone);
    }

    /// Give all pages on this CPU's lists of one zone back to it.
    pub fn drain_here<M: Machine>(&self, base: &Ground<M>, zone: ZoneId) {
        self.drain(base, base.machine.cpu(), self.zone(zone));
    }

    /// The common case: one page, plenty of memory in the first zone of the preferred node, a page on the CPU's list.
    #[inline]
    fn take_hot<M: Machine>(&self, base: &Ground<M>, request: &Request) -> Option<Fresh> {
        let id = self.zonelists.near(request.node, request.highest)?;
        let zone = self.zone(id);
        if !zone.above_high(request.highest) {
            return None;
        }
        let cpu = base.machine.cpu();
        let mut pcp = self.pcp(cpu, id).lock();
        let page = pcp.pop_stack(request.mobility)?;
        let local = pcp.is_local();
        drop(pcp);
        base.charge(Work::AllocPcp, 1);
        let stats = base.stats.cpu(cpu);
        stats.add(Stat::NumaHit, 1);
        stats.add(if local { Stat::NumaLocal } else { Stat::NumaOther }, 1);
        Some(hand_out(base, cpu, zone, page, request))
    }

    /// All other cases of [`Allocator::take`].
    #[cold]
    fn take_by_zonelist<M: Machine>(
        &self,
        base: &Ground<M>,
        request: &Request,
        mark: Mark,
    ) -> Result<Fresh, NeedsReclaim> {
        let _scope = base.scope(Scope::GetPageFromFreelist);
        let &Request { order, node, highest, among, .. } = request;
        assert!(order <= MAX_ORDER, "no block is of {order}");
        assert!(
            highest < ZoneKind::Movable || request.mobility == Mobility::Movable,
            "a folio that stays would keep memory that must be movable"
        );
        let zones = self.zonelist(node, highest);
        // Where ordinary memory comes first and the node has a lower kind too, spread into that before mixing
        // mobility groups.
        let near = zones.iter().take_while(|&&id| self.zone(id).node() == self.zone(zones[0]).node()).count();
        let apart = !request.mixes && base.knobs.get(Knob::DefragMode) != 0;
        let last = if apart { Mixing::WholeBlocks } else { Mixing::Allowed };
        let spread = !apart && near > 1 && self.zone(zones[0]).kind() == ZoneKind::Normal;
        let taken = spread
            .then(|| self.take_from(base, &zones[..near], request, mark, Mixing::WholeBlocks))
            .flatten()
            .or_else(|| self.take_from(base, zones, request, mark, last));
        match taken {
            Some(fresh) => Ok(fresh),
            None => {
                if mark == Mark::Low {
                    self.wake_kswapds(base, request);
                }
                Err(NeedsReclaim { order, node, highest, among })
            }
        }
    }

    /// Take from the first of these zones that may and can give.
    fn take_from<M: Machine>(
        &self,
        base: &Ground<M>,
        zones: &[ZoneId],
        request: &Request,
        mark: Mark,
        mixing: Mixing,
    ) -> Option<Fresh> {
        let &Request { order, node, highest, reserve, among, .. } = request;
        for &id in zones {
            let zone = self.zone(id);
            if (request.this_node_only && zone.node() != node) || !among.contains(zone.node()) {
                continue;
            }
            if !zone.allows(order, Mark::High, highest, reserve) {
                zone.set_pressure(zone::BELOW_HIGH, true);
                if !zone.allows(order, mark, highest, reserve) {
                    continue;
                }
            }
            let cpu = base.machine.cpu();
            if let Some(block) = self.take_from_zone(base, cpu, zone, request, mixing) {
                self.count_numa(base, cpu, zone, request);
                return Some(hand_out(base, cpu, zone, block, request));
            }
        }
        None
    }

    /// Take from a zone, whatever its watermarks. The folio is formed, its flags are clear but for HEAD and PCP.
    fn take_from_zone<M: Machine>(
        &self,
        base: &Ground<M>,
        cpu: CpuId,
        zone: &Zone,
        request: &Request,
        mixing: Mixing,
    ) -> Option<Clean> {
        let &Request { order, mobility, .. } = request;
        let debts = request.debts();
        let (taken, boosted) = if pcp::holds(order) {
            base.charge(Work::AllocPcp, 1);
            let mut pcp = self.pcp(cpu, zone.id()).lock();
            if let Some(block) = pcp.pop(&base.frames, order, mobility) {
                return Some(block);
            }
            let want = pcp.refill_size(zone, order);
            drop(pcp);
            let (blocks, boosted) = pcp::fetch(base, zone, (order, mobility), (mixing, debts), want);
            // No lock is held: this may send interrupts.
            let mut blocks = blocks.settle(base, zone);
            let first = blocks.pop(&base.frames);
            let taken = first.map(|block| pcp::form(base, zone, block, order, FrameFlags::PCP));
            self.pcp(cpu, zone.id()).lock().accept(base, (order, mobility), blocks);
            (taken, boosted)
        } else {
            let mut area = Area::lock(base, zone);
            let taken = area.take(order, mobility, mixing, debts);
            let boosted = area.boosted();
            drop(area);
            let taken = taken.map(|block| {
                base.charge(Work::AllocBuddy, 1);
                pcp::form(base, zone, block.settle(base, zone), order, FrameFlags::empty())
            });
            (taken, boosted)
        };
        if boosted {
            self.wake_kswapd(base, zone, Order::ZERO, zone.kind());
        }
        taken
    }

    /// Count on which node a request was served, as seen from the preferred zone and from the CPU.
    fn count_numa<M: Machine>(&self, base: &Ground<M>, cpu: CpuId, zone: &Zone, request: &Request) {
        let preferred = self.zone(self.zonelist(request.node, request.highest)[0]).node();
        if zone.node() == preferred {
            base.stats.add(cpu, Stat::NumaHit, 1);
        } else {
            base.stats.add(cpu, Stat::NumaMiss, 1);
            base.stats.add(cpu, Stat::NumaForeign, 1);
        }
        let local = base.machine.node_of(cpu) == zone.node();
        base.stats.add(cpu, if local { Stat::NumaLocal } else { Stat::NumaOther }, 1);
    }

    /// Free a folio of more than one page, or one that owes: to the CPU's list if that holds the order and nothing is
    /// owed, else to the buddy.
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "what it owed has been paid")]
    fn free_slow<M: Machine>(&self, base: &Ground<M>, pfn: Pfn) {
        let (frame, cpu) = (&base.frames[pfn], base.machine.cpu());
        let (order, zone) = (frame.order(), self.zone(frame.zone()));
        count_free(base, cpu, zone.id(), pfn, order);
        let owes = base.tlb.owed_by_tag(zone.id(), frame.debt()) != Generation::NONE;
        if !owes {
            frame.set_debt(0);
        }
        if !owes && order == Order::ZERO {
            self.free_to_pcp(base, cpu, zone.id(), pfn);
        } else if !owes && pcp::holds(order) {
            frame.wipe(FrameFlags::PCP | FrameFlags::HEAD);
            base.charge(Work::FreePcp, 1);
            self.pcp(cpu, zone.id()).lock().push(base, zone, pfn, order);
        } else {
            frame.wipe(FrameFlags::empty());
            base.charge(Work::FreeBuddy, 1);
            Area::lock(base, zone).put(pfn, order);
        }
    }
}

#[inline]
fn count_free<M: Machine>(base: &Ground<M>, cpu: CpuId, zone: ZoneId, pfn: Pfn, order: Order) {
    base.stats.add(cpu, Stat::Pgfree, order.frames() as i64);
    base.event(Event::MmPageFree, [pfn.0 as u64, order.0 as u64, zone.0 as u64, 0]);
}

/// The last step of every take: one reference, no flags but HEAD, and the books.
#[inline]
fn hand_out<M: Machine>(base: &Ground<M>, cpu: CpuId, zone: &Zone, block: Clean, request: &Request) -> Fresh {
    let (pfn, order) = (block.pfn(), request.order);
    let frame = &base.frames[pfn];
    assert_eq!(frame.debt(), 0, "{pfn} is handed out and owes a flush");
    frame.assign(if order == Order::ZERO { FrameFlags::empty() } else { FrameFlags::HEAD });
    frame.unfreeze(1);
    let stat = match zone.kind() {
        ZoneKind::Dma32 => Stat::PgallocDma32,
        ZoneKind::Normal => Stat::PgallocNormal,
        ZoneKind::Movable => Stat::PgallocMovable,
    };
    base.stats.add(cpu, stat, order.frames() as i64);
    let args = [pfn.0 as u64, order.0 as u64, zone.id().0 as u64, request.mobility as u64];
    base.event(Event::MmPageAlloc, args);
    block.into_fresh(order)
}

#[inline]
fn check_unused(frame: &Frame, pfn: Pfn) {
    if frame.refs() != 0 || frame.mapcount() != 0 || frame.has_any(IN_USE) {
        refuse(frame, pfn);
    }
}

#[cold]
#[inline(never)]
fn refuse(frame: &Frame, pfn: Pfn) -> ! {
    let (refs, mapcount, flags) = (frame.refs(), frame.mapcount(), frame.flags());
    panic!("freed {pfn} that is in use: {refs} references, mapped {mapcount} times, {flags:?}");
}

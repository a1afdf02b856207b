//! Checks of the whole allocator, and the tables of /proc/buddyinfo and /proc/pagetypeinfo.

use super::buddy::ORDERS;
use super::zone::Zone;
use super::{Allocator, buddy::LockedZone};
use crate::frame::{FrameFlags, Mobility};
use crate::machine::{Machine, ZoneKind};
use crate::mmu::Mmu;
use crate::stat::Stat;
use crate::tlb::Generation;
use crate::units::*;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// Free blocks of a zone: a line of /proc/buddyinfo.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuddyInfo {
    /// Node of the zone.
    pub node: NodeId,
    /// The zone.
    pub zone: ZoneId,
    /// Kind of the zone.
    pub kind: ZoneKind,
    /// Free blocks of each order.
    pub blocks: [u64; ORDERS],
}

/// Free blocks and page blocks of a zone and a mobility group: a line of each table of /proc/pagetypeinfo.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageTypeInfo {
    /// Node of the zone.
    pub node: NodeId,
    /// The zone.
    pub zone: ZoneId,
    /// Kind of the zone.
    pub kind: ZoneKind,
    /// The group.
    pub mobility: Mobility,
    /// Free blocks of each order.
    pub blocks: [u64; ORDERS],
    /// Page blocks of the group.
    pub pageblocks: u64,
}

/// Frames of a zone that were seen free.
struct FreeFrames {
    start: Pfn,
    free: Vec<bool>,
}

impl FreeFrames {
    fn mark(&mut self, pfn: Pfn, order: Order) -> Result<(), String> {
        for i in 0..order.frames() {
            let at = pfn.add(i);
            let slot = at.0.checked_sub(self.start.0).and_then(|i| self.free.get_mut(i as usize));
            match slot {
                None => return Err(format!("{at} of the free block {pfn} {order} is outside its zone")),
                Some(true) => return Err(format!("{at} is free twice")),
                Some(free) => *free = true,
            }
        }
        Ok(())
    }

    fn has(&self, pfn: Pfn) -> bool {
        self.free[(pfn.0 - self.start.0) as usize]
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

impl Allocator {
    /// Free blocks of each zone by order.
    pub fn buddyinfo(&self) -> Vec<BuddyInfo> {
        let line = |zone: &Zone| {
            let blocks = zone.blocks().0;
            BuddyInfo { node: zone.node(), zone: zone.id(), kind: zone.kind(), blocks }
        };
        self.zones.iter().map(line).collect()
    }

    /// Free blocks and page blocks of each zone by mobility group.
    pub fn pagetypeinfo(&self) -> Vec<PageTypeInfo> {
        let line = |zone: &Zone, mobility| PageTypeInfo {
            node: zone.node(),
            zone: zone.id(),
            kind: zone.kind(),
            mobility,
            blocks: core::array::from_fn(|order| zone.free_blocks(Order(order as u8), mobility)),
            pageblocks: zone.blocks_by_mobility()[mobility as usize],
        };
        self.zones.iter().flat_map(|zone| Mobility::ALL.map(|mobility| line(zone, mobility))).collect()
    }

    /// Check everything against everything else: lists, flags, orders, groups, merges, counts. No CPU may use the
    /// allocator at the same time. Visits every frame, so it is for tests.
    pub fn validate<M: Machine>(&self, mmu: &Mmu<M>) -> Result<(), String> {
        for zone in &self.zones {
            self.validate_zone(mmu, zone).map_err(|what| format!("zone {}: {what}", zone.id()))?;
        }
        let (free, stat) =
            (self.zones.iter().map(Zone::free_pages).sum::<u64>(), mmu.stats.read(Stat::NrFreePages));
        ensure(free as i64 == stat, || format!("nr_free_pages {stat}, the zones have {free}"))
    }

    fn validate_zone<M: Machine>(&self, mmu: &Mmu<M>, zone: &Zone) -> Result<(), String> {
        let mut seen = FreeFrames { start: zone.start(), free: vec![false; zone.managed() as usize] };
        let area = LockedZone::lock(mmu, zone);
        let (mut pages, mut owing, mut occupied) = (0, 0, 0);
        let mut parts = Vec::new();
        for order in (0..ORDERS as u8).map(Order) {
            for mobility in Mobility::ALL {
                let lists = area.lists().both(order, mobility).into_iter().zip([false, true]);
                for (list, pending) in lists {
                    list.validate(&mmu.frames)?;
                    for pfn in list.iter(&mmu.frames) {
                        check_free_block(mmu, zone, pfn, order, mobility)?;
                        let generation = area.lists().debt_of(&mmu.frames[pfn]);
                        ensure((generation != Generation::NONE) == pending, || {
                            format!("{pfn} owes {generation:?} and is on the wrong list (pending: {pending})")
                        })?;
                        seen.mark(pfn, order)?;
                        if order < PAGEBLOCK_ORDER {
                            parts.push((pfn, order, mobility));
                        }
                        pages += order.frames() as u64;
                        owing += if pending { order.frames() as u64 } else { 0 };
                        occupied |= 1 << order.0;
                    }
                }
            }
        }
        let free = area.lists().free();
        let counted = area.lists().owing();
        ensure(owing == counted, || format!("{owing} pages are pending, {counted} counted"))?;
        area.lists().dense.as_ref().map_or(Ok(()), |dense| dense.validate(&parts))?;
        drop(area);
        ensure(pages == free && pages == zone.free_pages(), || {
            format!("{pages} pages on lists, {free} counted, {} shown", zone.free_pages())
        })?;
        ensure(zone.free_orders() == occupied, || {
            format!("orders {occupied:b} are free, {:b} are shown", zone.free_orders())
        })?;
        self.validate_pcps(mmu, zone, &mut seen)?;
        check_flags(mmu, zone, &seen)
    }

    fn validate_pcps<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        zone: &Zone,
        seen: &mut FreeFrames,
    ) -> Result<(), String> {
        for cpu in 0..self.cpus() {
            let pcp = self.pcp(CpuId(cpu as u16), zone.id()).lock();
            let mut pages = 0;
            for (order, owes, list) in pcp.lists() {
                list.validate(&mmu.frames)?;
                for pfn in list.iter(&mmu.frames) {
                    check_pcp_block(mmu, zone, pfn, order, owes)?;
                    seen.mark(pfn, order)?;
                    pages += order.frames();
                }
            }
            for pfn in pcp.stacked() {
                check_pcp_block(mmu, zone, pfn, Order::ZERO, false)?;
                seen.mark(pfn, Order::ZERO)?;
                pages += 1;
            }
            ensure(pages == pcp.count(), || {
                format!("CPU {cpu} holds {pages} pages, counts {}", pcp.count())
            })?;
        }
        Ok(())
    }
}

/// Check a block on a buddy list: its record, its page blocks' group, and that its buddy is in use.
fn check_free_block<M: Machine>(
    mmu: &Mmu<M>,
    zone: &Zone,
    pfn: Pfn,
    order: Order,
    mobility: Mobility,
) -> Result<(), String> {
    let frame = &mmu.frames[pfn];
    ensure(pfn.align_down(order) == pfn, || format!("free block {pfn} is not aligned to {order}"))?;
    ensure(
        frame.flags() == FrameFlags::BUDDY && frame.as_free().order == order && frame.refs() == 0,
        || {
            let (flags, size, refs) = (frame.flags(), frame.guess_free_order(), frame.refs());
            format!("free block {pfn} of {order} has {flags:?}, {size}, {refs} references")
        },
    )?;
    check_place(mmu, zone, pfn)?;
    ensure(frame.debt() == 0, || format!("free block {pfn} has the tag {} of a folio in use", frame.debt()))?;
    for block in (0..order.frames()).step_by(PAGEBLOCK_ORDER.frames() as usize) {
        let group = zone.mobility_of(pfn.add(block));
        ensure(group == mobility, || format!("{pfn} of a {group:?} page block is on the {mobility:?} list"))?;
    }
    let buddy = pfn.buddy(order);
    let unmerged = order < MAX_ORDER
        && buddy < zone.end()
        && mmu.frames[buddy].has(FrameFlags::BUDDY)
        && mmu.frames[buddy].as_free().order == order;
    ensure(!unmerged, || format!("{pfn} and {buddy} of {order} are both free and not merged"))
}

/// Check a block on a CPU's list: its record, which must be a folio's, and whether it owes.
fn check_pcp_block<M: Machine>(
    mmu: &Mmu<M>,
    zone: &Zone,
    pfn: Pfn,
    order: Order,
    owes: bool,
) -> Result<(), String> {
    let frame = &mmu.frames[pfn];
    let head = if order == Order::ZERO { FrameFlags::empty() } else { FrameFlags::HEAD };
    ensure(frame.flags() == FrameFlags::PCP | head && frame.order() == order && frame.refs() == 0, || {
        let (flags, own, refs) = (frame.flags(), frame.order(), frame.refs());
        format!("{pfn} on a CPU's list of {order} has {flags:?}, {own}, {refs} references")
    })?;
    ensure((frame.debt() != 0) == owes, || {
        format!("{pfn} with the tag {} is on a CPU's wrong list (pending: {owes})", frame.debt())
    })?;
    check_place(mmu, zone, pfn)
}

fn check_place<M: Machine>(mmu: &Mmu<M>, zone: &Zone, pfn: Pfn) -> Result<(), String> {
    let place = (mmu.frames[pfn].node(), mmu.frames[pfn].zone());
    ensure(place == (zone.node(), zone.id()), || format!("{pfn} says it is in {place:?}"))
}

/// Frames that are on no list must not be marked free, and frames in a free block must not be in use.
fn check_flags<M: Machine>(mmu: &Mmu<M>, zone: &Zone, seen: &FreeFrames) -> Result<(), String> {
    for pfn in (zone.start().0..zone.end().0).map(Pfn) {
        let frame = &mmu.frames[pfn];
        let says_free = frame.has_any(FrameFlags::BUDDY | FrameFlags::PCP | FrameFlags::HELD);
        ensure(!says_free || seen.has(pfn), || format!("{pfn} has {:?} but is on no list", frame.flags()))?;
        ensure(!seen.has(pfn) || frame.refs() == 0, || {
            format!("{pfn} is free, with {} references", frame.refs())
        })?;
    }
    Ok(())
}

//! Taking a frame by its number.
//!
//! Who builds a given state of memory wants this frame and no other, whatever the watermarks. It comes out of the free
//! block that it lies in; what is left of that stays free, with what it owes.

use super::Allocator;
use super::buddy::LockedZone;
use super::held::formed;
use super::owing::{Fresh, settle};
use crate::frame::Mobility;
use crate::machine::Machine;
use crate::mmu::Mmu;
use crate::units::*;

impl Allocator {
    /// Is this frame the first of a free block? Its order. What lies on CPUs' lists is in no block.
    pub fn free_block_at<M: Machine>(&self, mmu: &Mmu<M>, zone: ZoneId, pfn: Pfn) -> Option<Order> {
        LockedZone::lock(mmu, self.zone(zone)).free_order(pfn)
    }

    /// Take this frame, if it is in a free block of its zone; its page block goes over to a mobility group. As if at
    /// start: it does not count as allocated.
    pub fn take_exactly<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        zone: ZoneId,
        pfn: Pfn,
        mobility: Mobility,
    ) -> Option<Fresh> {
        let zone = self.zone(zone);
        let mut area = LockedZone::lock(mmu, zone);
        let generation = area.detach_one(pfn)?;
        area.regroup_block(pfn, mobility);
        drop(area);
        settle(mmu, zone, generation, pfn, Order::ZERO);
        mmu.frames[pfn].place(zone.node(), zone.id(), mobility);
        Some(formed(mmu, zone, pfn, Order::ZERO))
    }
}

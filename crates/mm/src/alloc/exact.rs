//! Taking a frame by its number.
//!
//! Tools that build a given state of memory want this frame and no other, whatever the watermarks. It is taken out of
//! the free block that contains it; the rest of the block stays free and keeps its debt.

use super::Allocator;
use super::buddy::LockedZone;
use super::held::formed;
use super::owing::{Fresh, settle};
use crate::frame::Mobility;
use crate::machine::Machine;
use crate::mmu::Mmu;
use crate::units::*;

impl Allocator {
    /// The order of the free block that this frame heads, if any. Frames on CPUs' lists are in no block.
    pub fn free_block_at<M: Machine>(&self, mmu: &Mmu<M>, zone: ZoneId, pfn: Pfn) -> Option<Order> {
        LockedZone::lock(mmu, self.zone(zone)).free_order(pfn)
    }

    /// Take this frame if it is in a free block of its zone, and move its page block to a mobility group. As at
    /// start, it does not count as allocated.
    pub(crate) fn take_exactly<M: Machine>(
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

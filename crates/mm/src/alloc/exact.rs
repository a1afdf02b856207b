//! Taking a frame by its number.
//!
//! Who builds a given state of memory wants this frame and no other, whatever the watermarks. It comes out of the free
//! block that it lies in; what is left of that stays free, with what it owes.

use super::Allocator;
use super::buddy::Area;
use super::held::formed;
use super::owing::{Fresh, settle};
use crate::frame::Mobility;
use crate::ground::Ground;
use crate::machine::Machine;
use crate::units::*;

impl Allocator {
    /// Is this frame the first of a free block? Its order. What lies on CPUs' lists is in no block.
    pub fn free_block_at<M: Machine>(&self, base: &Ground<M>, zone: ZoneId, pfn: Pfn) -> Option<Order> {
        Area::lock(base, self.zone(zone)).free_order(pfn)
    }

    /// Take this frame, if it is in a free block of its zone; its page block goes over to a mobility group. As if at
    /// start: it does not count as allocated.
    pub fn take_exactly<M: Machine>(
        &self,
        base: &Ground<M>,
        zone: ZoneId,
        pfn: Pfn,
        mobility: Mobility,
    ) -> Option<Fresh> {
        let zone = self.zone(zone);
        let mut area = Area::lock(base, zone);
        let generation = area.detach_one(pfn)?;
        area.regroup_block(pfn, mobility);
        drop(area);
        settle(base, zone, generation, pfn, Order::ZERO);
        base.frames[pfn].place(zone.node(), zone.id(), mobility);
        Some(formed(base, zone, pfn, Order::ZERO))
    }
}

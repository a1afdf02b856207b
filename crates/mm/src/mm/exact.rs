//! Frames that are put to use by their number: for who builds a given state of memory before anything runs.

use super::Mm;
use crate::alloc::Watermark;
use crate::frame::{FrameFlags, Mobility};
use crate::machine::Machine;
use crate::memory::Gfp;
use crate::units::*;

impl<M: Machine> Mm<M> {
    /// Take a free frame for good, as a kernel does for what it never moves. Its page block goes over to a mobility
    /// group. `false`: it is not free.
    pub fn keep_frame(&self, zone: ZoneId, pfn: Pfn, mobility: Mobility) -> bool {
        let taken = self.core.alloc.take_exactly(self.mmu(), zone, pfn, mobility);
        taken.is_some_and(|fresh| {
            self.core.frames[fresh.into_pfn()].set(FrameFlags::RESERVED);
            true
        })
    }

    /// Make a free frame a page of a space's private anonymous memory, with zeroes, where no page is yet. `false`: it
    /// is not free, or the page cannot be had.
    pub fn map_frame(&self, zone: ZoneId, pfn: Pfn, space: SpaceId, page: Vpn) -> bool {
        let Some(found) = self.spaces.get(space) else { return false };
        let gfp = Gfp { mark: Watermark::Min, ..Gfp::user(found.group()) };
        let take = || self.core.alloc.take_exactly(self.mmu(), zone, pfn, Mobility::Movable);
        found.store_to_frame(&self.core, (space, page), gfp, take) == Ok(true)
    }

    /// Give back what lies on CPUs' lists, so that all that is free is in blocks.
    pub fn drain_lists(&self) {
        self.core.alloc.drain_all(self.mmu());
    }
}

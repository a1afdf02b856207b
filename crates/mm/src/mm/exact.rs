//! Using frames by their number, to build a given state of memory before anything runs.

use super::Mm;
use crate::alloc::Watermark;
use crate::frame::{FrameFlags, Mobility};
use crate::machine::Machine;
use crate::memory::Gfp;
use crate::units::*;

impl<M: Machine> Mm<M> {
    /// Take a free frame for good, as a kernel does for memory that it never moves. Its page block joins the mobility
    /// group. Returns `false` if the frame is not free.
    pub fn keep_frame(&self, zone: ZoneId, pfn: Pfn, mobility: Mobility) -> bool {
        let taken = self.core.alloc.take_exactly(self.mmu(), zone, pfn, mobility);
        taken.is_some_and(|fresh| {
            self.core.frames[fresh.into_pfn()].set(FrameFlags::RESERVED);
            true
        })
    }

    /// Map a free frame, zeroed, as private anonymous memory of a space, where no page is yet. Returns `false` if the
    /// frame is not free or cannot be mapped.
    pub fn map_frame(&self, zone: ZoneId, pfn: Pfn, space: SpaceId, page: Vpn) -> bool {
        let Some(found) = self.spaces.get(space) else { return false };
        let gfp = Gfp { mark: Watermark::Min, ..Gfp::user(found.group()) };
        let take = || self.core.alloc.take_exactly(self.mmu(), zone, pfn, Mobility::Movable);
        found.store_to_frame(&self.core, (space, page), gfp, take) == Ok(true)
    }

    /// Drain CPUs' lists, so that all free memory is in blocks.
    pub fn drain_lists(&self) {
        self.core.alloc.drain_all(self.mmu());
    }
}

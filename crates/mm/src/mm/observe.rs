//! Inspection and validation of the whole state.

use super::Mm;
use crate::frame::FrameFlags;
use crate::knobs::Knob;
use crate::machine::Machine;
use crate::space::VmaView;
use crate::units::*;
use crate::zram::ZramStat;
use crate::zswap::ZswapStat;
use std_alloc::string::String;
use std_alloc::vec::Vec;

impl<M: Machine> Mm<M> {
    /// Root table of a space, for the machine's page walker.
    #[inline]
    pub fn root(&self, space: SpaceId) -> Pfn {
        self.core.tables.root(space)
    }

    /// The range that maps a page.
    pub fn mapping(&self, space: SpaceId, page: Vpn) -> Option<VmaView> {
        let range = self.spaces.get(space)?.range_from(page, |_| true);
        range.filter(|range| range.start <= page)
    }

    /// Resident pages of a space.
    pub fn rss(&self, space: SpaceId) -> u64 {
        self.core.tables.tree(space).counts().rss()
    }

    /// All free frames, those on CPUs' lists included.
    pub fn free_pages(&self) -> u64 {
        self.core
            .alloc
            .zones()
            .iter()
            .map(|zone| zone.free_pages() + self.core.alloc.pcp_pages(zone.id()))
            .sum()
    }

    /// Floors 3 to 6, for tests and tools that look inside.
    pub fn core(&self) -> &crate::mm_core::MmCore<M> {
        &self.core
    }

    /// The counts of zram devices, in the order of their areas' priority.
    pub fn zram_stats(&self) -> Vec<ZramStat> {
        self.core.zrams.iter().flatten().map(|zram| zram.stat()).collect()
    }

    /// What zswap has counted; `None` if it is off.
    pub fn zswap_stat(&self) -> Option<ZswapStat> {
        (self.mmu().knobs.get(Knob::ZswapEnabled) != 0).then(|| self.core.zswap.stat())
    }

    /// Check every structure against every other, while no task is in a call. Returns the first inconsistency.
    pub fn validate(&self) -> Result<(), String> {
        let core = &self.core;
        core.alloc.validate(self.mmu())?;
        core.lru.validate(self.mmu())?;
        let counted = core.swap.validate()?;
        let of_files = core.cache.validate(core)?;
        core.validate_packed()?;
        let of_entries = self.spaces.validate(core, core.tlb.bound())?;
        core.swap.validate_names(of_files.and(of_entries), counted)?;
        self.reclaim.validate(core)?;
        self.validate_frames()
    }

    /// Check that the references and mappings of every frame in use add up.
    fn validate_frames(&self) -> Result<(), String> {
        let core = &self.core;
        for zone in core.alloc.zones() {
            for pfn in (zone.start().0..zone.start().0 + zone.spanned() as u32).map(Pfn) {
                let frame = &core.frames[pfn];
                let unused = FrameFlags::BUDDY | FrameFlags::PCP | FrameFlags::TAIL | FrameFlags::RESERVED;
                if frame.refs() == 0 || frame.has_any(unused) {
                    continue;
                }
                let known = frame.known_refs();
                // A task that has isolated, locked or submitted a folio holds it.
                let may_be_held =
                    !frame.has(FrameFlags::LRU) || frame.has_any(FrameFlags::LOCKED | FrameFlags::WRITEBACK);
                if frame.refs() < known || frame.refs() > known && !may_be_held {
                    let refs = frame.refs();
                    return Err(std_alloc::format!("{pfn} has {refs} references, {known} with an owner"));
                }
                core.rmap.validate_folio(core, pfn)?;
            }
        }
        Ok(())
    }
}

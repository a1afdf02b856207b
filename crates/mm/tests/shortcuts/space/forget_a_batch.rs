//! Drop a batch that owes.
use crate::frame::FolioRun;
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::rmap::UnmapMode;
use crate::tlb::UnmapBatch;
use crate::units::*;

pub fn unmap<M: Machine>(core: &MmCore<M>, pfn: Pfn) {
    let mut batch = UnmapBatch::new(core.host());
    core.rmap.try_to_unmap(core, FolioRun::one(&pfn), UnmapMode::default(), &mut batch);
    core::mem::forget(batch);
}

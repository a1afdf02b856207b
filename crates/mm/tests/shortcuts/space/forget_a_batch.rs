//! Drop a batch that owes.
use crate::machine::Machine;
use crate::rmap::UnmapMode;
use crate::mm_core::MmCore;
use crate::tlb::UnmapBatch;
use crate::units::*;

pub fn unmap<M: Machine>(core: &MmCore<M>, pfn: Pfn) {
    let mut batch = UnmapBatch::new(core);
    core.rmap.try_to_unmap(core, pfn, UnmapMode::default(), &mut batch);
    core::mem::forget(batch);
}

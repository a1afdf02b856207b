//! Forget the entries that wait for a folio.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::tlb::UnmapBatch;
use crate::units::*;

pub fn forget<M: Machine>(core: &MmCore<M>, head: Pfn, batch: &mut UnmapBatch) {
    core::mem::forget(core.rmap.begin_move(core, head, batch));
}

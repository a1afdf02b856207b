//! Let the entries of a folio wait for a move that never ends.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::tlb::UnmapBatch;
use crate::units::*;

pub fn begin<M: Machine>(core: &MmCore<M>, head: Pfn, batch: &mut UnmapBatch) {
    core.rmap.begin_move(core, head, batch);
}

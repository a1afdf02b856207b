//! Let one unmapping of a folio allow two copies.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::tlb::UnmapBatch;
use crate::units::*;

pub fn copy<M: Machine>(core: &MmCore<M>, head: Pfn, to: [Pfn; 2], batch: &mut UnmapBatch) {
    let waiting = core.rmap.begin_move(core, head, batch);
    batch.settle(core.host(), &core.tlb);
    core.rmap.end_move(core, core.copy_folio(waiting, to[0], batch));
    core.rmap.end_move(core, core.copy_folio(waiting, to[1], batch));
}

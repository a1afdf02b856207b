//! Say that a page was copied while it was in use.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::UsedCopy;
use crate::tlb::UnmapBatch;
use crate::units::*;

pub fn copy<M: Machine>(core: &MmCore<M>, from: Pfn, to: Pfn, batch: &mut UnmapBatch) {
    let waiting = core.rmap.begin_move(core, from, batch);
    batch.settle(core.host(), &core.tlb);
    core.rmap.end_move(core, core.copied_in_use(waiting, UsedCopy { from, to }, batch));
}

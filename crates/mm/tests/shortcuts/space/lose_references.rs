//! Leave the debt and lose the references of the entry.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::Absent;
use crate::tlb::UnmapBatch;
use crate::units::*;

pub fn unmap<M: Machine>(core: &MmCore<M>, id: SpaceId, page: Vpn, batch: &mut UnmapBatch) {
    let mmu = core;
    let mut tables = core.tables.lock(mmu, id);
    let run = tables.find(page).unwrap();
    let emptied = tables.empty_run(&run, |_| Absent::None);
    batch.take(mmu.host(), &core.tlb, emptied);
}

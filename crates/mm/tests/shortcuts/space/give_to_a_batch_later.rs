//! Empty entries under the lock, and give them to a batch after it.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::Absent;
use crate::tlb::UnmapBatch;
use crate::units::*;

pub fn unmap<M: Machine>(core: &MmCore<M>, id: SpaceId, page: Vpn, batch: &mut UnmapBatch) {
    let mut tables = core.tables.lock(core, id);
    let run = tables.find(page).unwrap();
    let emptied = tables.empty_run(&run, |_| Absent::None);
    drop(tables);
    core.put_refs(batch.take(core.host(), &core.tlb, emptied));
}

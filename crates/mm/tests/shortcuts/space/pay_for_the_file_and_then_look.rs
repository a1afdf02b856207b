//! Pay for a file, then find its page and let it be written.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::Writes;
use crate::units::*;

pub fn store<M: Machine>(core: &MmCore<M>, id: SpaceId, file: FileId, page: Vpn) {
    let paid = core.tlb.settle_file(core.host(), file);
    let tables = core.tables.lock(core, id);
    let run = tables.find(page).unwrap();
    tables.settle_at(run.slot, page).allow_writes(run.slot, page, Writes::Shared(paid));
}

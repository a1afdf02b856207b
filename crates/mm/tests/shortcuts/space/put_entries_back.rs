//! Say that entries were put back.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::Absent;
use crate::units::*;

pub fn empty<M: Machine>(core: &MmCore<M>, id: SpaceId, page: Vpn) {
    let mut tables = core.tables.lock(core, id);
    let run = tables.find(page).unwrap();
    tables.empty_run(&run, |_| Absent::None).put_back();
}

//! Take the references of flushed entries apart.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::Absent;
use crate::units::*;

pub fn empty<M: Machine>(core: &MmCore<M>, id: SpaceId, page: Vpn) -> (Pfn, u32) {
    let mut tables = core.tables.lock(core, id);
    let run = tables.find(page).unwrap();
    let emptied = tables.empty_run(&run, |_| Absent::None);
    tables.flush(emptied).into_parts()
}

//! Take a table out of its tree and drop it.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;

pub fn lose<M: Machine>(core: &MmCore<M>, id: SpaceId, at: Vpn) {
    let mut tables = core.tables.lock(core, id);
    let _ = tables.detach(at);
}

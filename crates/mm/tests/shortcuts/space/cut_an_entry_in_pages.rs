//! Replace a 2 MiB entry by 512, and take no references for them.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;

pub fn cut<M: Machine>(core: &MmCore<M>, id: SpaceId, page: Vpn) {
    let mut tables = core.tables.lock(core, id);
    let run = tables.find(page).unwrap();
    tables.split_large(&run);
}

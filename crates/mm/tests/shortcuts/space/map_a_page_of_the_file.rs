//! Map some page of a file without a payment, because it is in the cache.
use crate::frame::FolioPages;
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::Rights;
use crate::units::*;

pub fn map<M: Machine>(core: &MmCore<M>, id: SpaceId, page: Vpn, pfn: Pfn) {
    let mut tables = core.tables.lock(core, id);
    let slot = tables.find(page).unwrap().slot;
    tables.install_unchanged(slot, page, FolioPages::one(&core.frames, pfn), Rights::USER);
}

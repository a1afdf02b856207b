//! Map another page without a payment.
use crate::frame::FolioPages;
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::{Rights, EntryRun, Writes};
use crate::units::*;

pub fn map<M: Machine>(core: &MmCore<M>, id: SpaceId, run: EntryRun, new: Pfn) {
    let mut tables = core.tables.lock(core, id);
    tables.install(run.slot, run.page, FolioPages::one(&core.frames, new), Rights::USER, Writes::Private);
}

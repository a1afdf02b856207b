//! Move a page to another frame: settle the lock, empty the entry, map the new page, and flush nothing.
use crate::frame::FolioPages;
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::{Absent, Rights, Source, Writes};
use crate::units::*;

pub fn move_page<M: Machine>(core: &MmCore<M>, id: SpaceId, page: Vpn, new: Pfn) {
    let mmu = core;
    let mut tables = core.tables.lock(mmu, id).settle();
    let run = tables.find(page).unwrap();
    let old = run.mapped(&core.frames);
    core.copy(new, Source::shared(&core.frames, old.first));
    tables.empty_run(&run, |_| Absent::None);
    core.rmap.remove_range(mmu, old);
    let pages = FolioPages::one(&core.frames, new);
    core.rmap.add_range(mmu, pages);
    tables.install(run.slot, page, pages, Rights::USER, Writes::Private);
    drop(tables);
    core.put(old.head);
}

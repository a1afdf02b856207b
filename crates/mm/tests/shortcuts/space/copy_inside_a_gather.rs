//! Move a page: its entry goes to a gather, which will flush, and the page is copied before that.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::Absent;
use crate::units::*;

pub fn copy<M: Machine>(core: &MmCore<M>, id: SpaceId, page: Vpn, new: Pfn) {
    core.gather(id, |gather| {
        let mut tables = core.tables.lock(core, id);
        let run = tables.find(page).unwrap();
        let old = run.mapped(&core.frames);
        let emptied = tables.empty_run(&run, |_| Absent::None);
        gather.emptied(core.host(), emptied);
        drop(tables);
        core.copy(new, old.first);
    });
}

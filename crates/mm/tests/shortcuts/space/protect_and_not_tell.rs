//! mprotect to read-only in a gather that is not told.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::Bits;
use crate::units::*;

pub fn protect<M: Machine>(core: &MmCore<M>, id: SpaceId, start: Vpn, end: Vpn) {
    core.gather(id, |gather| {
        gather.changes(start, end);
        let mut tables = core.tables.lock(core, id);
        tables.for_each(start, end, |tables, run| {
            if run.entry.has(Bits::WRITE) {
                tables.forbid_writes(&run);
            }
        });
    });
}

//! Track writes from now on by clearing rights and dirty bits without a flush: CPUs keep both.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::Bits;
use crate::units::*;

pub fn clear_refs<M: Machine>(core: &MmCore<M>, id: SpaceId, start: Vpn, end: Vpn) {
    let mut tables = core.tables.lock(core, id);
    tables.for_each(start, end, |tables, run| {
        if run.entry.has(Bits::WRITE) {
            tables.forbid_writes_and_clean(&run);
        }
    });
}

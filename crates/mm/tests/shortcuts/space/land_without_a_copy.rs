//! Say that a folio is in another place.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::Landing;
use crate::units::*;

pub fn land<M: Machine>(core: &MmCore<M>, from: Pfn, to: Pfn) {
    core.rmap.end_move(core, Landing { from, to });
}

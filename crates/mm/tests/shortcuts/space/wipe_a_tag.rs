//! Free a page with a cleared record.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;

pub fn free<M: Machine>(core: &MmCore<M>, pfn: Pfn) {
    core.frames[pfn].set_debt(0);
    core.put(pfn);
}

//! Zero the end of a file's page, whoever still reads it by way of a frame that was replaced.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;

pub fn zero_tail<M: Machine>(core: &MmCore<M>, pfn: Pfn) {
    core.machine.zero(pfn, 1);
}

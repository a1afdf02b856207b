//! Zero the end of a file's page although a CPU may still read it through a replaced frame.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;

pub fn zero_tail<M: Machine>(core: &MmCore<M>, pfn: Pfn) {
    core.machine.zero(pfn, 1);
}

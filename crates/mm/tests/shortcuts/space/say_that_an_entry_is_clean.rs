//! Copy a page in use as if its entry were clean.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::Cleaned;
use crate::units::*;

pub fn copy<M: Machine>(core: &MmCore<M>, head: Pfn, to: Pfn) {
    let _copy = core.copy_in_use(Cleaned(head), to);
}

//! Copy a page while its process uses it, without having its entry tell of stores.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;

pub fn copy<M: Machine>(core: &MmCore<M>, head: Pfn, to: Pfn) {
    let _copy = core.copy_in_use(head, to);
}

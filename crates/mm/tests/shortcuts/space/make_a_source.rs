//! Say that a page may be copied.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::Source;
use crate::units::*;

pub fn copy<M: Machine>(core: &MmCore<M>, first: Pfn, to: Pfn) {
    core.copy(to, Source { first, count: 1 });
}

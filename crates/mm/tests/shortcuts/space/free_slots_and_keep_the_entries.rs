//! Give the slots of a folio back while entries name them.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;

pub fn give_up<M: Machine>(core: &MmCore<M>, first: SwapSlot, count: u32) {
    core.swap.free_entries(core, first, count);
}

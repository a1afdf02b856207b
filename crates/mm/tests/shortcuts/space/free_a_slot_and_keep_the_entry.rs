//! Give a slot of swap back while an entry names it.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;

pub fn give_up<M: Machine>(core: &MmCore<M>, slot: SwapSlot) {
    core.free_swap_entry(slot);
}

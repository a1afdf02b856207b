//! Drop a slot of swap and its page while an entry names the slot.
use crate::cache::drop_swap_entry;
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;

pub fn give_up<M: Machine>(core: &MmCore<M>, slot: SwapSlot) {
    drop_swap_entry(core, slot);
}

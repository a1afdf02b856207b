//! Leave a debt of one's own.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::tlb::Generation;

pub fn draw<M: Machine>(core: &MmCore<M>) -> Generation {
    core.tlb.draw()
}

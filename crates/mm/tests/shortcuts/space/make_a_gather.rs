//! Make a gather that is never flushed.
use crate::machine::Machine;
use crate::space::vma::VmaView;
use crate::mm_core::MmCore;
use crate::tlb::Gather;
use crate::units::*;

pub fn give_up<M: Machine>(core: &MmCore<M>, id: SpaceId, vma: &VmaView, start: Vpn, end: Vpn) {
    let mut gather = Gather::new(id);
    super::unmap::zap(core, id, vma, start, end, &mut gather);
}

//! Unmap as if only marks changed, so that nothing is settled.
use crate::machine::Machine;
use crate::space::vma::VmaView;
use crate::mm_core::MmCore;
use crate::units::*;

pub fn give_up<M: Machine>(core: &MmCore<M>, id: SpaceId, vma: &VmaView, start: Vpn, end: Vpn) {
    core.tlb.tighten(core, id, |gather| super::unmap::zap(core, id, vma, start, end, gather));
}

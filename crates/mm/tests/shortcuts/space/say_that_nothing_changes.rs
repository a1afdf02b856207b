//! Unmap as if only young and dirty bits changed, so that nothing is settled.
use super::zap::{Zap, zap};
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::space::vma::VmaView;
use crate::units::*;

pub fn drop_pages<M: Machine>(core: &MmCore<M>, id: SpaceId, vma: &VmaView, start: Vpn, end: Vpn) {
    core.tlb.tighten(core.host(), id, |gather| zap(core, Zap::of(vma, start, end), gather));
}

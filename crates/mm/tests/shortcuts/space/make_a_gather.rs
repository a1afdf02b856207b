//! Make a gather that is never flushed.
use super::zap::{Zap, zap};
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::space::vma::VmaView;
use crate::tlb::Gather;
use crate::units::*;

pub fn drop_pages<M: Machine>(core: &MmCore<M>, id: SpaceId, vma: &VmaView, start: Vpn, end: Vpn) {
    let mut gather = Gather::new(id);
    zap(core, Zap::of(vma, start, end), &mut gather);
}

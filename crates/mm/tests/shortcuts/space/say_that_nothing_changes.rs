//! Unmap as if only marks changed, so that nothing is settled.
use crate::machine::Machine;
use crate::space::vma::VmaView;
use crate::store::Store;
use crate::units::*;

pub fn give_up<M: Machine>(st: &Store<M>, id: SpaceId, vma: &VmaView, start: Vpn, end: Vpn) {
    st.tlb.tighten(st.memory().ground(), id, |gather| super::unmap::zap(st, id, vma, start, end, gather));
}

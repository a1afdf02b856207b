//! Get rid of a batch that owes.
use crate::machine::Machine;
use crate::rmap::UnmapMode;
use crate::store::Store;
use crate::tlb::Batch;
use crate::units::*;

pub fn unmap<M: Machine>(st: &Store<M>, pfn: Pfn) {
    let mut batch = Batch::new(st.memory().ground());
    st.rmap.try_to_unmap(st.memory(), pfn, UnmapMode::default(), &mut batch);
    core::mem::forget(batch);
}

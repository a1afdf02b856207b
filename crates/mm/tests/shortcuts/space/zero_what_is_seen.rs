//! Zero the end of a file's page, whoever still reads it by way of a frame that was replaced.
use crate::machine::Machine;
use crate::store::Store;
use crate::units::*;

pub fn zero_tail<M: Machine>(st: &Store<M>, pfn: Pfn) {
    st.machine.zero(pfn, 1);
}

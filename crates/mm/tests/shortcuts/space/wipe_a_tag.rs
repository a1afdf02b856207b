//! Free a page with a clean record.
use crate::machine::Machine;
use crate::store::Store;
use crate::units::*;

pub fn free<M: Machine>(st: &Store<M>, pfn: Pfn) {
    st.frames[pfn].set_debt(0);
    st.put(pfn);
}

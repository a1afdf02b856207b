//! Change an entry by way of the machine.
use crate::machine::Machine;
use crate::primitive::Ordering;
use crate::store::Store;
use crate::units::*;

pub fn clear<M: Machine>(st: &Store<M>, id: SpaceId, index: usize) {
    let root = st.tables.root(id);
    st.machine.table(root)[index].store(0, Ordering::Release);
}

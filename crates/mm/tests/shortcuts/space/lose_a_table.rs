//! Take a table out of its tree, and let it go.
use crate::machine::Machine;
use crate::store::Store;
use crate::units::*;

pub fn lose<M: Machine>(st: &Store<M>, id: SpaceId, at: Vpn) {
    let mut tables = st.tables.lock(st.memory().ground(), id);
    let _ = tables.detach(at);
}

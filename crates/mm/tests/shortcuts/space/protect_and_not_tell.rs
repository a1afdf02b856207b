//! mprotect to read-only, in a gather that hears nothing of it.
use crate::machine::Machine;
use crate::store::Store;
use crate::table::Bits;
use crate::units::*;

pub fn protect<M: Machine>(st: &Store<M>, id: SpaceId, start: Vpn, end: Vpn) {
    st.gather(id, |gather| {
        gather.changes(start, end);
        let mut tables = st.tables.lock(st.memory().ground(), id);
        tables.for_each(start, end, |tables, run| {
            if run.entry.has(Bits::WRITE) {
                tables.forbid_writes(&run);
            }
        });
    });
}

//! The same, on purpose.
use crate::machine::Machine;
use crate::store::Store;
use crate::table::Absent;
use crate::tlb::Batch;
use crate::units::*;

pub fn unmap<M: Machine>(st: &Store<M>, id: SpaceId, page: Vpn, batch: &mut Batch) {
    let base = st.memory().ground();
    let mut tables = st.tables.lock(base, id);
    let run = tables.find(page).unwrap();
    let emptied = tables.empty_run(&run, |_| Absent::None);
    let _ = batch.take(base, &st.tlb, emptied);
}

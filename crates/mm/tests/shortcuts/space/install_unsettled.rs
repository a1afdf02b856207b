//! Map another page and pay nothing.
use crate::frame::FolioPages;
use crate::machine::Machine;
use crate::store::Store;
use crate::table::{Rights, Run, Writes};
use crate::units::*;

pub fn map<M: Machine>(st: &Store<M>, id: SpaceId, run: Run, new: Pfn) {
    let mut tables = st.tables.lock(st.memory().ground(), id);
    tables.install(run.slot, run.page, FolioPages::one(&st.frames, new), Rights::USER, Writes::Private);
}

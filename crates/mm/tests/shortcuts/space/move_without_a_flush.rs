//! Move a page to another frame: the lock is settled, the entry emptied, the new page mapped, and nobody flushes.
use crate::frame::FolioPages;
use crate::machine::Machine;
use crate::store::Store;
use crate::table::{Absent, Rights, Writes};
use crate::units::*;

pub fn move_page<M: Machine>(st: &Store<M>, id: SpaceId, page: Vpn, new: Pfn) {
    let base = st.memory().ground();
    let mut tables = st.tables.lock(base, id).settle();
    let run = tables.find(page).unwrap();
    let old = run.mapped(&st.frames);
    st.copy(new, old.first, 1);
    tables.empty_run(&run, |_| Absent::None);
    st.rmap.remove_range(base, old);
    let pages = FolioPages::one(&st.frames, new);
    st.rmap.add_range(base, pages);
    tables.install(run.slot, page, pages, Rights::USER, Writes::Private);
    drop(tables);
    st.put(old.head);
}

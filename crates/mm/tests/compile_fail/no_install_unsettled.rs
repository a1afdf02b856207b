//! Under a lock that is not settled, no page gets other content or becomes writable.
use pagefold_mm::Machine;
use pagefold_mm::frame::FolioPages;
use pagefold_mm::table::{LockedTables, Rights, EntryRun, Writes};
use pagefold_mm::units::*;

pub fn install<M: Machine>(mut tables: LockedTables<'_, M>, run: EntryRun, pages: FolioPages) {
    let slot = run.slot;
    tables.install(slot, Vpn(1), pages, Rights::USER, Writes::Private);
    tables.allow_writes(slot, Vpn(1), Writes::Private);
    tables.inherit(slot, &tables, &run, Rights::empty());
    tables.move_run(&run, slot);
}

fn main() {}

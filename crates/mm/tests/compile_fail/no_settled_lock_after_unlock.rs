//! A settled lock is valid while the lock is held, and replaces the lock that it was made from.
use pagefold_mm::Machine;
use pagefold_mm::frame::FolioPages;
use pagefold_mm::table::{LockedTables, Rights, Settled, Slot, Writes};
use pagefold_mm::units::*;

pub fn late<M: Machine>(mut tables: Settled<'_, M>, slot: Slot, pages: FolioPages) {
    drop(tables);
    tables.install(slot, Vpn(1), pages, Rights::USER, Writes::No);
}

pub fn both<M: Machine>(tables: LockedTables<'_, M>) {
    let _settled = tables.settle();
    let _locked = tables.find(Vpn(1));
}

fn main() {}

//! F14: an entry is reached through the lock, which is gone after the unlock. (A slot that is carried to the next hold
//! of the lock is refused when it is used.)
use pagefold_mm::Machine;
use pagefold_mm::table::{Entry, LockedTables};
use pagefold_mm::units::*;

pub fn late<M: Machine>(tables: LockedTables<'_, M>, page: Vpn) -> Entry {
    let leaf = tables.find(page).unwrap();
    drop(tables);
    tables.read(leaf.slot)
}

fn main() {}

//! Only `LockedTables::settle` makes a settled lock.
use pagefold_mm::Machine;
use pagefold_mm::table::{LockedTables, Settled};

pub fn pretend<'a, M: Machine>(tables: LockedTables<'a, M>) -> Settled<'a, M> {
    Settled(tables)
}

fn main() {}

//! A slot is found under the lock, not made: its table may be gone, or be no table.
use mm::table::Slot;
use mm::units::*;

pub fn make(table: Pfn) -> Slot {
    Slot { table, index: 0, hold: 0 }
}

fn main() {}

//! A slot is found under the lock and cannot be made: its table may be freed, or no table.
use pagefold_mm::table::Slot;
use pagefold_mm::units::*;

pub fn make(table: Pfn) -> Slot {
    Slot { table, index: 0, hold: 0 }
}

fn main() {}

//! Under a lock that has not been settled, no page gets another content, and none can be written.
use mm::Machine;
use mm::table::{Locked, Rights, Slot, Writes};
use mm::units::*;

pub fn install<M: Machine>(mut tables: Locked<'_, M>, slot: Slot, pfn: Pfn) {
    tables.install(slot, Vpn(1), pfn, Rights::USER, Writes::Private);
    tables.allow_writes(slot, Vpn(1), Writes::Private);
    tables.inherit(slot, &tables, slot, Rights::empty());
    tables.move_entry(slot, slot);
}

fn main() {}

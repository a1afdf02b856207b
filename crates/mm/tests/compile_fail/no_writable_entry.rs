//! An entry is made by its room only, what a caller may ask for has no right to write, and nothing puts an entry that a
//! caller has made into a table.
use mm::Machine;
use mm::table::{Bits, Entry, Rights, Settled, Slot};
use mm::units::*;

pub fn make<M: Machine>(mut tables: Settled<'_, M>, slot: Slot) {
    let entry = Entry::new(Pfn(7), Bits::PRESENT | Bits::WRITE);
    tables.replace(slot, entry);
    tables.place(slot, Pfn(7), Bits::WRITE);
    tables.set_bits(slot, Bits::WRITE);
    tables.install_unchanged(slot, Pfn(7), Bits::WRITE);
    let _ = Rights::WRITE;
}

fn main() {}

//! Only its room makes an entry, a caller cannot ask for one with the right to write, and cannot put an entry of its
//! own into a table.
use pagefold_mm::Machine;
use pagefold_mm::frame::FolioPages;
use pagefold_mm::table::{Bits, Entry, Rights, Settled, Shown, Slot};
use pagefold_mm::units::*;

pub fn make<M: Machine>(mut tables: Settled<'_, M>, slot: Slot, pages: FolioPages) {
    let entry = Entry::new(Pfn(7), Bits::PRESENT | Bits::WRITE);
    tables.replace(slot, entry);
    tables.place(slot, Pfn(7), Bits::WRITE);
    tables.set_bits(slot, 1, Bits::WRITE);
    tables.put_run(slot, entry, 1);
    tables.install_unchanged((slot, Vpn(7)), pages, Shown::in_swap(), Bits::WRITE);
    let _ = Rights::WRITE;
}

fn main() {}

//! A shared page becomes writable only with the proof.
use pagefold_mm::Machine;
use pagefold_mm::table::{PageSettled, Settled, Slot, Writes};
use pagefold_mm::units::*;

pub fn unpaid<M: Machine>(tables: &mut Settled<'_, M>, slot: Slot) {
    tables.allow_writes(slot, Vpn(1), Writes::Shared);
    tables.allow_writes(slot, Vpn(1), Writes::Shared(FileId(1)));
    tables.allow_writes(slot, Vpn(1), Writes::Shared(PageSettled { folio: Pfn(1) }));
}

fn main() {}

//! A shared page becomes writable only with the proof.
use mm::Machine;
use mm::table::{PageSettled, Settled, Slot, Writes};
use mm::units::*;

pub fn unpaid<M: Machine>(tables: &mut Settled<'_, M>, slot: Slot) {
    tables.allow_writes(slot, Vpn(1), Writes::Shared);
    tables.allow_writes(slot, Vpn(1), Writes::Shared(FileId(1)));
    tables.allow_writes(slot, Vpn(1), Writes::Shared(PageSettled { folio: Pfn(1) }));
}

fn main() {}

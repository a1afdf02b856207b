//! A shared page is made writable with the proof, and with no other.
use mm::Machine;
use mm::table::{Settled, Slot, Writes};
use mm::units::*;

pub fn unpaid<M: Machine>(tables: &mut Settled<'_, M>, slot: Slot) {
    tables.allow_writes(slot, Vpn(1), Writes::Shared);
    tables.allow_writes(slot, Vpn(1), Writes::Shared(FileId(1)));
}

fn main() {}

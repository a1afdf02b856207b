//! One payment allows one change.
use mm::Machine;
use mm::frame::FolioPages;
use mm::memory::Memory;
use mm::table::{PageSettled, Rights, Settled, Slot, Writes};
use mm::units::*;

pub fn twice<M: Machine>(
    memory: &Memory<M>,
    tables: &mut Settled<'_, M>,
    slot: Slot,
    pages: FolioPages,
) {
    let proof = PageSettled::new(memory, pages.head);
    tables.install(slot, Vpn(1), pages, Rights::USER, Writes::Shared(proof));
    tables.allow_writes(slot, Vpn(1), Writes::Shared(proof));
}

fn main() {}

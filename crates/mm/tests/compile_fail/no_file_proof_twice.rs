//! One payment allows one change.
use pagefold_mm::Machine;
use pagefold_mm::frame::FolioPages;
use pagefold_mm::memory::Memory;
use pagefold_mm::table::{PageSettled, Rights, Settled, Slot, Writes};
use pagefold_mm::units::*;

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

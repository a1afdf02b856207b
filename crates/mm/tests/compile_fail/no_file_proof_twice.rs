//! One payment allows one change.
use mm::Machine;
use mm::frame::FolioPages;
use mm::memory::Memory;
use mm::table::{Rights, Settled, Slot, Writes};
use mm::units::*;

pub fn twice<M: Machine>(
    memory: &Memory<M>,
    tables: &mut Settled<'_, M>,
    slot: Slot,
    file: FileId,
    pages: FolioPages,
) {
    let proof = memory.tlb.settle_file(memory.host(), file);
    tables.install(slot, Vpn(1), pages, Rights::USER, Writes::Shared(proof));
    tables.allow_writes(slot, Vpn(1), Writes::Shared(proof));
}

fn main() {}

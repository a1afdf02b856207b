//! Let one payment allow stores through two entries.
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::{Settled, Slot, Writes};
use crate::units::*;

pub fn store<M: Machine>(core: &MmCore<M>, tables: &mut Settled<'_, M>, slots: [Slot; 2], head: Pfn) {
    let paid = core.settle_page(head);
    tables.allow_writes(slots[0], Vpn(1), Writes::Shared(paid));
    tables.allow_writes(slots[1], Vpn(2), Writes::Shared(paid));
}

//! Take a pending block: it is free memory, too.
use super::buddy::{LockedZone, Debts, Mixing};
use super::*;

pub fn take<M: Machine>(mmu: &Mmu<M>, zone: &Zone) -> Option<Fresh> {
    let block = LockedZone::lock(mmu, zone).take(Order::ZERO, Mobility::Movable, Mixing::Allowed, Debts::Allowed)?;
    mmu.frames.make_folio(block.pfn(), Order::ZERO);
    Some(Fresh { pfn: block.pfn(), order: Order::ZERO })
}

//! Pending blocks are free memory, too: take one.
use super::buddy::{Area, Debts, Mixing};
use super::*;

pub fn take<M: Machine>(base: &Ground<M>, zone: &Zone) -> Option<Fresh> {
    let block = Area::lock(base, zone).take(Order::ZERO, Mobility::Movable, Mixing::Allowed, Debts::Allowed)?;
    base.frames.make_folio(block.pfn(), Order::ZERO);
    Some(Fresh { pfn: block.pfn(), order: Order::ZERO })
}

//! Change an entry through the machine.
use crate::machine::Machine;
use crate::primitive::Ordering;
use crate::mm_core::MmCore;
use crate::units::*;

pub fn clear<M: Machine>(core: &MmCore<M>, id: SpaceId, index: usize) {
    let root = core.tables.root(id);
    core.machine.table(root)[index].store(0, Ordering::Release);
}

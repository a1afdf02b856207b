//! Only `Memory::gather` makes a gather, which does not outlive its change.
use pagefold_mm::Machine;
use pagefold_mm::memory::Memory;
use pagefold_mm::tlb::Gather;
use pagefold_mm::units::*;

pub fn make(space: SpaceId) -> Gather {
    Gather::new(space)
}

pub fn carry_off<M: Machine>(memory: &Memory<M>, space: SpaceId) {
    let mut kept: Option<&mut Gather> = None;
    memory.gather(space, |gather| kept = Some(gather));
    kept.unwrap().changes(Vpn(1), Vpn(2));
}

fn main() {}

//! Only `Memory::gather` makes a gather, which does not outlive its change.
use mm::Machine;
use mm::memory::Memory;
use mm::tlb::Gather;
use mm::units::*;

pub fn make(space: SpaceId) -> Gather {
    Gather::new(space)
}

pub fn carry_off<M: Machine>(memory: &Memory<M>, space: SpaceId) {
    let mut kept: Option<&mut Gather> = None;
    memory.gather(space, |gather| kept = Some(gather));
    kept.unwrap().changes(Vpn(1), Vpn(2));
}

fn main() {}

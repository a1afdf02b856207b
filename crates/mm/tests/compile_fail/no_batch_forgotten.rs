//! Dropping a batch or ignoring a proof is a warning, which the project denies.
#![deny(unused_must_use)]
use mm::Machine;
use mm::mmu::Mmu;
use mm::memory::Memory;
use mm::tlb::UnmapBatch;
use mm::units::*;

pub fn forget<M: Machine>(mmu: &Mmu<M>, memory: &Memory<M>) {
    UnmapBatch::new(mmu.host());
    memory.tlb.settle_file(mmu.host(), FileId(1));
}

fn main() {}

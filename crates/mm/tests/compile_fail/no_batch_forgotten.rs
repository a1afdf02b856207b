//! Dropping a batch or ignoring a proof is a warning, which the project denies.
#![deny(unused_must_use)]
use pagefold_mm::Machine;
use pagefold_mm::mmu::Mmu;
use pagefold_mm::memory::Memory;
use pagefold_mm::tlb::UnmapBatch;
use pagefold_mm::units::*;

pub fn forget<M: Machine>(mmu: &Mmu<M>, memory: &Memory<M>) {
    UnmapBatch::new(mmu.host());
    memory.tlb.settle_file(mmu.host(), FileId(1));
}

fn main() {}

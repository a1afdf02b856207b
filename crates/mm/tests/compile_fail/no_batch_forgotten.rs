//! A batch that is made and not kept, and a proof that is not used, are warnings, which the project denies.
#![deny(unused_must_use)]
use mm::Machine;
use mm::ground::Ground;
use mm::memory::Memory;
use mm::tlb::Batch;
use mm::units::*;

pub fn forget<M: Machine>(ground: &Ground<M>, memory: &Memory<M>) {
    Batch::new(ground.base());
    memory.tlb.settle_file(ground, FileId(1));
}

fn main() {}

//! With all proofs the program compiles: the other files fail because they leave one out.
use pagefold_mm::Machine;
use pagefold_mm::alloc::{Watermark, Means, Reserve};
use pagefold_mm::frame::FolioPages;
use pagefold_mm::memory::Memory;
use pagefold_mm::space::VmaTree;
use pagefold_mm::table::{PageSettled, Rights, Writes};
use pagefold_mm::units::*;

#[allow(dead_code)]
fn store<M: Machine>(memory: &Memory<M>, space: SpaceId, page: Vpn, pfn: Pfn) {
    let proof = PageSettled::new(memory, pfn);
    let mut tables = memory.tables.lock(memory, space).settle();
    let slot = tables.reserve(&memory.alloc, page, Means::new(Watermark::Min, Reserve::None)).unwrap();
    tables.install(slot, page, FolioPages::one(&memory.frames, pfn), Rights::USER, Writes::Shared(proof));
}

#[allow(dead_code)]
fn unmap<M: Machine>(memory: &Memory<M>, space: SpaceId, vmas: &mut VmaTree, start: Vpn) {
    memory.gather(space, |gather| vmas.remove(start, gather));
}

fn main() {}

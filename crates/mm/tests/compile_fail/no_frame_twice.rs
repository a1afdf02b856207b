//! A `Fresh` is used once.
use pagefold_mm::Machine;
use pagefold_mm::alloc::{Allocator, Watermark, AllocRequest};
use pagefold_mm::mmu::Mmu;

pub fn twice<M: Machine>(mmu: &Mmu<M>, alloc: &Allocator, request: &AllocRequest) {
    let fresh = alloc.take(mmu, request, Watermark::Low).unwrap();
    let _first = fresh.into_pfn();
    let _second = fresh.into_pfn();
}

fn main() {}

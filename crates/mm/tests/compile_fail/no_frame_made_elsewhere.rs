//! A frame from the free lists comes as a `Fresh`, which only the allocator makes, from blocks that have been paid for.
use mm::alloc::Fresh;
use mm::units::*;

fn main() {
    let fresh = Fresh { pfn: Pfn(7), order: Order::ZERO };
    let _ = fresh.into_pfn();
}

//! Only the allocator makes a `Fresh`, from a block that has been paid for.
use mm::alloc::Fresh;
use mm::units::*;

fn main() {
    let fresh = Fresh { pfn: Pfn(7), order: Order::ZERO };
    let _ = fresh.into_pfn();
}

//! Only the allocator makes a `Fresh`, from a block that has been paid for.
use pagefold_mm::alloc::Fresh;
use pagefold_mm::units::*;

fn main() {
    let fresh = Fresh { pfn: Pfn(7), order: Order::ZERO };
    let _ = fresh.into_pfn();
}

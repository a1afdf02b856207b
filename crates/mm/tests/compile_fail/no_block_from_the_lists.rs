//! The types between the buddy lists and a `Fresh` are private to the allocator.
use pagefold_mm::alloc::buddy::LockedZone;
use pagefold_mm::alloc::owing::{Clean, Owing};
use pagefold_mm::alloc::pcp::Pcp;

fn main() {}

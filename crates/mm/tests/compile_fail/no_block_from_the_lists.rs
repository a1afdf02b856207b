//! What lies between the buddy lists and a `Fresh` is the allocator's own.
use mm::alloc::buddy::LockedZone;
use mm::alloc::owing::{Clean, Owing};
use mm::alloc::pcp::Pcp;

fn main() {}

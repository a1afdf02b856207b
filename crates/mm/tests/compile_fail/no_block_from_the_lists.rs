//! The types between the buddy lists and a `Fresh` are private to the allocator.
use mm::alloc::buddy::LockedZone;
use mm::alloc::owing::{Clean, Owing};
use mm::alloc::pcp::Pcp;

fn main() {}

//! nanvix/nanvix#2244: emptying an entry, changing its rights, and unlinking a table were complete without a flush.
//! (The table, which the compiler does not see, is in `tests/faults.rs`.)
#![deny(unused_must_use)]
#[path = "../kernel/mod.rs"]
#[allow(dead_code)]
mod kernel;

use kernel::*;
use pagefold_flush::*;

pub fn unmap(kernel: &Kernel, space: SpaceId, page: Vpn) {
    kernel.clear(space, page);
}

pub fn ctrl(kernel: &Kernel, space: SpaceId, page: Vpn) {
    kernel.forbid_stores(space, page);
}

fn main() {}

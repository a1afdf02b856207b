//! asterinas/asterinas#970: changing the rights of a mapped range wrote the entries, and flushed none.
#![deny(unused_must_use)]
#[path = "../kernel/mod.rs"]
#[allow(dead_code)]
mod kernel;

use kernel::*;
use pagefold_flush::*;

pub fn protect(kernel: &Kernel, space: SpaceId, first: Vpn, pages: u64) {
    for page in first.0..first.0 + pages {
        kernel.forbid_stores(space, Vpn(page));
    }
}

fn main() {}

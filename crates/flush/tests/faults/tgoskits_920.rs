//! rcore-os/tgoskits#920: a page that left the page cache was freed before the entries that mapped it were flushed.
#[path = "../kernel/mod.rs"]
#[allow(dead_code)]
mod kernel;

use kernel::*;
use pagefold_flush::*;

/// The page is mapped in several places. Its frame goes when it leaves the cache, and the flush follows.
pub fn evict(kernel: &Kernel, ledger: &Tlb, places: &[(SpaceId, Vpn)]) {
    let emptied: Vec<Emptied> = places.iter().map(|&(space, page)| kernel.clear(space, page)).collect();
    for page in emptied {
        kernel.free(ledger, page);
    }
    for &(space, page) in places {
        ledger.flush(kernel, space, Range::page(page));
    }
}

fn main() {}

//! microsoft/litebox#848: frames of a range were freed one by one, and the TLBs flushed after the last.
#[path = "../kernel/mod.rs"]
#[allow(dead_code)]
mod kernel;

use kernel::*;
use pagefold_flush::*;

pub fn unmap_pages(kernel: &Kernel, ledger: &Tlb, space: SpaceId, first: Vpn, pages: u64) {
    for page in first.0..first.0 + pages {
        kernel.free(ledger, kernel.clear(space, Vpn(page)));
    }
    ledger.flush(kernel, space, Range::pages(first, pages));
}

fn main() {}

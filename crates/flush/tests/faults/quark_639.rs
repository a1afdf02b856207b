//! QuarkContainer/Quark#639: unmapping dropped a page's count, the last drop freed the page, and only then the other
//! CPUs were told. (The fix: pages go to a list that is freed after the shootdown.)
#[path = "../kernel/mod.rs"]
#[allow(dead_code)]
mod kernel;

use kernel::*;
use pagefold_flush::*;
use std::collections::BTreeMap;

pub fn remove(kernel: &Kernel, ledger: &Tlb, counts: &mut BTreeMap<Pfn, u32>, space: SpaceId, page: Vpn) {
    let emptied = kernel.clear(space, page);
    let count = counts.get_mut(&emptied.what().pfn).unwrap();
    *count -= 1;
    if *count == 0 {
        kernel.free(ledger, emptied);
    }
    ledger.flush(kernel, space, Range::page(page));
}

fn main() {}

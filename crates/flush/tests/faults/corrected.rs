//! The others as they are right: this program compiles.
#![deny(unused_must_use)]
#[path = "../kernel/mod.rs"]
#[allow(dead_code)]
mod kernel;

use kernel::*;
use pagefold_flush::*;

/// One flush at the end, and the frames after it. Entries and tables alike.
pub fn unmap_pages(kernel: &Kernel, ledger: &Tlb, space: SpaceId, first: Vpn, pages: u64) {
    let change = |gather: &mut Gather| {
        gather.changes(first, Vpn(first.0 + pages));
        for page in first.0..first.0 + pages {
            gather.emptied(kernel, kernel.clear(space, Vpn(page)));
        }
        gather.table(kernel.unlink_table(space));
    };
    let release = |finished: Finished<'_>| {
        finished.folios.iter().for_each(|&(frame, _)| kernel.free_frame(ledger, frame));
        finished.tables.iter().for_each(|&table| kernel.free_table(table));
    };
    ledger.gather(kernel, space, change, release);
}

/// Each place gives its references after the batch has flushed.
pub fn evict(kernel: &Kernel, ledger: &Tlb, places: &[(SpaceId, Vpn)]) {
    let mut batch = UnmapBatch::new(kernel);
    let take = |&(space, page): &(SpaceId, Vpn)| batch.take(kernel, ledger, kernel.clear(space, page));
    let refs: Vec<Refs> = places.iter().map(take).collect();
    batch.settle(kernel, ledger);
    refs.into_iter().for_each(|refs| kernel.free(ledger, refs));
}

pub fn protect(kernel: &Kernel, ledger: &Tlb, space: SpaceId, first: Vpn, pages: u64) {
    ledger.tighten(kernel, space, |tightening| {
        for page in first.0..first.0 + pages {
            tightening.tightened(kernel, kernel.forbid_stores(space, Vpn(page)));
        }
    });
}

fn main() {}

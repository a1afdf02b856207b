//! Emptied entries and their references must be consumed.
#![deny(unused_must_use)]
use pagefold_mm::Machine;
use pagefold_mm::table::{Absent, LockedTables, EntryRun};
use pagefold_mm::tlb::{UnmapBatch, Tlb};
use pagefold_mm::platform::Platform;

pub fn forget<M: Machine>(platform: &Platform<M>, tlb: &Tlb, tables: &mut LockedTables<'_, M>, run: &EntryRun, batch: &mut UnmapBatch) {
    tables.empty_run(run, |_| Absent::None);
    tables.forbid_writes(run);
    let emptied = tables.empty_run(run, |_| Absent::None);
    batch.take(platform, tlb, emptied);
}

fn main() {}

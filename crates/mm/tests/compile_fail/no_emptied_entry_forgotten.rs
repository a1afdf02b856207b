//! Emptied entries and their references must be consumed.
#![deny(unused_must_use)]
use mm::Machine;
use mm::table::{Absent, LockedTables, EntryRun};
use mm::tlb::{UnmapBatch, Tlb};
use mm::platform::Platform;

pub fn forget<M: Machine>(platform: &Platform<M>, tlb: &Tlb, tables: &mut LockedTables<'_, M>, run: &EntryRun, batch: &mut UnmapBatch) {
    tables.empty_run(run, |_| Absent::None);
    tables.forbid_writes(run);
    let emptied = tables.empty_run(run, |_| Absent::None);
    batch.take(platform, tlb, emptied);
}

fn main() {}

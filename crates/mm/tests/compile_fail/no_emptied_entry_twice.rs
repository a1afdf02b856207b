//! Emptied entries are flushed once, and their references are dropped once.
use pagefold_mm::Machine;
use pagefold_mm::platform::Platform;
use pagefold_mm::frame::FrameTable;
use pagefold_mm::table::LockedTables;
use pagefold_mm::tlb::{Emptied, Gather, HeldRefs, Refs};

pub fn use_twice<M: Machine>(platform: &Platform<M>, gather: &mut Gather, emptied: Emptied, tables: &mut LockedTables<'_, M>) {
    gather.emptied(platform, emptied);
    let _refs = tables.flush(emptied);
}

pub fn drop_twice(frames: &FrameTable, refs: Refs) {
    refs.put_held(frames);
    refs.put_held(frames);
}

fn main() {}

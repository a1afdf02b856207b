//! What was taken from a page table is flushed once, and its references are dropped once.
use mm::Machine;
use mm::base::Base;
use mm::frame::FrameTable;
use mm::table::Locked;
use mm::tlb::{Emptied, Gather, Refs};

pub fn use_twice<M: Machine>(base: &Base<M>, gather: &mut Gather, emptied: Emptied, tables: &mut Locked<'_, M>) {
    gather.emptied(base, emptied);
    let _refs = tables.flush(emptied);
}

pub fn drop_twice(frames: &FrameTable, refs: Refs) {
    refs.put_held(frames);
    refs.put_held(frames);
}

fn main() {}

//! What was taken from a page table, and the references that it held, are not left lying.
#![deny(unused_must_use)]
use mm::Machine;
use mm::table::{Absent, Locked, Run};
use mm::tlb::{Batch, Tlb};
use mm::base::Base;

pub fn forget<M: Machine>(base: &Base<M>, tlb: &Tlb, tables: &mut Locked<'_, M>, run: &Run, batch: &mut Batch) {
    tables.empty_run(run, |_| Absent::None);
    tables.forbid_writes(run);
    let emptied = tables.empty_run(run, |_| Absent::None);
    batch.take(base, tlb, emptied);
}

fn main() {}

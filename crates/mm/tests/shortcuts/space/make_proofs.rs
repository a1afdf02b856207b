//! Make the proofs without a payment.
use crate::table::{LockedTables, Settled};
use crate::tlb::FileSettled;
use crate::units::*;

pub fn settled<M>(tables: LockedTables<'_, M>) -> Settled<'_, M> {
    Settled(tables)
}

pub fn file_settled(file: FileId) -> FileSettled {
    FileSettled(file)
}

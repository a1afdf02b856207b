//! TLB coherence: the ledger of flushes, as this memory manager uses it.
//!
//! Generations, debts, ledgers, batches and gathers are the crate [`pagefold_flush`], which knows nothing of the memory
//! manager. What may be done with a cleared entry is what that crate offers; no code here can take the references of
//! an entry, settle a debt or draw a generation in another way. This room is the ledger's [`Host`]: it hands requests
//! to the machine, reads tags and owners in the records of frames, and turns notices into counters and events.

mod host;

pub use host::HeldRefs;
pub(crate) use host::{put_held_pages, spares_unused, stale};
pub use pagefold_flush::{
    Ascending, Cleared, Emptied, EmptiedPages, FileSettled, Finished, Gather, Generation, Host, Range, Refs,
    Tightened, Tightening, Tlb, UnmapBatch,
};

#[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
mod model;
#[cfg(test)]
mod tests;

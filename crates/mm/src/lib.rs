//! Pagefold's memory manager.
//!
//! It allocates physical pages, maps them, finds the cold ones, reclaims them, and keeps every CPU's TLB coherent
//! with the page tables. It knows nothing of what it runs on but the trait [`Machine`]: the simulator and the
//! bare-metal kernel run the same code.
//!
//! # Principles
//!
//! **A flush is a debt, and a debt is a type.** Clearing a page-table entry yields an `Emptied`, taking rights from
//! one a `Tightened`. Both are values that must be consumed: by a flush, or by an [`UnmapBatch`](tlb::UnmapBatch) or
//! [`Gather`](tlb::Gather), which flushes later or records a debt with the frame, the space or the file that a stale
//! translation could expose. A frame with a debt is not handed out again, a space does not map something else at an
//! address, and a file does not change its content, before the debt is settled: the operations that do so take a
//! proof (`Clean`, `Settled`, `FileSettled`) that only settling returns. When to flush is a policy; that a flush
//! happens in time is not.
//!
//! **Rooms below the facade never reclaim.** An operation that cannot get memory undoes what it did and returns a
//! [`Shortage`](memory::Shortage). [`Mm`] reclaims, compacts or kills, and runs the operation again. So reclaim runs
//! under no lock of its caller, and one place decides what an allocation may cost.
//!
//! **Everything works on runs.** Walks of page tables yield runs of entries, and reverse maps, counters, LRU lists
//! and the allocator take runs of folios. A single page is a run of one.
//!
//! **Policies decide, mechanisms act.** A replacement policy says which folio goes; locking, unmapping, writing and
//! freeing are done once, for all policies. The same holds for flush policies and for promotion between tiers.
//!
//! **A lower floor never uses a higher one.** docs/architecture.md has the map of the floors, and a test holds every
//! import against it. The nested states make the compiler enforce it, too: a function that takes a
//! [`Platform`](platform::Platform) cannot reach a TLB, one that takes an [`Mmu`](mmu::Mmu) cannot allocate, one that
//! takes a [`Memory`](memory::Memory) cannot reach the page cache, and only [`Mm`] reaches address spaces from an
//! [`MmCore`](mm_core::MmCore).
//!
//! **Each structure can check itself.** Every room has a `validate` that tests call after each step, and the
//! simulator's oracle checks that every load returns the last store.
#![no_std]
#![deny(unsafe_code)]
// The pages of rooms describe their insides: `cargo doc --document-private-items` shows these.
#![allow(rustdoc::private_intra_doc_links)]
// Values of `linear` must be consumed. These lints close the ways around that.
#![deny(unused_must_use, clippy::let_underscore_must_use, clippy::mem_forget)]
// Functions that one room alone may call; `clippy.toml` names the room and what others use instead.
#![deny(clippy::disallowed_methods)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::let_underscore_must_use, clippy::mem_forget))]

extern crate alloc as std_alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod alloc;
pub mod api;
mod batched;
pub mod cache;
pub mod compact;
pub mod event;
pub mod folio;
pub mod frame;
pub mod hot;
pub mod knobs;
pub mod lru;
pub mod machine;
pub mod memory;
pub mod mempolicy;
pub mod migrate;
pub mod mm;
pub mod mm_core;
pub mod mmu;
pub mod platform;
pub mod policy;
pub mod promote;
pub mod reclaim;
pub mod rmap;
pub mod scope;
pub mod semaphore;
pub mod slab;
pub mod space;
pub mod stat;
pub mod swap;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
pub mod tier;
pub mod tlb;
pub mod truncate;
pub mod units;
pub mod work;
pub mod writeback;
pub mod zram;
pub(crate) mod zsmalloc;
pub mod zswap;

pub use base::{arena, lock, primitive};
pub use machine::Machine;
pub use mm::{Config, GroupAccount, Mm, OomReport};

//! Pagefold's memory manager.
//!
//! It hands out physical pages, maps them, finds the cold ones, takes them back, and keeps every CPU's translation
//! cache truthful. It never knows what it runs on: below it is one trait, [`Machine`].
//!
//! The crate is built in floors; a room uses only what stands below it:
//!
//! ```text
//!  9  mm                                   the facade: system calls, faults, daemons, the allocation slow path
//!  8  compact/   promote/                 make large blocks of free memory in pieces; bring hot pages to fast memory
//!  7  reclaim/   space/     writeback/  truncate   reclaim; ranges, faults, fork; dirty pages; shorter files
//!     migrate/                            folios to other frames
//!  6  folio/     cache/     rmap/          a folio's life; files' pages; who maps a folio, and unmapping it
//!  5  alloc/     table/     lru/           zones, buddy, per-CPU lists; page tables; list vectors and groups
//!  4  tlb/                                 generations, debts, flushes   (with the floors below: `mmu`)
//!  3  swap/      lock      policy/         swap space; locks; replacement policies that propose
//!  2  frame/     machine  knobs  stat  event  work  scope   (together: `platform`)
//!  1  units      primitive  linear     published
//! ```
#![no_std]
#![deny(unsafe_code)]
// What must be flushed or given back is a value (`linear`): these close the ways around it.
#![deny(unused_must_use, clippy::let_underscore_must_use, clippy::mem_forget)]
// Doors for one room each; `clippy.toml` says which, and what others use instead.
#![deny(clippy::disallowed_methods)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::let_underscore_must_use, clippy::mem_forget))]

extern crate alloc as std_alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

#[cfg(any(
    all(feature = "one-thread", any(feature = "loom", feature = "shuttle")),
    all(feature = "loom", feature = "shuttle")
))]
compile_error!("features one-thread, loom and shuttle exclude each other");

pub mod alloc;
pub mod api;
pub mod arena;
pub mod cache;
pub mod compact;
pub mod event;
pub mod folio;
pub mod frame;
pub mod hot;
pub mod knobs;
pub(crate) mod linear;
pub mod lock;
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
pub mod primitive;
pub mod promote;
pub(crate) mod published;
pub mod reclaim;
pub mod rmap;
pub mod scope;
pub mod semaphore;
pub mod space;
pub mod stat;
pub mod swap;
pub mod table;
mod table_macro;
#[cfg(test)]
pub(crate) mod testing;
pub mod tier;
pub mod tlb;
pub mod truncate;
pub mod units;
pub mod work;
pub mod writeback;

pub use machine::Machine;
pub use mm::{Config, GroupAccount, Mm, OomReport};

//! What the ledger of flushes and the memory manager share: numbers of things, sets of CPUs, atomics, locks, arenas,
//! and values that must be consumed.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc as std_alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

#[cfg(any(
    all(feature = "one-thread", any(feature = "loom", feature = "shuttle")),
    all(feature = "loom", feature = "shuttle")
))]
compile_error!("features one-thread, loom and shuttle exclude each other");

pub mod arena;
pub mod cpus;
pub mod demand;
pub mod linear;
pub mod lock;
pub mod primitive;
mod table_macro;
pub mod units;

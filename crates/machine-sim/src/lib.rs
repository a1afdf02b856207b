//! The simulated machine.
mod coroutine;
pub mod device;
pub mod spec;
mod tables;
pub mod tlb;

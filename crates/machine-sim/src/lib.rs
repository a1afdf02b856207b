//! The simulated machine.
mod content;
mod coroutine;
pub mod device;
pub mod machine;
mod sched;
pub mod spec;
mod tables;
pub mod tlb;
mod walk;

//! Workloads as programs.
//!
//! A [`Program`] is written once against the trait [`Os`] and runs on every machine that Pagefold has: the
//! simulated one and the bare one. It says what a process does to memory (`mmap`, `load`, `store`, `read`,
//! ...) and nothing about how memory is managed.
//!
//! The crate is `no_std` because programs also run in user mode on the bare machine.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod apps;
pub mod builtin;
pub mod chaos;
pub mod content;
pub mod keys;
pub mod named;
pub mod os;
pub mod probe;
pub mod rng;
pub mod zipf;

pub use abi::{PACKED_UNIT, Packed};
pub use named::Named;
pub use os::{
    Access, AccessKind, Advice, Buffer, Call, Errno, FileAdvice, FileSpec, Group, GroupLimits, Map,
    MapSource, MemPolicy, Os, PolicyMode, Program, Prot, Remap, Role, Signal, TaskHandle, Text,
};

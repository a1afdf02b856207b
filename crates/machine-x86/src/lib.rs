//! The bare-metal x86-64 machine: what of it needs no hardware, and is tested on the host.
//!
//! The kernel image (`main.rs`) puts the hardware below it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod acpi;
pub mod cmdline;
pub mod memory_map;
pub mod user;

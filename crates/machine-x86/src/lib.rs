//! The bare-metal x86-64 machine: the parts that need no hardware and are tested on the host.
//!
//! The kernel image (`main.rs`) adds the hardware.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod acpi;
pub mod cmdline;
pub mod memory_map;
pub mod user;

//! The bare-metal x86-64 machine: what of it needs no hardware, and is tested on the host.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod kernel;
pub mod user;

//! Linux as the judge of our counts: the same program on a Linux kernel under QEMU.
//!
//! The simulated machine, the booted machine and Linux run one program through one trait, `Os`. On Linux a small
//! static program (`crates/linux-guest`) is the first process: it sets up the conditions that this module asks for,
//! makes the program's calls and accesses for real, and reads the kernel's own counters. Nothing of Linux is part of
//! the project: the kernel is the user's, or comes from a package that `cargo xtask linux` unpacks.
//!
//! ```text
//! job         a program, and the conditions on both sides
//! find        kernel, modules, and the guest's first process
//! conditions  our knobs as Linux's settings
//! areas       swap areas, and what pages hold where they are compressed
//! archive     the initial file system
//! original    the recorded program itself, with its files
//! reserve     memory for the kernel itself, measured
//! guest       what to boot: configuration, QEMU's arguments, disks
//! unequal     what the guest has otherwise than the simulated machine
//! twin        the simulated machine that the guest was
//! boots       Linux's side, as a file that can be judged by without a kernel
//! judge       count by count: exact, total, timing
//! compare     boots of Linux, then the twin
//! bench       instructions of known work
//! truth       many programs and settings, as a document
//! ```

pub mod archive;
pub mod areas;
pub mod bench;
pub mod boots;
pub mod compare;
pub mod conditions;
pub mod find;
pub mod guest;
pub mod job;
pub mod judge;
pub mod original;
pub mod reserve;
pub mod truth;
pub mod twin;
pub mod unequal;

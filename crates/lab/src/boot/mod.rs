//! The booted machine: the same memory manager in a kernel, on QEMU's PC.
//!
//! The simulator shows what a change is worth; it cannot show whether the memory manager works where hardware walks
//! page tables, where a flush is an interrupt of another CPU, and where CPUs really run concurrently. So the same crate
//! is linked into a kernel (`crates/machine-x86`) that QEMU boots without a boot loader. This module is the host's
//! side: it describes the guest, starts QEMU, reads the guest's lines from the serial line, and makes a run's record of
//! them.
//!
//! ```text
//! find      the kernel's image and QEMU
//! shape     the machine: CPUs, nodes, memory, swap space
//! arguments QEMU's command line
//! guest     what to boot: the kernel's command line and QEMU's arguments
//! recorded  a trace on its way into the guest
//! runner    one boot, from the first line to QEMU's exit status
//! protocol  the lines of the guest, read strictly
//! measured  the guest's account as the record of a run
//! beside    the simulated and the booted machine side by side
//! bench     instructions for each operation, beside Linux's
//! ```
//!
//! Why text on a serial line, not shared memory or a special device: a line survives whatever the guest does next. A
//! kernel that faults, hangs or is killed leaves all lines that it has written, and people can read them.

pub(crate) mod arguments;
pub mod bench;
pub mod beside;
pub mod find;
pub mod guest;
pub mod measured;
pub mod protocol;
pub mod recorded;
pub mod runner;
pub mod shape;

/// The most tasks of a program without a number of its own, unless it has one for each CPU.
pub const MOST_USUAL_THREADS: u32 = 12;

pub use guest::{Guest, Task};
pub use protocol::{Report, Verdict};
pub use recorded::Recorded;
pub use runner::Runner;
pub use shape::{Ratio, Second, Shape};

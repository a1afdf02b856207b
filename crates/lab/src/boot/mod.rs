//! The booted machine: the same memory manager as a kernel of its own, on QEMU's PC.
//!
//! The simulator answers what a change is worth; it cannot answer whether the memory manager works where page tables
//! are walked by hardware, where a flush is an interrupt that another CPU has to take, and where two CPUs really run at
//! once. So the same crate is linked into a kernel (`crates/machine-x86`) that QEMU boots without a boot loader. This
//! module is the host's side of it: it describes the guest, starts QEMU, follows what the guest says on its serial
//! line, and turns that into the record of a run, like any other.
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
//! Why text on a serial line and not shared memory or a device of our own: a line survives whatever the guest does
//! next. A kernel that faults, hangs or is killed leaves everything that it has said, and a person can read it.

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

/// Most tasks of a program that nobody gives a number, unless it has as many as the machine has CPUs.
pub const MOST_USUAL_THREADS: u32 = 12;

pub use guest::{Guest, Task};
pub use protocol::{Report, Verdict};
pub use recorded::Recorded;
pub use runner::Runner;
pub use shape::{Ratio, Second, Shape};

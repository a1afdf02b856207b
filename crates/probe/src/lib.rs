//! What operations take on the Linux that this runs on.
//!
//! A *probe* is a struct whose `round` takes a few milliseconds and returns nanoseconds of one unit (or what its
//! documentation says). What has a fixed part beside the part that matters is timed with and without it in the same
//! round, so slow changes of the clock and of the load meet both. A timing takes less than a millisecond and is the
//! shortest of three, because what interrupts and other programs add is no part of an operation. A caller repeats
//! rounds and takes their median.
//!
//! ```text
//! clock, kernel      cycles; system calls, faults and calls that change mappings
//! shootdown, line    flushes that interrupt other CPUs; cache lines between CPUs
//! switching          another task on the same CPU
//! translation        reach of TLBs and the cost of a miss, of which `steps` reads the curve
//! memory             reads, copies and clearing of what is in no cache
//! compression        lz4 and zstd on pages
//! disk               direct reads and writes of a scratch file
//! system             what Linux says of the machine
//! cpus               CPUs that this process may use, and threads that stay on one
//! ```
//!
//! Errors of a probe's `new` say why this machine cannot be measured so.
#![cfg(target_os = "linux")]

mod arch;
mod chain;
mod clock;
mod compression;
pub mod cpus;
mod disk;
mod fit;
mod helper;
mod kernel;
mod line;
mod memory;
mod order;
mod region;
mod shootdown;
mod steps;
mod switching;
pub mod system;
mod translation;

pub use clock::Clock;
pub use compression::Compression;
pub use disk::Disk;
pub use kernel::Kernel;
pub use line::Line;
pub use memory::Memory;
pub use shootdown::Shootdown;
pub use switching::Switching;
pub use translation::Translation;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Bytes of a large page.
const LARGE: usize = 2 << 20;
/// Bytes of a cache line.
const LINE: usize = 64;

/// The error of a machine that cannot be measured in this way.
fn unsupported(why: &'static str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::Unsupported, why)
}

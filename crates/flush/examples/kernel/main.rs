//! A kernel on the ledger alone: threads are CPUs, translations are cached in software, and reclaim takes pages away.
//!
//! Each process counts in its own pages, and stops the program if a page does not read as it was last written. Reclaim
//! unmaps pages all the time, and their frames go to other processes. With `broken` as an argument the allocator does
//! not pay before it hands a frame out: in some runs a process then reads another's page.
//!
//!     cargo run --release -p pagefold-flush --example kernel -- [batch|lazy] [broken]

#[cfg(not(feature = "one-thread"))]
mod threads;

#[cfg(not(feature = "one-thread"))]
fn main() {
    threads::run_all();
}

/// The workspace builds everything for one thread, which the simulator asks for.
#[cfg(feature = "one-thread")]
fn main() {
    println!("build this package alone: the ledger was built for one thread");
}

//! A kernel on the ledger alone: threads are CPUs, each with a TLB in software, and reclaim takes pages away.
//!
//! Each process counts in its own pages, and stops the program if a page does not read as it was last written. Reclaim
//! unmaps pages all the time, and their frames go to other processes. With `broken` as an argument the allocator does
//! not pay before it hands a frame out: in most runs a process then reads another's page.
//!
//!     cargo run --release -p pagefold-flush --example kernel -- [batch|lazy] [broken]

#[cfg(not(feature = "one-thread"))]
mod threads;

#[cfg(not(feature = "one-thread"))]
fn main() {
    use pagefold_flush::Shape;
    let words: Vec<String> = std::env::args().collect();
    let says = |word: &str| words.iter().any(|given| given == word);
    let lazy = Shape::Defer { at_ticks: false };
    let shape = if says("batch") { Shape::Collect { listed: false } } else { lazy };
    threads::run_all(shape, says("broken"), 300_000);
    println!("no process has read another content than it wrote last");
}

/// The workspace builds everything for one thread, which the simulator asks for.
#[cfg(feature = "one-thread")]
fn main() {
    println!("build this package alone: the ledger was built for one thread");
}

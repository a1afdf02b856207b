//! Tests that change a copy of this crate's sources, below `target/tmp`, and look at what cargo says of it.
//!
//! Not for the one-threaded form: what they show is the same there.
#![cfg(not(feature = "one-thread"))]

mod copy;
mod published;
mod shortcuts;

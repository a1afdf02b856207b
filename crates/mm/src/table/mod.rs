//! Page tables.
pub mod entry;
pub use entry::{Bits, Entry};

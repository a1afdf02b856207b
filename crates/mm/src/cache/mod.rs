//! Cache.
pub mod tree;

//! Sweeps: one program description under many values of what the user varies.
//!
//! A sweep is a file: how a run is made, with names in braces, and the values that these names take. What was run is
//! kept line by line in a directory, so that whatever ends the process (Ctrl-C, `kill -9`, a full disk) costs the runs
//! that were under way and nothing else: the same command goes on where it stopped.
//!
//! ```text
//! file     the sweep's file, its points, and the runs that they need
//! store    the directory: what is done, and what is left
//! result   points with their numbers: a table, CSV, JSON and a picture
//! ```

mod file;
mod result;
mod store;

pub use file::{Point, Sweep, What};
pub use result::Outcome;
pub use store::{Done, Key, plan};

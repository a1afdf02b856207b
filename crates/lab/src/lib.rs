//! Experiments with Pagefold's memory manager.
//!
//! A machine, some profiles, a program and some seeds make an *experiment*; its runs become a table, a JSON object or a
//! run directory. The binary `pagefold` is a thin shell around this library.
//!
//! ```text
//! cli            what the user typed, and what to do about it
//! rundir         results on disk            list      what there is to choose from
//! table          results for people         summary   results for scripts
//! svg            results as a picture     breakdown where the time went
//! grid           cells in columns
//! metrics        the rows of a result       statistics  means and intervals
//! bound          policies against the fewest flushes
//! experiment     jobs over threads          profile   named sets of knobs
//! reproduce      published comparisons, done again
//! sweep          a program under many values of what varies
//! cell           what a run needs but its seed   document  what every result has in common
//! boot           the booted machine: QEMU, its guest, and what they report
//! linux          the same program on Linux, which judges our counts
//! engine         the only module that knows the simulated machine and the traces
//! ```
#![forbid(unsafe_code)]

mod boot;
mod bound;
mod breakdown;
mod cell;
pub mod cli;
mod document;
mod engine;
pub mod error;
mod experiment;
mod grid;
mod groups;
mod human;
mod info;
mod interrupt;
mod kept;
mod linux;
mod list;
mod metrics;
mod plot;
mod profile;
mod record;
mod replay;
mod reproduce;
mod rundir;
mod size;
mod statistics;
mod suggest;
mod summary;
mod svg;
mod sweep;
mod table;
mod tree;

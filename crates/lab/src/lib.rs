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

pub mod boot;
pub mod bound;
pub mod breakdown;
pub mod cell;
pub mod cli;
pub mod document;
pub mod engine;
pub mod error;
pub mod experiment;
pub mod grid;
pub mod groups;
pub mod human;
pub mod info;
pub mod interrupt;
pub mod kept;
pub mod linux;
pub mod list;
pub mod metrics;
pub mod plot;
pub mod profile;
pub mod record;
pub mod replay;
pub mod reproduce;
pub mod rundir;
pub mod size;
pub mod statistics;
pub mod suggest;
pub mod summary;
pub mod svg;
pub mod sweep;
pub mod table;
pub mod tree;

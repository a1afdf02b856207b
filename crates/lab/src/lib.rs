//! Experiments with Pagefold's memory manager.
//!
//! A program on a machine under a profile is a *cell*; a cell with a seed is a *run*. Commands run cells with some
//! seeds and turn the finished runs into a table, a JSON object, a picture or a directory. The binary `pagefold` only
//! calls [`cli`].
//!
//! ```text
//! cli         commands and their arguments          document    text, JSON and picture of a result
//! engine      the simulator and traces: the only module that knows them
//! cell, jobs  what a run needs but its seed; runs on several threads
//! profile     named sets of knobs                   record      what a run measured
//! kept        stores of runs in directories         rundir      directories of run and compare
//! summary     the result of run and compare         table       the same as text
//! metrics     rows of that result                   breakdown, groups, tree   its further parts
//! explain     why one side takes longer
//! sweep       cells over axes: sweep files, curve, parts, optimum
//! reproduce   published comparisons                 bound       flush policies against the fewest flushes
//! calibrate   the machine that this runs on, measured
//! boot        the booted machine under QEMU         linux       the same programs on Linux
//! caller      the program that calls a command, where that is no shell
//! columns     tables for other programs
//! history     what a watched run was like in time   html        results as pages
//! statistics  means and intervals                   svg, plot   pictures
//! grid, human, size, suggest    text and numbers for people       scratch    folders that go away
//! ```
#![forbid(unsafe_code)]

mod boot;
mod bound;
mod breakdown;
#[cfg(target_os = "linux")]
mod calibrate;
pub mod caller;
mod cell;
pub mod cli;
pub mod columns;
mod document;
mod engine;
pub mod error;
mod explain;
mod grid;
mod groups;
mod history;
mod html;
mod human;
mod info;
mod interrupt;
mod jobs;
mod kept;
mod linux;
mod list;
mod locks;
mod metrics;
mod plot;
mod profile;
mod record;
mod replay;
mod reproduce;
mod rundir;
mod scale;
mod scratch;
mod size;
mod statistics;
mod suggest;
mod summary;
mod svg;
mod sweep;
mod table;
mod tree;

//! The simulated machine.
//!
//! [`run`] takes a [`RunConfig`] and a [`Program`](program::Program) and gives an [`Outcome`]. Inside stand
//!
//! - [`SimMachine`], which the memory manager sees through its trait `Machine`: CPUs with clocks and translation caches
//!   ([`tlb`]), page walks, interrupts, memory with latencies, block [`device`]s;
//! - a scheduler of coroutines, which always runs the CPU that is furthest behind;
//! - the system calls, as programs make them through the trait `Os`;
//! - the oracle, which knows what every address must read and stops the run at the first wrong byte;
//! - the bound, which knows how few flushes any safe policy would need and stops the run at the first missing one;
//! - the optimum, which knows how few refaults any replacement policy could have had;
//! - the profile, a tree of where CPU time went.
//!
//! A run is a function of its configuration and its seed: no time of the host, no address, no order of a hash table
//! gets into it. What a machine is made of, and what everything costs there, is said in TOML ([`spec`]), each number
//! with its source.

pub mod bare;
mod bound;
mod config;
mod content;
mod coroutine;
mod cpu;
pub mod device;
mod flush_fault;
mod fragment;
mod histogram;
mod machine;
mod memory;
mod metrics;
mod moves;
mod observers;
mod optimum;
mod oracle;
mod os;
mod outcome;
mod placement;
mod policies;
mod preempt;
mod profile;
mod run;
mod sched;
mod simulation;
pub mod spec;
mod stale;
mod tables;
pub mod tlb;
mod visits;
mod walk;

pub use bound::{BoundLevel, BoundReport, Cause, CauseCount};
pub use config::{FlushFault, RunConfig, RunError, Visit};
pub use fragment::target::Fragmentation;
pub use fragment::{Fragmented, MemoryState, ZoneState};
pub use kernel::{GroupOutcome, GroupSpec, PROCESSES, Processes};
pub use machine::SimMachine;
pub use optimum::OptimumReport;
pub use oracle::OracleReport;
pub use outcome::{Better, Metric, Outcome, Visited, WorkDone};
pub use policies::check_policy;
pub use profile::{ProfileNode, ProfileWork};
pub use run::run;
pub use spec::{CostRow, MachineSpec, SpecError};

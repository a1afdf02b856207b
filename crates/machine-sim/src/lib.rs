//! The simulated machine.
//!
//! [`run`] takes a [`RunConfig`] and a [`Program`](program::Program) and returns an [`Outcome`]. Its parts are
//!
//! - [`SimMachine`], which the memory manager sees through its trait `Machine`: CPUs with clocks and translation caches
//!   ([`tlb`]), page walks, interrupts, memory with latencies, block [`device`]s;
//! - a scheduler of coroutines, which always runs the CPU with the earliest clock;
//! - the system calls, which programs make through the trait `Os`;
//! - observers of the machine, of which each run has those that it asks for:
//!   - the oracle knows what every address must read and stops the run at the first wrong byte;
//!   - the bound knows how few flushes any safe policy needs and stops the run at the first missing one;
//!   - the optimum knows how few refaults any replacement policy could have;
//!   - the profile is a tree of where CPU time went;
//!   - a timeline is told of everything as it happens ([`Timeline`]), of accesses only if it asks for them.
//!
//! A run is a function of its configuration and its seed: it depends on no host time, no address and no order of a hash
//! table. A machine and its costs are described in TOML ([`spec`]), each number with its source.

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
mod in_flight;
mod levels;
mod machine;
mod memory;
mod metrics;
mod moves;
mod observers;
mod optimum;
mod oracle;
mod os;
mod outcome;
mod packing;
mod placement;
mod policies;
mod preempt;
mod profile;
mod promises;
mod run;
mod sched;
mod senpai;
mod simulation;
pub mod spec;
mod stale;
mod tables;
mod timeline;
pub mod tlb;
mod vary;
mod visits;
mod waiting;
mod walk;
mod zoneinfo;

pub use bound::{BoundLevel, BoundReport, Cause, CauseCount};
pub use config::{FlushFault, RunConfig, RunError, Visit};
pub use fragment::target::Fragmentation;
pub use fragment::{Fragmented, MemoryState, ZoneState};
pub use kernel::{GroupOutcome, GroupSpec, PROCESSES, Processes};
pub use machine::SimMachine;
pub use optimum::OptimumReport;
pub use oracle::OracleReport;
pub use outcome::{Better, FreeMemory, Metric, Outcome, Pressure, StallTime, Visited, WorkDone};
pub use policies::check_policy;
pub use profile::{ProfileNode, ProfileWork, TaskTime};
pub use run::run;
pub use spec::{CostRow, FailSpec, MachineSpec, Senpai, SpecError, SwapSpec};
pub use timeline::{Happening, Levels, Moment, NewTask, ProcessPages, SharedTimeline, Stop, Timeline};
pub use vary::Vary;
pub use waiting::{LineOutcome, LockOutcome, LockTally};

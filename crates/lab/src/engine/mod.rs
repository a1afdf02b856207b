//! The only module that knows the simulated machine and the traces.
//!
//! The rest of the crate uses the plain types of this module for machines, programs and runs, so experiments,
//! statistics and output can be understood and tested without a simulator.

mod custom;
mod history;
mod machine;
mod perfetto;
mod proc;
mod program;
mod run;
mod traces;

pub use custom::{custom_policy, set_custom_policy};
pub use history::Historian;
pub use machine::{DEFAULT_MACHINE, Machine, machines};
pub use machine_sim::{
    FailSpec, Fragmentation, GroupSpec, PROCESSES, RunConfig, Senpai, SharedTimeline, SwapSpec, Vary, Visit,
};
pub use perfetto::Perfetto;
pub use program::{Program, programs};
pub use traces::{RecordRequest, import, import_accesses, info, record};

//! The only module that knows the simulated machine and the traces.
//!
//! The rest of the crate sees machines, programs and runs by the plain types of this module, so that experiments,
//! statistics and output can be understood, and tested, without a simulator.

use crate::error::{Error, Result};
use crate::record::RunRecord;
use mm::knobs::Knob;
use std::path::Path;

/// The machine of those who name none.
pub const DEFAULT_MACHINE: &str = "laptop";

/// Named machines: name and one line of help.
pub fn machines() -> Vec<(String, String)> {
    Vec::new()
}

/// Built-in programs: name and one line of help.
pub fn programs() -> Vec<(String, String)> {
    Vec::new()
}

/// A machine to run on.
pub struct Machine {}

/// What one unit of a kind of work costs.
pub struct Cost {
    /// The kind of work.
    pub name: String,
    /// Nanoseconds.
    pub nanos: f64,
    /// What one unit is.
    pub help: String,
    /// Where the number comes from.
    pub source: String,
}

impl Machine {
    /// The machine that the user named.
    pub fn find(name: &str) -> Result<Machine> {
        Err(Error::Input(crate::suggest::unknown("machine", name, [], "machines")))
    }

    /// What work costs on it.
    pub fn costs(&self) -> Vec<Cost> {
        Vec::new()
    }
}

/// A program to run.
pub struct Program {}

impl Program {
    /// The program that the user named.
    pub fn find(name: &str) -> Result<Program> {
        Err(Error::Input(crate::suggest::unknown("program", name, [], "programs")))
    }

    /// Bytes that it touches.
    pub fn footprint(&self) -> u64 {
        0
    }
}

/// One run.
pub struct Run<'a> {
    /// On what.
    pub machine: &'a Machine,
    /// What.
    pub program: &'a Program,
    /// Bytes of memory; `None` for all that the machine has.
    pub memory: Option<u64>,
    /// Knobs that differ from their defaults.
    pub knobs: &'a [(Knob, u64)],
    /// The seed.
    pub seed: u64,
    /// Check every load?
    pub verify: bool,
}

impl Run<'_> {
    /// Do it, for the column `profile`.
    pub fn carry_out(&self, _profile: &str) -> Result<RunRecord> {
        Err(Error::Failed("no machine".into()))
    }
}

/// Record `command` into `output`; returns a sentence about the result.
pub fn record(_output: &Path, _command: Vec<String>) -> Result<String> {
    Err(Error::input("no recorder"))
}

/// Import lackey's output; returns a sentence about the result.
pub fn import_lackey(_input: &Path, _output: &Path) -> Result<String> {
    Err(Error::input("no importer"))
}

/// What is in a trace.
pub fn info(_path: &Path) -> Result<String> {
    Err(Error::input("no traces"))
}

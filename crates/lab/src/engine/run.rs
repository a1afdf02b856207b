//! One run: a fresh machine, a program, a seed.

use super::{Machine, Program};
use crate::error::{Error, Result};
use crate::record::RunRecord;
use mm::knobs::Knob;

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
        Err(Error::Failed("this build cannot run programs".into()))
    }
}

//! Programs: traces and built-in ones.

use crate::error::{Error, Result};
use crate::{size, suggest};
use program::Program as _;
use std::path::Path;
use trace::Replay;

/// Built-in programs: name and one line of help.
pub fn programs() -> Vec<(String, String)> {
    Vec::new()
}

/// A program to run. Every run takes a clone.
#[derive(Clone)]
pub enum Program {
    /// A recorded one.
    Trace(Replay),
}

impl Program {
    /// The program that the user named: a trace, or `NAME` or `NAME:SIZE`.
    pub fn find(name: &str) -> Result<Program> {
        let (stem, size) = match name.split_once(':') {
            Some((stem, size)) => (stem, Some(size)),
            None => (name, None),
        };
        let path = Path::new(name);
        let is_file = name.ends_with(".pft") || path.components().count() > 1 || path.is_file();
        if is_file {
            let replay = Replay::open(path).map_err(|error| Error::Input(error.to_string()))?;
            return Ok(Program::Trace(replay));
        }
        let names = programs();
        let names = names.iter().map(|(name, _)| name.as_str());
        let _ = size.map(size::parse_bytes).transpose().map_err(Error::Input)?;
        Err(Error::Input(suggest::unknown("program", stem, names, "programs")))
    }

    /// Bytes that it touches.
    pub fn footprint(&self) -> u64 {
        match self {
            Program::Trace(replay) => replay.footprint(),
        }
    }
}

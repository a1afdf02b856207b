//! `--perfetto`: a run, drawn while it goes on.

use super::output::Part;
use crate::engine::{Machine, Perfetto, SharedTimeline};
use crate::error::Result;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A drawing that a run works on.
pub(super) struct Drawing {
    part: Part,
    trace: Arc<Mutex<Perfetto<BufWriter<File>>>>,
}

impl Drawing {
    /// Begin to draw a run of `program` on `machine`.
    pub(super) fn begin(path: &Path, program: &str, machine: &Machine) -> Result<Drawing> {
        let (file, part) = Part::create(path)?;
        let trace = Perfetto::new(BufWriter::new(file), program, machine.devices());
        Ok(Drawing { part, trace: Arc::new(Mutex::new(trace)) })
    }

    /// What the run has to tell.
    pub(super) fn timeline(&self) -> SharedTimeline {
        SharedTimeline(self.trace.clone())
    }

    /// Keep what was drawn: all of the run, or what there was of it when it failed or was interrupted.
    pub(super) fn end(self) -> Result<()> {
        let written = self.trace.lock().expect("no thread panics while it draws").finish();
        self.part.keep(written)
    }
}

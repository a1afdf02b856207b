//! The description of the machine that this runs on, measured.
//!
//! Probes (the crate `probe`) take times round by round; each quantity is the median of its rounds. What is measured
//! replaces the numbers of a base machine, and each number says how it was measured, or that it is the base's.
//!
//! ```text
//! quantity   what is measured, and the key of a machine file that it is for
//! groups     which probe measures which quantities, and how
//! rounds     rounds of a probe, and estimates of them
//! base       the machine whose numbers stay where nothing is measured
//! file       the machine file
//! text       the result for people
//! ```

mod base;
mod file;
mod groups;
mod quantity;
mod rounds;
mod text;

pub use base::Base;

use crate::document::Document;
use crate::engine::Machine;
use crate::error::{Error, Result};
use crate::human;
use groups::Group;
use probe::cpus::{Pinned, allowed};
use probe::system::System;
use quantity::{Estimate, Quantity, Row};
use rounds::Ended;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// What is asked for.
pub struct Asked {
    /// The time for all rounds.
    pub time: Duration,
    /// A folder of the disk to measure.
    pub disk: Option<PathBuf>,
    /// Write what is not stable, too.
    pub unstable: bool,
}

/// The machine, as measured.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// The day, in UTC.
    pub date: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu: String,
    /// CPUs that are online.
    pub cpus: usize,
    /// Whether a hypervisor says that it is there.
    pub is_virtual: bool,
    /// The machine whose numbers stay where nothing is measured.
    pub base: String,
    /// Seconds that all rounds were to take.
    pub seconds: f64,
    /// What was measured, or was to be.
    pub rows: Vec<Row>,
    /// Bytes of memory that the kernel manages: up to 4 GiB, behind, and what it can move alone.
    #[serde(skip)]
    memory: [u64; 3],
}

/// Measure this machine. `progress` is told how many probes are done, of all; `stop` ends the measurement, whose
/// result is then incomplete.
///
/// # Errors
/// The system does not say which CPUs this process may use.
pub fn measure(
    base: &Base,
    asked: &Asked,
    progress: &mut dyn FnMut(usize, usize),
    stop: &dyn Fn() -> bool,
) -> Result<Calibration> {
    let failed = |error| Error::Failed(format!("cannot keep this process on one CPU: {error}"));
    let cpus = allowed().map_err(failed)?;
    let Some((&own, others)) = cpus.split_last() else {
        return Err(Error::Failed("the system names no CPU that this process may use".into()));
    };
    let _pinned = Pinned::to(own).map_err(failed)?;
    let system = System::here();
    let mut rows = groups::read(&system, base);
    let groups = groups::all(&system, (own, others), base, asked.disk.as_deref());
    let all = groups.len();
    let shares: u32 = groups.iter().map(|group| group.share).sum();
    for (done, group) in groups.into_iter().enumerate() {
        progress(done, all);
        let Some(measured) = measure_group(group, asked.time / shares, stop) else { break };
        rows.extend(measured);
    }
    let mut calibration = Calibration {
        date: human::today(),
        cpus: system.nodes.iter().map(Vec::len).sum(),
        kernel: system.kernel,
        cpu: system.cpu,
        is_virtual: system.is_virtual,
        base: base.name().to_owned(),
        seconds: asked.time.as_secs_f64(),
        rows: Vec::new(),
        memory: system.memory,
    };
    for row in &mut rows {
        row.base = base.value(&row.quantity);
        row.written = !row.quantity.part && row.state.may_be_written(asked.unstable);
    }
    calibration.rows = rows;
    calibration.deliver(base, asked.unstable)?;
    Ok(calibration)
}

/// Rows of a group; `None`: stopped. `part`: the time of a group whose share is 1.
fn measure_group(group: Group, part: Duration, stop: &dyn Fn() -> bool) -> Option<Vec<Row>> {
    let Group { quantities, share, start } = group;
    let row = |(quantity, estimate): (Quantity, Result<Estimate, String>)| Row::new(quantity, estimate);
    let estimates = match rounds::run(start, part * share, stop) {
        Ended::Done(rounds) => {
            (0..quantities.len()).map(|column| rounds::estimate(&rounds, column)).collect()
        }
        Ended::Failed(why) => vec![Err(why); quantities.len()],
        Ended::Stopped => return None,
    };
    Some(quantities.into_iter().zip(estimates).map(row).collect())
}

impl Calibration {
    /// Add how long an interrupt takes to arrive: what a flush on one other CPU takes, less what sender and receiver do
    /// for it, which is known from counts of instructions.
    fn deliver(&mut self, base: &Base, unstable: bool) -> Result<()> {
        let Some(flush) = self.rows.iter().find(|row| row.quantity.what == groups::FLUSH) else {
            return Ok(());
        };
        let flush = flush.estimate();
        let quantity = groups::deliver();
        let (_, known) = self.described(base)?;
        let around = base::sum(&known, &base::AROUND_DELIVERY);
        let estimate = match flush {
            Some(flush) if flush.median > around => Ok(Estimate {
                median: flush.median - around,
                interval: flush.interval.map(|ends| ends.map(|end| end - around)),
                rounds: flush.rounds,
            }),
            Some(_) => Err(format!("a flush takes less than the {around:.0} ns of its other parts")),
            None => Err("no flush on another CPU was measured".to_owned()),
        };
        let mut row = Row::new(quantity, estimate);
        row.base = base.value(&row.quantity);
        row.written = row.state.may_be_written(unstable);
        self.rows.push(row);
        Ok(())
    }

    /// The machine file, and the machine that it describes.
    fn described(&self, base: &Base) -> Result<(String, Machine)> {
        let text = file::render(self, base)?;
        let machine = Machine::from_toml(base.name(), &text).map_err(|error| {
            Error::Input(format!("--base: its other numbers do not fit this machine: {error}"))
        })?;
        Ok((text, machine))
    }

    /// The machine file.
    ///
    /// # Errors
    /// Numbers of the base do not fit those that were measured.
    pub fn file(&self, base: &Base) -> Result<String> {
        self.described(base).map(|(text, _)| text)
    }
}

impl Document for Calibration {
    const COMMAND: &'static str = "calibrate";

    fn text(&self, width: usize) -> String {
        text::render(self, width)
    }
}

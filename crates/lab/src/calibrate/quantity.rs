//! What is measured, and the key of a machine file that it is for.

use crate::statistics::Interval;
use serde::Serialize;

/// An interval that is wider than this share of its median says too little.
pub const WIDEST: f64 = 0.2;

/// The most nanoseconds of a cost in a machine file.
const COSTLIEST: f64 = 1e6;

/// What a quantity is on the base machine.
#[derive(Clone, Debug, PartialEq)]
pub enum OnBase {
    /// The value of its key.
    Key,
    /// The time of this many instructions of the kernel.
    Instructions(f64),
    /// The sum of costs of hardware.
    Costs(&'static [&'static str]),
}

/// A quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quantity {
    /// What it is, for people.
    pub what: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its key in a machine file, with numbers for the entries of arrays: `node.0.latency_ns`.
    pub key: String,
    /// Whether it is only a part of what the key is computed from.
    pub part: bool,
    /// How it is measured.
    pub method: &'static str,
    /// What it is on the base machine.
    #[serde(skip)]
    pub on_base: OnBase,
}

impl Quantity {
    /// A quantity that is the value of a key.
    pub fn new(
        what: &'static str,
        unit: &'static str,
        key: impl Into<String>,
        method: &'static str,
    ) -> Quantity {
        Quantity { what, unit, key: key.into(), part: false, method, on_base: OnBase::Key }
    }

    /// Whether a machine file takes this number. Differences of times may be below zero by noise.
    fn takes(&self, value: f64) -> bool {
        let most = if self.key.starts_with("costs.") { COSTLIEST } else { f64::INFINITY };
        self.part || (value > 0.0 && value <= most)
    }

    /// The same as a part of what the key is computed from.
    pub fn part(self, on_base: OnBase) -> Quantity {
        Quantity { part: true, on_base, ..self }
    }
}

/// A median over rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Its interval; `None`: it was read, not measured.
    pub interval: Option<Interval>,
    /// Rounds.
    pub rounds: usize,
}

/// What is known of a quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum State {
    /// It is measured.
    #[serde(rename = "measured")]
    Measured,
    /// It is measured, and its interval is too wide.
    #[serde(rename = "not stable")]
    Unstable,
    /// The system says it.
    #[serde(rename = "read")]
    Read,
    /// It is not measured.
    #[serde(rename = "not measured")]
    Missing,
}

impl State {
    /// Whether its value goes into the file.
    pub fn may_be_written(self, unstable: bool) -> bool {
        match self {
            State::Measured | State::Read => true,
            State::Unstable => unstable,
            State::Missing => false,
        }
    }
}

/// A quantity with its value.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is of.
    #[serde(flatten)]
    pub quantity: Quantity,
    /// The median; `null`: it is not measured.
    pub median: Option<f64>,
    /// The interval of the median; `null`: there is none.
    pub interval: Option<Interval>,
    /// Rounds.
    pub rounds: usize,
    /// Its value on the base machine; `null`: it has none.
    pub base: Option<f64>,
    /// What is known of it.
    pub state: State,
    /// Why it is not measured.
    pub why: Option<String>,
    /// Whether it is in the machine file.
    pub written: bool,
}

impl Row {
    /// A quantity with what is known of it.
    pub fn new(quantity: Quantity, estimate: Result<Estimate, String>) -> Row {
        let estimate = estimate.and_then(|found| match quantity.takes(found.median) {
            true => Ok(found),
            false => Err(format!("{:.1} {} is none that a machine can have", found.median, quantity.unit)),
        });
        let state = match &estimate {
            Err(_) => State::Missing,
            Ok(Estimate { interval: None, .. }) => State::Read,
            Ok(Estimate { interval: Some([low, high]), median, .. }) => {
                if high - low <= WIDEST * median.abs() { State::Measured } else { State::Unstable }
            }
        };
        let (found, why) = match estimate {
            Ok(estimate) => (Some(estimate), None),
            Err(why) => (None, Some(why)),
        };
        Row {
            quantity,
            median: found.map(|estimate| estimate.median),
            interval: found.and_then(|estimate| estimate.interval),
            rounds: found.map_or(0, |estimate| estimate.rounds),
            base: None,
            state,
            why,
            written: false,
        }
    }

    /// The estimate again.
    pub fn estimate(&self) -> Option<Estimate> {
        self.median.map(|median| Estimate { median, interval: self.interval, rounds: self.rounds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(median: f64, interval: Option<Interval>) -> Row {
        let quantity = Quantity::new("clock", "GHz", "cpu.ghz", "additions");
        Row::new(quantity, Ok(Estimate { median, interval, rounds: 9 }))
    }

    #[test]
    fn wide_interval_is_written_only_if_that_is_wanted() {
        let [stable, wide] = [[95.0, 115.0], [95.0, 115.1]].map(|ends| row(100.0, Some(ends)).state);
        assert_eq!((stable, wide), (State::Measured, State::Unstable));
        assert!(stable.may_be_written(false) && !wide.may_be_written(false) && wide.may_be_written(true));
        assert_eq!(row(1.0, None).state, State::Read);
        let below =
            Row::new(row(1.0, None).quantity, Ok(Estimate { median: -30.9, interval: None, rounds: 9 }));
        assert_eq!(below.why.as_deref(), Some("-30.9 GHz is none that a machine can have"));
        let missing = Row::new(row(1.0, None).quantity, Err("one CPU".into()));
        assert!(missing.state == State::Missing && !missing.state.may_be_written(true));
        assert_eq!((missing.why.as_deref(), missing.median), (Some("one CPU"), None));
    }
}

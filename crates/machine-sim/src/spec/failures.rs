//! How often a device's requests fail, as people write it: `reads=1%,writes=0.1%,after=2s`.

use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;

/// Shares are counted in a million requests.
pub(crate) const MILLION: u32 = 1_000_000;
/// Picoseconds of a microsecond.
const MICROSECOND: u64 = 1_000_000;
/// Units of time, and their microseconds.
const UNITS: [(&str, u64); 3] = [("us", 1), ("ms", 1_000), ("s", 1_000_000)];

/// How often requests of a device fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Failures {
    /// Reads that fail, in a million.
    reads: u32,
    /// Writes that fail, in a million.
    writes: u32,
    /// Microseconds from the start of the run before none fails.
    after_us: u64,
}

impl Failures {
    /// How many requests of a kind fail, in a million that end at `now`.
    pub(crate) fn share(&self, write: bool, now: u64) -> u32 {
        let begun = now / MICROSECOND >= self.after_us;
        if !begun {
            0
        } else if write {
            self.writes
        } else {
            self.reads
        }
    }

    /// Whether any request may fail.
    pub(crate) fn any(&self) -> bool {
        self.reads > 0 || self.writes > 0
    }
}

/// A share in percent, in a million.
pub(super) fn parse_share(text: &str) -> Option<u32> {
    let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then(|| (percent / 100.0 * f64::from(MILLION)).round() as u32)
}

/// A time like 10ms, in microseconds.
pub(crate) fn parse_time(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let &(_, micros) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(micros)
}

impl FromStr for Failures {
    type Err = String;

    fn from_str(text: &str) -> Result<Failures, String> {
        let mut failures = Failures::default();
        for setting in text.split(',') {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            let share = || parse_share(value).ok_or_else(|| format!("{key}: '{value}' is no share like 1%"));
            match key {
                "reads" => failures.reads = share()?,
                "writes" => failures.writes = share()?,
                "after" => {
                    let time = parse_time(value);
                    failures.after_us =
                        time.ok_or_else(|| format!("after: '{value}' is no time like 10ms"))?;
                }
                _ => return Err(format!("'{setting}' is none of reads=1%, writes=1%, after=10ms")),
            }
        }
        Ok(failures)
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: u32| f64::from(share) * 100.0 / f64::from(MILLION);
        write!(f, "reads={}%,writes={}%", percent(self.reads), percent(self.writes))?;
        if self.after_us > 0 {
            write!(f, ",after={}us", self.after_us)?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Failures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Failures, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

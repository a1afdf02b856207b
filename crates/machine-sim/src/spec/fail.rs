//! Devices that fail, as people write them: `DEVICE:reads=1%,writes=0.1%,after=2s`.

use super::{MachineSpec, SpecError};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;

/// The name that stands for all devices.
const ALL: &str = "all";
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
fn parse_share(text: &str) -> Option<u32> {
    let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then(|| (percent / 100.0 * f64::from(MILLION)).round() as u32)
}

fn parse_time(text: &str) -> Option<u64> {
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
                    failures.after_us = time.ok_or_else(|| format!("after: '{value}' is no time like 10ms"))?;
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

/// A device that fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailSpec {
    /// Its name, or [`ALL`].
    device: String,
    failures: Failures,
}

impl FromStr for FailSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<FailSpec, String> {
        let (device, failures) =
            text.split_once(':').ok_or_else(|| format!("'{text}' fails nothing; write DEVICE:reads=1%"))?;
        Ok(FailSpec { device: device.to_owned(), failures: failures.parse()? })
    }
}

impl fmt::Display for FailSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.failures)
    }
}

impl MachineSpec {
    /// The same machine with devices that fail so.
    pub fn with_failures(mut self, fails: &[FailSpec]) -> Result<MachineSpec, SpecError> {
        for fail in fails {
            let mut found = false;
            for device in &mut self.file.device {
                if fail.device == ALL || fail.device == device.name {
                    (device.fails, found) = (fail.failures, true);
                }
            }
            if !found {
                let message = format!("there is no device \"{}\"", fail.device);
                return Err(SpecError::new("fail", message));
            }
        }
        Ok(self)
    }

    /// Whether some device may fail.
    pub fn may_fail(&self) -> bool {
        self.devices().iter().any(|device| device.fails.any())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_and_written() {
        for (text, written) in [
            ("nvme0:reads=0.1%,writes=100%,after=2ms", "nvme0:reads=0.1%,writes=100%,after=2000us"),
            ("all:writes=1%", "all:reads=0%,writes=1%"),
        ] {
            assert_eq!(text.parse::<FailSpec>().unwrap().to_string(), written);
        }
        for (text, expected) in [
            ("nvme0", "fails nothing"),
            ("nvme0:reads=2", "is no share like 1%"),
            ("nvme0:reads=101%", "is no share like 1%"),
            ("nvme0:after=3h", "is no time like 10ms"),
            ("nvme0:trims=1%", "is none of reads=1%"),
        ] {
            let error = text.parse::<FailSpec>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn only_named_devices_fail_and_only_after_their_time() {
        let laptop = || MachineSpec::preset("laptop").unwrap();
        assert!(!laptop().may_fail());
        let fails = |text: &str| laptop().with_failures(&[text.parse().unwrap()]);
        let error = fails("sdz:reads=1%").unwrap_err().to_string();
        assert_eq!(error, "fail: there is no device \"sdz\"");
        let machine = fails("nvme0:reads=1%,after=2ms").unwrap();
        assert!(machine.may_fail());
        let failures = machine.devices()[0].fails;
        let shares = [(false, 2_000 * MICROSECOND), (false, 1_999 * MICROSECOND), (true, u64::MAX)];
        assert_eq!(shares.map(|(write, now)| failures.share(write, now)), [10_000, 0, 0]);
    }
}

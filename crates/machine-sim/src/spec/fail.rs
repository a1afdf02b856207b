//! Devices that fail, as people write them: `DEVICE:reads=1%,writes=0.1%,after=2s`.

use super::failures::Failures;
use super::{MachineSpec, SpecError};
use std::fmt;
use std::str::FromStr;

/// The name that stands for all devices.
const ALL: &str = "all";

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
        let shares = [(false, 2_000_000_000), (false, 1_999_999_999), (true, u64::MAX)];
        assert_eq!(shares.map(|(write, now)| failures.share(write, now)), [10_000, 0, 0]);
    }
}

//! A controller of a control group's memory, as people write it: `GROUP:interval=6s,pressure=10ms,max_probe=1%`.

use super::{MILLION, parse_share, parse_time};
use std::fmt;
use std::str::FromStr;

/// A controller of a control group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Senpai {
    /// The group's path.
    pub group: String,
    /// Microseconds from one look at the group to the next.
    pub interval_us: u64,
    /// Microseconds of an interval in which some task of the group may wait for memory or devices: the target.
    pub pressure_us: u64,
    /// The most that it asks for at once: a share of the group's memory, in a million.
    pub max_probe: u32,
}

impl FromStr for Senpai {
    type Err = String;

    /// Read `GROUP` or `GROUP:interval=6s,pressure=10ms,max_probe=1%`.
    fn from_str(text: &str) -> Result<Senpai, String> {
        let (group, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut senpai = Senpai {
            group: group.to_owned(),
            interval_us: 6_000_000,
            pressure_us: 10_000,
            max_probe: 10_000,
        };
        for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            let time = || {
                let time = parse_time(value).filter(|&time| time > 0);
                time.ok_or_else(|| format!("{key}: '{value}' is no time like 10ms"))
            };
            match key {
                "interval" => senpai.interval_us = time()?,
                "pressure" => senpai.pressure_us = time()?,
                "max_probe" => {
                    let share = parse_share(value).filter(|&share| share > 0);
                    senpai.max_probe =
                        share.ok_or_else(|| format!("{key}: '{value}' is no share like 1%"))?;
                }
                _ => {
                    return Err(format!("'{setting}' is none of interval=6s, pressure=10ms, max_probe=1%"));
                }
            }
        }
        Ok(senpai)
    }
}

impl fmt::Display for Senpai {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Senpai { group, interval_us, pressure_us, max_probe } = self;
        let percent = f64::from(*max_probe) / 10_000.0;
        write!(f, "{group}:interval={interval_us}us,pressure={pressure_us}us,max_probe={percent}%")
    }
}

impl Senpai {
    /// Pages to ask for if the group has this many, and its tasks waited for this long in the last interval.
    pub(crate) fn probe(&self, pages: u64, stalled_us: u64) -> u64 {
        let below = self.pressure_us.saturating_sub(stalled_us);
        let probe = u128::from(pages) * u128::from(self.max_probe) * u128::from(below);
        (probe / (u128::from(self.pressure_us) * u128::from(MILLION))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_written_as_one_word() {
        let plain: Senpai = "web".parse().unwrap();
        assert_eq!(plain.to_string(), "web:interval=6000000us,pressure=10000us,max_probe=1%");
        let set: Senpai = "web/child:interval=5ms,pressure=8us,max_probe=0.5%".parse().unwrap();
        assert_eq!((set.interval_us, set.pressure_us, set.max_probe), (5000, 8, 5000));
        assert_eq!(set.to_string().parse(), Ok(set));
        for (wrong, why) in [
            ("web:interval=0s", "interval: '0s' is no time"),
            ("web:pressure=1", "pressure: '1' is no time"),
            ("web:max_probe=0%", "max_probe: '0%' is no share"),
            ("web:backoff=1", "'backoff=1' is none of"),
        ] {
            assert!(wrong.parse::<Senpai>().unwrap_err().contains(why), "{wrong}");
        }
    }

    #[test]
    fn it_asks_for_less_the_nearer_the_wait_is_to_the_target() {
        let senpai: Senpai = "web:pressure=10ms,max_probe=1%".parse().unwrap();
        let probes = [0, 2_500, 5_000, 9_999, 10_000, 50_000].map(|stalled| senpai.probe(10_000, stalled));
        assert_eq!(probes, [100, 75, 50, 0, 0, 0]);
    }
}

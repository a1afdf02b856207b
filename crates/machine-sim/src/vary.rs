//! What differs between runs with different seeds, besides what devices and the machine draw.
//!
//! A seed alone changes little of a recorded program: its threads do the same at the same addresses, and memory has
//! just been freed. On another day they begin at other times, the kernel places mappings elsewhere, and memory is in
//! pieces. Each of these is drawn from the run's seed in a stream of its own, so one of them changes no draw of
//! another.

use crate::fragment::target::Fragmentation;
use crate::spec::parse_time;
use mm::units::Nanos;
use program::rng::{Rng, task_seed};
use std::fmt;
use std::str::FromStr;

/// Pages by which the start of mappings differs at most: 28 random bits, Linux's `mmap_rnd_bits` on x86-64.
const PLACES: u64 = 1 << 28;
/// The most of the free 2 MiB blocks that are broken, in thousandths.
const MOST_BROKEN: u64 = 800;

/// What differs between runs with different seeds. By default nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vary {
    /// Every task but the first begins up to this many microseconds later than it would.
    pub arrival_us: Option<u64>,
    /// Mappings without a fixed address are placed elsewhere. Those of a recorded program have fixed ones; its replay
    /// moves them by [`Vary::layout_seed`].
    pub layout: bool,
    /// Memory begins in pieces: 0 to 80 % of the free 2 MiB blocks are broken.
    pub fragment: bool,
}

impl Vary {
    /// Whether all runs begin in the same way.
    pub fn is_nothing(&self) -> bool {
        *self == Vary::default()
    }

    /// How much later the task with this number begins.
    pub(crate) fn delay(&self, seed: u64, task: u32) -> Nanos {
        let most = self.arrival_us.map_or(0, |micros| micros.saturating_mul(1000));
        match most {
            0 => 0,
            most => Rng::new(task_seed(seed ^ 0x6172_7269_7665, task)).below(most.saturating_add(1)),
        }
    }

    /// The seed from which a layout is drawn, if layouts differ.
    pub fn layout_seed(&self, seed: u64) -> Option<u64> {
        self.layout.then_some(seed ^ 0x6c61_796f_7574)
    }

    /// By how many pages mappings without a fixed address begin lower.
    pub(crate) fn lower_by(&self, seed: u64) -> u64 {
        self.layout_seed(seed).map_or(0, |seed| Rng::new(seed).below(PLACES))
    }

    /// The state that memory begins in.
    pub(crate) fn state(&self, seed: u64) -> Option<Fragmentation> {
        let broken = || Rng::new(seed ^ 0x7069_6563_6573).below(MOST_BROKEN + 1);
        self.fragment.then(|| Fragmentation::broken(broken()))
    }
}

impl FromStr for Vary {
    type Err = String;

    /// Read `arrival=TIME,layout,fragment` or some of these.
    fn from_str(text: &str) -> Result<Vary, String> {
        let mut vary = Vary::default();
        for word in text.split(',') {
            let (key, value) = word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
            let twice = match (key, value) {
                ("arrival", value) => vary.arrival_us.replace(arrival(value.unwrap_or_default())?).is_some(),
                ("layout", None) => std::mem::replace(&mut vary.layout, true),
                ("fragment", None) => std::mem::replace(&mut vary.fragment, true),
                _ => return Err(format!("'{word}' is none of arrival=TIME, layout, fragment")),
            };
            if twice {
                return Err(format!("'{key}' is there twice; leave one out"));
            }
        }
        Ok(vary)
    }
}

/// Read the time of `arrival`, in microseconds.
fn arrival(text: &str) -> Result<u64, String> {
    let time = parse_time(text).filter(|&time| time > 0);
    time.ok_or_else(|| format!("arrival: '{text}' is no time; write one like 10ms or 2s"))
}

impl fmt::Display for Vary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrival = self.arrival_us.map(|micros| match micros {
            _ if micros.is_multiple_of(1_000_000) => format!("arrival={}s", micros / 1_000_000),
            _ if micros.is_multiple_of(1000) => format!("arrival={}ms", micros / 1000),
            _ => format!("arrival={micros}us"),
        });
        let flags = [(self.layout, "layout"), (self.fragment, "fragment")];
        let flags = flags.into_iter().filter(|(on, _)| *on).map(|(_, word)| word.to_owned());
        f.write_str(&arrival.into_iter().chain(flags).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written() {
        for (text, written) in [
            ("arrival=50ms,layout,fragment", "arrival=50ms,layout,fragment"),
            ("fragment,arrival=2000ms", "arrival=2s,fragment"),
            ("layout", "layout"),
            ("arrival=1500us", "arrival=1500us"),
        ] {
            let vary: Vary = text.parse().unwrap();
            assert_eq!((vary.to_string().as_str(), vary.is_nothing()), (written, false));
            assert_eq!(vary.to_string().parse(), Ok(vary));
        }
        for (wrong, why) in [
            ("", "'' is none of arrival=TIME, layout, fragment"),
            ("arrival", "arrival: '' is no time"),
            ("arrival=0ms", "arrival: '0ms' is no time"),
            ("layout=3", "'layout=3' is none of"),
            ("layout,layout", "'layout' is there twice"),
        ] {
            let message = wrong.parse::<Vary>().unwrap_err();
            assert!(message.contains(why) && !message.contains('\n'), "{wrong}: {message}");
        }
    }

    #[test]
    fn each_is_drawn_in_its_range_and_from_the_seed() {
        let vary: Vary = "arrival=10ms,layout,fragment".parse().unwrap();
        let draws = |draw: &dyn Fn(u64) -> u64| (1..=1000).map(draw).collect::<Vec<u64>>();
        let middle = |draws: &[u64], most: u64| {
            let mean = draws.iter().sum::<u64>() as f64 / draws.len() as f64;
            assert!(draws.iter().all(|&drawn| drawn <= most), "{draws:?}");
            assert!((mean / most as f64 - 0.5).abs() < 0.05, "{mean} of {most}");
        };
        middle(&draws(&|seed| vary.delay(seed, 3)), 10_000_000);
        middle(&draws(&|seed| vary.delay(7, seed as u32)), 10_000_000);
        middle(&draws(&|seed| vary.lower_by(seed)), PLACES);
        assert_eq!((vary.delay(5, 2), vary.lower_by(5)), (vary.delay(5, 2), vary.lower_by(5)));
        assert_eq!(vary.state(5), vary.state(5));
        assert_ne!(vary.state(5), vary.state(6));
        let off = Vary::default();
        assert_eq!((off.delay(5, 2), off.lower_by(5), off.state(5)), (0, 0, None));
    }
}

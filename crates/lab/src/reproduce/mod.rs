//! Reproductions: published measurements done again in the simulator, beside what was published.
//!
//! A reproduction is data: machines and programs ([`Setting`]), the profiles that stand for what was compared, and the
//! published figures. What is compared is the *ratio* of the two sides, there and here: it needs no calibration, while
//! absolute times carry every difference of the machines. Nothing is tuned so that a published figure comes out; where a
//! ratio misses, the result says by how much.
//!
//! Memory and files shrink together by the scale. Times are shown divided by it, as if everything grew with memory.

mod pfn_flush;
mod result;
mod text;

pub use result::{Outcome, Row, SettingOutcome};
pub use text::render;

use crate::engine::{Machine, Program};
use crate::error::{Error, Result};
use crate::record::RunRecord;
use crate::suggest;

/// All that there are.
pub const ALL: &[Reproduction] = &[pfn_flush::PFN_FLUSH];

/// A published comparison that can be done again.
#[derive(Debug)]
pub struct Reproduction {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Where the figures are published.
    pub source: &'static str,
    /// Share of memory and files that is used if nothing is said.
    pub scale: f64,
    /// The two sides.
    pub sides: [Side; 2],
    /// Further profiles, without published figures.
    pub context: &'static [&'static str],
    /// Where it is done.
    pub settings: &'static [Setting],
    /// What a reader of the numbers must know.
    pub notes: &'static [&'static str],
}

/// One side of the comparison.
#[derive(Debug)]
pub struct Side {
    /// Our profile.
    pub profile: &'static str,
    /// What was published calls it so.
    pub published: &'static str,
}

/// A machine with a program, and what was published of it.
#[derive(Debug)]
pub struct Setting {
    /// For people.
    pub title: &'static str,
    /// A preset.
    pub machine: &'static str,
    /// A built-in program.
    pub program: &'static str,
    /// Bytes that it touches for each byte of memory.
    pub times_memory: u64,
    /// The figures.
    pub published: &'static [Published],
}

/// A published pair of times, in seconds.
#[derive(Debug)]
pub struct Published {
    /// As it was published.
    pub name: &'static str,
    /// What we hold against it.
    pub measure: Measure,
    /// Of the first side and of the second.
    pub seconds: [f64; 2],
}

/// A time that both worlds have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// CPU time of the processes outside the kernel.
    User,
    /// CPU time of the processes in the kernel, with the interrupts that came while they ran; not that of kernel threads.
    /// That is what time(1) counts on Linux.
    System,
    /// From start to end.
    Elapsed,
}

impl Measure {
    /// Seconds of a run.
    pub fn of(self, run: &RunRecord) -> f64 {
        let metric = |name: &str| {
            run.metrics.iter().find(|metric| metric.name == name).map_or(0.0, |metric| metric.value / 1e9)
        };
        match self {
            Measure::User => metric("cpu_user"),
            Measure::System => metric("cpu_system") + metric("cpu_interrupt"),
            Measure::Elapsed => run.nanos as f64 / 1e9,
        }
    }
}

impl Reproduction {
    /// The reproduction of that name.
    pub fn find(name: &str) -> Result<&'static Reproduction> {
        ALL.iter().find(|one| one.name == name).ok_or_else(|| {
            let names = ALL.iter().map(|one| one.name);
            Error::Input(suggest::unknown("reproduction", name, names, "reproductions"))
        })
    }

    /// Profiles: the two sides, then the context.
    pub fn profiles(&self) -> Vec<&'static str> {
        self.sides.iter().map(|side| side.profile).chain(self.context.iter().copied()).collect()
    }
}

/// A setting at a scale, ready to run.
pub struct Case {
    /// What it is.
    pub setting: &'static Setting,
    /// The machine.
    pub machine: Machine,
    /// Bytes of memory.
    pub memory: u64,
    /// The program's name as `pagefold run` takes it.
    pub name: String,
    /// The program.
    pub program: Program,
}

impl Case {
    /// `setting` with `scale` of its memory, in whole MiB.
    pub fn new(setting: &'static Setting, scale: f64) -> Result<Case> {
        let machine = Machine::find(setting.machine)?;
        let memory = (machine.memory() as f64 * scale / f64::from(1 << 20)).round() as u64 * (1 << 20);
        machine.check_memory(memory).map_err(|error| {
            let text = error.to_string();
            let why = text.split(';').next().unwrap_or_default().trim_start_matches("--memory: ").to_owned();
            Error::Input(format!("--scale {scale}: {}: {why}; choose a larger scale", setting.machine))
        })?;
        let name = format!("{}:{}", setting.program, memory * setting.times_memory);
        let program = Program::find(&name)?;
        Ok(Case { setting, machine, memory, name, program })
    }
}

/// A share of full size as users write it: `0.1` or `1/16`.
pub fn parse_scale(text: &str) -> Result<f64, String> {
    let value = match text.split_once('/') {
        Some((above, below)) => {
            above.trim().parse::<f64>().ok().zip(below.trim().parse::<f64>().ok()).map(|(a, b)| a / b)
        }
        None => text.parse().ok(),
    };
    value.filter(|scale| *scale > 0.0 && *scale <= 1.0).ok_or_else(|| {
        format!("'{text}' is not a share of full size; write a number up to 1, like 1/16 or 0.1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn every_reproduction_can_be_set_up() {
        for one in ALL {
            assert_eq!(Reproduction::find(one.name).unwrap().help, one.help);
            assert!(one.profiles().iter().all(|name| Profile::parse(name, &[]).is_ok()));
            for setting in one.settings {
                let case = Case::new(setting, one.scale).unwrap();
                assert_eq!(case.program.footprint(), case.memory * setting.times_memory);
                assert!(setting.published.iter().all(|row| row.seconds.iter().all(|&time| time > 0.0)));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = Reproduction::find("pfn-flash").unwrap_err().to_string();
        assert!(error.contains("did you mean 'pfn-flush'?"), "{error}");
        let error = Case::new(&ALL[0].settings[0], 1e-6).err().unwrap().to_string();
        assert!(
            error.starts_with("--scale 0.000001: uma-1s-2015: ") && error.contains("at least 8M"),
            "{error}"
        );
    }

    #[test]
    fn scales_are_numbers_and_fractions() {
        assert_eq!(
            (parse_scale("1/16"), parse_scale("0.25"), parse_scale("1")),
            (Ok(0.0625), Ok(0.25), Ok(1.0))
        );
        for bad in ["0", "2", "-1", "1/0", "x", "1/", "nan"] {
            assert!(parse_scale(bad).unwrap_err().contains("like 1/16"), "{bad}");
        }
    }
}

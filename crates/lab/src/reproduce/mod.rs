//! Reproductions: published measurements done again in the simulator, beside what was published.
//!
//! A reproduction is data: machines and programs ([`Setting`]), the profiles that stand for what was compared, and the
//! published figures. What is compared is the *ratio* of the two sides, there and here: it needs no calibration, while
//! absolute times carry every difference of the machines. Nothing is tuned so that a published figure comes out; where
//! a ratio misses, the result says by how much.
//!
//! Memory and files shrink together by the scale, or the time that is measured for does. Times and numbers of loops are
//! shown divided by it, as if everything grew with it.

mod cache_ext;
mod compaction;
mod defrag_mode;
mod gain;
mod luf;
mod mglru;
mod pfn_flush;
mod result;
mod rmap;
mod text;
mod tiers;

pub use gain::{Gain, GainOutcome};
pub use result::{Change, Outcome, Row, SettingOutcome};
pub use text::render;

use crate::engine::{Fragmentation, Machine, Program};
use crate::error::{Error, Result};
use crate::metrics;
use crate::record::RunRecord;
use crate::suggest;
use mm::knobs::Knob;
use mm::stat::Stat;
use std::path::Path;

/// Where traces are looked for that are not found from where one is.
const SOURCE_TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Bytes that a machine needs besides.
const LEAST_OWN: u64 = 2 << 20;

/// All that there are.
pub const ALL: &[Reproduction] = &[
    pfn_flush::PFN_FLUSH,
    rmap::RMAP,
    mglru::MGLRU,
    mglru::MGLRU_7_2,
    cache_ext::CACHE_EXT,
    luf::LUF,
    compaction::COMPACTION,
    defrag_mode::DEFRAG_MODE,
    tiers::TIERS,
];

/// A published comparison that can be done again.
#[derive(Debug)]
pub struct Reproduction {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Where the figures are published.
    pub source: &'static str,
    /// Share of full size that is used if nothing is said.
    pub scale: f64,
    /// Seeds that are used if nothing is said.
    pub runs: u32,
    /// Knobs that differ from their defaults under all profiles.
    pub knobs: &'static [(Knob, u64)],
    /// What was compared: each with the first.
    pub sides: &'static [Side],
    /// Further profiles, without published figures.
    pub context: &'static [&'static str],
    /// Where it is done.
    pub settings: &'static [Setting],
    /// Counts that explain the figures.
    pub counts: &'static [Count],
    /// How gains are explained, if not by all profiles' gains and by the counts as they are.
    pub explain: Option<Explain>,
    /// What a reader of the numbers must know.
    pub notes: &'static [&'static str],
}

/// Text about settings with gains.
pub type Explain = fn(&Outcome, &[&SettingOutcome]) -> String;

/// One side of the comparison.
#[derive(Debug)]
pub struct Side {
    /// Our profile.
    pub profile: &'static str,
    /// What was published calls it so.
    pub published: &'static str,
}

/// What stands below the figures: the sum of counters or of what the machine counted, or a share.
#[derive(Debug)]
pub struct Count {
    /// For people.
    pub name: &'static str,
    /// What is added up.
    pub of: &'static [&'static str],
    /// What it is a share of, in per cent; empty: it is none.
    pub per: &'static [&'static str],
}

impl Count {
    /// One that has the name of a counter.
    const fn plain<const ONE: usize>(of: &'static [&'static str; ONE]) -> Count {
        Count { name: of[0], of, per: &[] }
    }

    const fn sum(name: &'static str, of: &'static [&'static str]) -> Count {
        Count { name, of, per: &[] }
    }

    const fn share(name: &'static str, of: &'static [&'static str], per: &'static [&'static str]) -> Count {
        Count { name, of, per }
    }
}

/// kswapd's CPU time; its name says the unit.
const KSWAPD: Count = Count::sum("kswapd_seconds", &["cpu_kswapd"]);

/// Counts that explain times of processes.
const TIMES: &[Count] = &[
    Count::plain(&["tlb_rounds"]),
    Count::plain(&["ipis_received"]),
    Count::plain(&["nr_tlb_local_flush_all"]),
    Count::plain(&["nr_tlb_local_flush_one"]),
    Count::plain(&["dtlb_misses"]),
    Count::plain(&["stlb_misses"]),
    Count::plain(&["pgfault"]),
    Count::plain(&["pgsteal_kswapd"]),
    Count::plain(&["pgsteal_direct"]),
    KSWAPD,
];

/// A machine with a program, and what was published of it.
#[derive(Debug)]
pub struct Setting {
    /// For people.
    pub title: &'static str,
    /// A preset.
    pub machine: &'static str,
    /// What runs on it.
    pub load: Load,
    /// Figures of the sides.
    pub published: &'static [Published],
    /// Gains, where no figures are told.
    pub gains: &'static [Gain],
    /// Knobs that differ from their defaults here.
    pub knobs: &'static [(Knob, u64)],
    /// Has the machine swap space, if its preset has?
    pub swap: bool,
    /// The state of memory to begin with, as `--fragment` takes it; `None`: as the machine starts.
    pub fragment: Option<&'static str>,
}

impl Setting {
    /// What most settings are: a machine as it is.
    pub const PLAIN: Setting = Setting {
        title: "",
        machine: "laptop",
        load: Load::Timed { program: "", memory: 0 },
        published: &[],
        gains: &[],
        knobs: &[],
        swap: true,
        fragment: None,
    };
}

/// A program and its memory.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// A built-in program on the scale's share of the machine's memory.
    Filling {
        /// Its name.
        program: &'static str,
        /// Bytes that it touches for each byte of memory.
        times_memory: u64,
    },
    /// A built-in program, with memory for a share of what it touches.
    Share {
        /// Its name.
        program: &'static str,
        /// What follows its size.
        options: &'static str,
        /// Bytes that it touches at full size.
        footprint: u64,
        /// Memory for so many per cent of them.
        percent: u64,
    },
    /// A recorded program, at its own size, with memory for a share of what it touches.
    Trace {
        /// Where it is in the source tree, from which it is run.
        file: &'static str,
        /// Memory for so many per cent of what it has at once.
        percent: u64,
    },
    /// A built-in program that runs for a given time, of which the scale is a share. What it gets done is the result,
    /// so two runs do not do the same work.
    Timed {
        /// As `pagefold run` takes it.
        program: &'static str,
        /// Bytes of memory.
        memory: u64,
    },
}

/// Published values of the sides.
#[derive(Debug)]
pub struct Published {
    /// As it was published.
    pub name: &'static str,
    /// What we hold against it.
    pub measure: Measure,
    /// The values.
    pub figures: Figures,
    /// Is it a test of ours? Not if what was published is known to be a fault of what was measured.
    pub judged: bool,
}

/// How values were published: side by side, in the measure's unit. The last sides may have none.
#[derive(Clone, Copy, Debug)]
pub enum Figures {
    /// All of them.
    Values(&'static [f64]),
    /// That of the first side, and the others' changes from it in per cent.
    Changes(f64, &'static [f64]),
}

impl Figures {
    /// Of all sides that have one.
    pub fn values(self) -> Vec<f64> {
        match self {
            Figures::Values(values) => values.to_vec(),
            Figures::Changes(first, changes) => std::iter::once(first)
                .chain(changes.iter().map(|percent| first * (1.0 + percent / 100.0)))
                .collect(),
        }
    }
}

impl Published {
    const fn new(name: &'static str, measure: Measure, values: &'static [f64]) -> Published {
        Published { name, measure, figures: Figures::Values(values), judged: true }
    }
}

/// What both worlds have measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// CPU time of the processes outside the kernel.
    User,
    /// CPU time of the processes in the kernel, with the interrupts that came while they ran; not that of kernel
    /// threads. That is what time(1) counts on Linux.
    System,
    /// From start to end.
    Elapsed,
    /// The progress that the program reports.
    Progress,
    /// The same, in a second.
    Rate,
    /// What 99 of 100 of the program's operations took at most.
    P99,
    /// What all tasks did in a second, as the program measures it.
    Throughput,
    /// What the machine counts under this name.
    Metric(&'static str),
    /// The sum of these counters.
    Counters(&'static [&'static str]),
    /// Flushes that CPUs did, for themselves or because others asked.
    Flushes,
    /// Share of all CPU time that functions or kinds of work took inside of another function, in per cent.
    Share {
        /// The other function.
        within: &'static str,
        /// Their names; that of the other itself stands for all of it.
        of: &'static [&'static str],
    },
}

impl Measure {
    /// Of a run, which was profiled if the measure is a share.
    pub fn of(self, run: &RunRecord) -> f64 {
        let number = |name: &str| {
            run.metrics.iter().find(|metric| metric.name == name).map_or(0.0, |metric| metric.value)
        };
        let metric = |name: &str| number(name) / 1e9;
        let counter = |stat: Stat| run.counters.get(stat.name()).copied().unwrap_or(0) as f64;
        match self {
            Measure::Throughput => number("throughput"),
            Measure::Metric(name) => number(name),
            Measure::Counters(names) => {
                names.iter().map(|&name| run.counters.get(name).map_or(0.0, |&value| value as f64)).sum()
            }
            Measure::Flushes => {
                [Stat::NrTlbRemoteFlushReceived, Stat::NrTlbLocalFlushAll, Stat::NrTlbLocalFlushOne]
                    .map(counter)
                    .iter()
                    .sum()
            }
            Measure::User => metric("cpu_user"),
            Measure::System => metric("cpu_system") + metric("cpu_interrupt"),
            Measure::Elapsed => run.nanos as f64 / 1e9,
            Measure::Progress => run.work.progress as f64,
            Measure::Rate => run.work.progress as f64 / (run.nanos.max(1) as f64 / 1e9),
            Measure::P99 => metric("operation_time_p99"),
            Measure::Share { within, of } => {
                let tree = run.profile_tree.as_ref();
                tree.map_or(0.0, |tree| {
                    of.iter().map(|name| tree.share_within(within, name)).sum::<f64>() * 100.0
                })
            }
        }
    }

    /// Of what it is a number.
    pub const fn unit(self) -> &'static str {
        match self {
            Measure::User | Measure::System | Measure::Elapsed | Measure::P99 => "s",
            Measure::Rate => "1/s",
            Measure::Throughput => "KiB/s",
            Measure::Progress => "loops",
            Measure::Metric(_) | Measure::Counters(_) | Measure::Flushes => "",
            Measure::Share { .. } => "% of CPU time",
        }
    }

    /// Does it grow with the scale?
    pub const fn scales(self) -> bool {
        !matches!(self, Measure::Share { .. } | Measure::Rate | Measure::P99 | Measure::Throughput)
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

    /// Do runs have to keep a profile?
    pub fn wants_profile(&self) -> bool {
        let mut rows = self.settings.iter().flat_map(|setting| setting.published);
        rows.any(|row| matches!(row.measure, Measure::Share { .. }))
    }

    /// Do runs have to look at zones that are compacted?
    pub fn wants_moves(&self) -> bool {
        let names = || self.counts.iter().flat_map(|count| count.of.iter().chain(count.per));
        metrics::MOVES_ROWS.iter().any(|row| names().any(|&name| name == row.name))
    }

    /// Do runs have to hold placement in tiers against the best?
    pub fn wants_placement(&self) -> bool {
        self.counts.iter().any(|count| count.of.iter().any(|name| name.starts_with("placement_")))
    }

    /// Profiles: the sides, then the context.
    pub fn profiles(&self) -> Vec<&'static str> {
        self.sides.iter().map(|side| side.profile).chain(self.context.iter().copied()).collect()
    }
}

/// A setting at a scale, ready to run.
pub struct Case {
    /// What it is.
    pub setting: &'static Setting,
    /// The share of full size.
    pub scale: f64,
    /// The machine.
    pub machine: Machine,
    /// Bytes of memory.
    pub memory: u64,
    /// The state of memory to begin with.
    pub fragment: Option<Fragmentation>,
    /// The program's name as `pagefold run` takes it.
    pub name: String,
    /// The program.
    pub program: Program,
}

impl Case {
    /// `setting` with `scale` of its memory, in whole MiB, or of its time.
    pub fn new(setting: &'static Setting, scale: f64) -> Result<Case> {
        let machine = Machine::find(setting.machine)?;
        let machine = if setting.swap { machine } else { machine.without_swap() };
        let (memory, name, time) = match setting.load {
            Load::Filling { program, times_memory } => {
                let memory =
                    (machine.memory() as f64 * scale / f64::from(1 << 20)).round() as u64 * (1 << 20);
                (memory, format!("{program}:{}", memory * times_memory), 1.0)
            }
            Load::Share { program, options, footprint, percent } => {
                let bytes = (footprint as f64 * scale) as u64;
                (bytes * percent / 100, format!("{program}:{bytes}{options}"), 1.0)
            }
            Load::Trace { file, percent } => {
                let here = Path::new(file).exists();
                let name = if here { file.to_owned() } else { format!("{SOURCE_TREE}/{file}") };
                // The pages of a program are not all: what is left over is the machine's own.
                let bytes = Program::find(&name)?.peak_live() * percent / 100 + LEAST_OWN;
                (bytes.next_multiple_of(1 << 20), name, 1.0)
            }
            Load::Timed { program, memory } => (memory, program.to_owned(), scale),
        };
        machine.check_memory(memory).map_err(|error| {
            let text = error.to_string();
            let why = text.split(';').next().unwrap_or_default().trim_start_matches("--memory: ").to_owned();
            Error::Input(format!("--scale {scale}: {}: {why}; choose a larger scale", setting.machine))
        })?;
        let program = Program::find(&name)?.with_share_of_time(time);
        let fragment = setting.fragment.map(|state| state.parse().map_err(Error::Input)).transpose()?;
        Ok(Case { setting, scale, machine, memory, fragment, name, program })
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
            assert!(one.profiles().iter().all(|name| Profile::parse(name, one.knobs).is_ok()));
            for setting in one.settings {
                let case = Case::new(setting, one.scale).unwrap();
                if let Load::Filling { times_memory, .. } = setting.load {
                    assert_eq!(case.program.footprint(), case.memory * times_memory);
                }
                let fits = |row: &Published| (2..=one.sides.len()).contains(&row.figures.values().len());
                assert!(setting.published.iter().all(fits), "{}", setting.title);
                assert!(
                    setting.published.iter().all(|row| row.figures.values().iter().all(|&value| value > 0.0))
                );
                let known = |gain: &Gain| {
                    one.profiles().contains(&gain.profile) && gain.percent[0] <= gain.percent[1]
                };
                assert!(setting.gains.iter().all(known), "{}", setting.title);
                assert_ne!(setting.published.is_empty(), setting.gains.is_empty(), "{}", setting.title);
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = Reproduction::find("pfn-flash").unwrap_err().to_string();
        assert!(error.contains("did you mean 'pfn-flush'?"), "{error}");
        let error = Case::new(&ALL[0].settings[0], 1e-6).err().unwrap().to_string();
        assert!(
            error.starts_with("--scale 0.000001: uma-1s-2015: ") && error.contains("at least 1M"),
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

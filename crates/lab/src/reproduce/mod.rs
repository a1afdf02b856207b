//! Reproductions: published measurements, repeated in the simulator and compared with what was published.
//!
//! A reproduction is data: machines and programs ([`Setting`]), the profiles that correspond to what was compared, and
//! the published figures. The *ratios* of the sides are compared: they need no calibration, while absolute times
//! include every difference between the machines. Nothing is tuned to match a published figure; where a ratio misses,
//! the result says by how much.
//!
//! The scale shrinks memory and files together, or the time of the measurement. Times and numbers of loops are divided
//! by it, as if everything grew with it.

mod all;
mod cache_ext;
mod compaction;
mod defrag_mode;
#[cfg(test)]
mod effort;
mod gain;
mod luf;
mod mglru;
mod pfn_flush;
mod result;
mod rmap;
mod text;
mod tiers;

pub use all::Overview;
pub use gain::Gain;
pub use result::{Change, Outcome, Row, SettingOutcome};

use crate::cell::Cell;
use crate::engine::{Fragmentation, Machine, Program, RunConfig, SwapSpec};
use crate::error::{Error, Result};
use crate::metrics;
use crate::profile::Profile;
use crate::record::RunRecord;
use crate::suggest;
use mm::knobs::Knob;
use mm::stat::Stat;
use std::path::Path;
use std::sync::Arc;

/// The directory of traces that are not in the current one.
const SOURCE_TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Bytes that a machine needs for itself.
const LEAST_OWN: u64 = 2 << 20;

/// All reproductions.
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

/// A published comparison that can be repeated.
#[derive(Debug)]
pub struct Reproduction {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Where the figures are published.
    pub source: &'static str,
    /// The default share of full size.
    pub scale: f64,
    /// The default number of seeds.
    pub runs: u32,
    /// Knobs that differ from their defaults under all profiles.
    pub knobs: &'static [(Knob, u64)],
    /// The sides of the comparison; each is compared with the first.
    pub sides: &'static [Side],
    /// Further profiles, without published figures.
    pub context: &'static [&'static str],
    /// Machines and programs.
    pub settings: &'static [Setting],
    /// Counts that explain the figures.
    pub counts: &'static [Count],
    /// Text that explains gains; `None`: the gains of all profiles, and the counts.
    pub explain: Option<Explain>,
    /// Notes for readers of the numbers.
    pub notes: &'static [&'static str],
}

/// Makes text about settings with gains, in lines of at most this width.
pub type Explain = fn(&Outcome, &[&SettingOutcome], usize) -> String;

/// One side of the comparison.
#[derive(Debug)]
pub struct Side {
    /// The profile.
    pub profile: &'static str,
    /// Its name in the publication.
    pub published: &'static str,
}

/// A number shown below the figures: a sum of counters or metrics, or a share.
#[derive(Debug)]
pub struct Count {
    /// For people.
    pub name: &'static str,
    /// The counters or metrics that are added.
    pub of: &'static [&'static str],
    /// The sum that it is a share of, in per cent; empty if it is no share.
    pub per: &'static [&'static str],
}

impl Count {
    /// A count with the name of its counter.
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

/// kswapd's CPU time; the name has the unit.
const KSWAPD: Count = Count::sum("kswapd_seconds", &["cpu_kswapd"]);

/// Counts that explain the times of processes.
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

/// A machine with a program, and what was published for it.
#[derive(Debug)]
pub struct Setting {
    /// For people.
    pub title: &'static str,
    /// A preset.
    pub machine: &'static str,
    /// The program and its memory.
    pub load: Load,
    /// Published figures of the sides.
    pub published: &'static [Published],
    /// Published gains, if no figures are published.
    pub gains: &'static [Gain],
    /// Knobs that differ from their defaults in this setting.
    pub knobs: &'static [(Knob, u64)],
    /// Where pages are swapped out.
    pub swap: Swap,
    /// The state of memory at the start, as `--fragment` takes it; `None`: the machine's own.
    pub fragment: Option<&'static str>,
}

impl Setting {
    /// The defaults of most settings.
    pub const PLAIN: Setting = Setting {
        title: "",
        machine: "laptop",
        load: Load::Timed { program: "", memory: 0 },
        published: &[],
        gains: &[],
        knobs: &[],
        swap: Swap::Own,
        fragment: None,
    };
}

/// Where pages are swapped out.
#[derive(Clone, Copy, Debug)]
pub enum Swap {
    /// To the swap space of the machine.
    Own,
    /// Nowhere.
    None,
    /// To these areas, as `--swap` takes them.
    Areas(&'static [&'static str]),
}

impl Swap {
    fn areas(self) -> Vec<SwapSpec> {
        let Swap::Areas(areas) = self else { return Vec::new() };
        areas.iter().map(|area| area.parse().expect("a setting's area is one")).collect()
    }
}

/// A program and its memory.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// A built-in program on a share of the machine's memory, the scale.
    Filling {
        /// Its name.
        program: &'static str,
        /// Bytes that it touches for each byte of memory.
        times_memory: u64,
    },
    /// A built-in program, with memory for a share of its footprint.
    Share {
        /// Its name.
        program: &'static str,
        /// The part of the name after the size.
        options: &'static str,
        /// The footprint at full size.
        footprint: u64,
        /// Memory in per cent of the footprint.
        percent: u64,
    },
    /// A recorded program, at its own size, with memory for a share of its peak.
    Trace {
        /// Its path in the source tree.
        file: &'static str,
        /// Memory in per cent of the most that it has at once.
        percent: u64,
        /// The share of full size that its machine stands for.
        scale: f64,
    },
    /// A built-in program that runs for a fixed time, which the scale shortens. The work done is the result, so two
    /// runs do not do the same work.
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
    /// As published.
    pub name: &'static str,
    /// The measure that is compared with it.
    pub measure: Measure,
    /// The values.
    pub figures: Figures,
    /// Whether the simulation is judged by it; not if the published values are known to come from a bug.
    pub judged: bool,
}

/// Published values of the sides, in the unit of the measure. The last sides may have none.
#[derive(Clone, Copy, Debug)]
pub enum Figures {
    /// All values.
    Values(&'static [f64]),
    /// The value of the first side, and the changes of the others from it in per cent.
    Changes(f64, &'static [f64]),
}

impl Figures {
    /// The values of all sides that have one.
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

/// A quantity that both the publication and the simulation measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// CPU time of the processes outside the kernel.
    User,
    /// CPU time of the processes in the kernel, including interrupts while they ran, without kernel threads: what
    /// time(1) counts on Linux.
    System,
    /// From start to end.
    Elapsed,
    /// The progress that the program reports.
    Progress,
    /// The progress in a second.
    Rate,
    /// The 99th percentile of the times of the program's operations.
    P99,
    /// The work of all tasks in a second, as the program measures it.
    Throughput,
    /// The machine's metric of this name.
    Metric(&'static str),
    /// The sum of these counters.
    Counters(&'static [&'static str]),
    /// Events `tlb:tlb_flush` of perf: flushes on all CPUs, for themselves or on request of others, requests, and
    /// switches to another space. A flush of a few pages counts for each of them, because Linux's counter of such
    /// flushes counts pages; the tracepoint counts it once.
    Flushes,
    /// Share of all CPU time in some functions or kinds of work inside another function, in per cent.
    Share {
        /// The other function.
        within: &'static str,
        /// Their names; the name of the other function itself means all of it.
        of: &'static [&'static str],
    },
}

impl Measure {
    /// The value in a run, which must have been profiled if the measure is a share.
    pub fn of(self, run: &RunRecord) -> f64 {
        let seconds = |name: &str| run.metric(name) / 1e9;
        match self {
            Measure::Throughput => run.metric("throughput"),
            Measure::Metric(name) => run.metric(name),
            Measure::Counters(names) => {
                names.iter().map(|&name| run.counters.get(name).map_or(0.0, |&value| value as f64)).sum()
            }
            Measure::Flushes => {
                [
                    Stat::NrTlbRemoteFlush,
                    Stat::NrTlbRemoteFlushReceived,
                    Stat::NrTlbLocalFlushAll,
                    Stat::NrTlbLocalFlushOne,
                ]
                .map(|stat| run.counter(stat))
                .iter()
                .sum::<f64>()
                    + run.costs.get("switch").map_or(0.0, |switches| switches.count as f64)
            }
            Measure::User => seconds("cpu_user"),
            Measure::System => seconds("cpu_system") + seconds("cpu_interrupt"),
            Measure::Elapsed => run.nanos as f64 / 1e9,
            Measure::Progress => run.work.progress as f64,
            Measure::Rate => run.work.progress as f64 / (run.nanos.max(1) as f64 / 1e9),
            Measure::P99 => seconds("operation_time_p99"),
            Measure::Share { within, of } => {
                let tree = run.profile_tree.as_ref();
                tree.map_or(0.0, |tree| {
                    of.iter().map(|name| tree.share_within(within, name)).sum::<f64>() * 100.0
                })
            }
        }
    }

    /// The unit of the value.
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

    /// Whether the value grows with the scale.
    pub const fn scales(self) -> bool {
        !matches!(self, Measure::Share { .. } | Measure::Rate | Measure::P99 | Measure::Throughput)
    }
}

impl Reproduction {
    /// The reproduction of this name.
    pub fn find(name: &str) -> Result<&'static Reproduction> {
        ALL.iter().find(|one| one.name == name).ok_or_else(|| {
            let names = ALL.iter().map(|one| one.name);
            Error::Input(suggest::unknown("reproduction", name, names, "reproductions"))
        })
    }

    /// Set the options that its figures and counts need.
    fn observe(&self, config: &mut RunConfig) {
        let mut rows = self.settings.iter().flat_map(|setting| setting.published);
        let names = || self.counts.iter().flat_map(|count| count.of.iter().chain(count.per));
        config.profile = rows.any(|row| matches!(row.measure, Measure::Share { .. }));
        config.moves = metrics::MOVES_ROWS.iter().any(|row| names().any(|&name| name == row.name));
        config.placement = names().any(|name| name.starts_with("placement_"));
    }

    /// All profiles: the sides, then the context.
    pub fn profiles(&self) -> Vec<&'static str> {
        self.sides.iter().map(|side| side.profile).chain(self.context.iter().copied()).collect()
    }
}

/// What Linux does once in a period: flush the groups' statistics, which reclaim's decisions read; write what has been
/// dirty for long; look for huge pages; mark pages whose next access tells where they are wanted. Less memory turns
/// over in less time, so the periods shrink with it. (With the period of full size, reclaim would see the statistics of
/// lists that have changed many times since.)
const PERIODS: [Knob; 10] = [
    Knob::MemcgFlushMs,
    Knob::DirtyExpireCentisecs,
    Knob::DirtyWritebackCentisecs,
    Knob::KhugepagedScanSleepMillisecs,
    Knob::KhugepagedAllocSleepMillisecs,
    Knob::NumaScanDelayMs,
    Knob::NumaScanPeriodMinMs,
    Knob::NumaScanPeriodMaxMs,
    Knob::NumaHotThresholdMs,
    Knob::TierPeriodMs,
];

/// Least MiB that NUMA balancing marks at once. It does so in clock ticks of 4 ms, which do not shrink, and marks at
/// most 2560 MB/s (`MAX_SCAN_WINDOW` in kernel/sched/fair.c of Linux 6.12).
const LEAST_SCAN: f64 = 10.0;

/// The periods of a machine with `scale` of its memory, and what is marked in one of them.
fn periods(scale: f64) -> impl Iterator<Item = (Knob, u64)> {
    let share = move |knob: Knob, least: f64| {
        let full = knob.info().default as f64;
        (knob, (full * scale).round().max(least.min(full)) as u64)
    };
    PERIODS.into_iter().map(move |knob| share(knob, 1.0)).chain([share(Knob::NumaScanSizeMb, LEAST_SCAN)])
}

/// A setting at a scale, ready to run.
pub struct Case {
    /// The setting.
    pub setting: &'static Setting,
    /// Knobs that the scale sets, then those of the setting.
    pub knobs: Vec<(Knob, u64)>,
    /// The machine.
    pub machine: Arc<Machine>,
    /// Bytes of memory.
    pub memory: u64,
    /// The state of memory at the start.
    pub fragment: Option<Fragmentation>,
    /// The program's name as `pagefold run` takes it.
    pub name: String,
    /// The program.
    pub program: Arc<Program>,
}

impl Case {
    /// `setting` with `scale` of its memory, in whole MiB, or of its time.
    pub fn new(setting: &'static Setting, scale: f64) -> Result<Case> {
        let machine = Machine::find(setting.machine)?;
        let machine = if matches!(setting.swap, Swap::None) { machine.without_swap() } else { machine };
        let mut knobs = Vec::new();
        let (memory, name, time) = match setting.load {
            Load::Filling { program, times_memory } => {
                let memory =
                    (machine.memory() as f64 * scale / f64::from(1 << 20)).round() as u64 * (1 << 20);
                knobs.extend(periods(scale));
                (memory, format!("{program}:{}", memory * times_memory), 1.0)
            }
            Load::Share { program, options, footprint, percent } => {
                let bytes = (footprint as f64 * scale) as u64;
                knobs.extend(periods(scale));
                (bytes * percent / 100, format!("{program}:{bytes}{options}"), 1.0)
            }
            Load::Trace { file, percent, scale } => {
                knobs.extend(periods(scale));
                let name = recording(file)?;
                // The machine needs memory besides the program's pages.
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
        let program = Arc::new(Program::find(&name)?.with_share_of_time(time));
        let fragment = setting.fragment.map(|state| state.parse().map_err(Error::Input)).transpose()?;
        knobs.extend_from_slice(setting.knobs);
        Ok(Case { setting, knobs, machine: Arc::new(machine), memory, fragment, name, program })
    }

    /// The cells of a reproduction with this setting, one for each profile.
    pub fn cells(&self, of: &Reproduction) -> Result<Vec<Cell>> {
        let cell = |name| {
            let machine = (self.setting.machine, self.machine.clone());
            let profile = Profile::parse(name, of.knobs)?;
            let mut cell = Cell::new((&self.name, self.program.clone()), machine, profile);
            cell.config.knobs.splice(0..0, self.knobs.iter().copied());
            cell.config.memory = Some(self.memory);
            cell.config.fragment.clone_from(&self.fragment);
            cell.config.swap = self.setting.swap.areas();
            cell.config.contents = !cell.config.swap.is_empty();
            of.observe(&mut cell.config);
            Ok(cell)
        };
        of.profiles().into_iter().map(cell).collect()
    }
}

/// Parse a share of full size: `0.1` or `1/16`.
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

/// Where a recording of the repository is: below the current directory, or where the sources of this program were.
fn recording(file: &str) -> Result<String> {
    let mut places = [file.to_owned(), format!("{SOURCE_TREE}/{file}")].into_iter();
    let missing =
        || Error::Input(format!("there is no {file} here: run this in a checkout of Pagefold, which has it"));
    places.find(|place| Path::new(place).exists()).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_is_not_there_is_looked_for_in_a_checkout() {
        assert!(recording("traces/sqlite.pft").unwrap().ends_with("traces/sqlite.pft"));
        let line = recording("traces/none.pft").unwrap_err().line();
        assert!(line.contains("traces/none.pft") && line.contains("in a checkout"), "{line}");
    }

    #[test]
    fn every_reproduction_has_valid_cases() {
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
    fn periods_shrink_with_memory() {
        let setting = |load| &*Box::leak(Box::new(Setting { load, ..Setting::PLAIN }));
        let share = Load::Share { program: "zipf", options: "", footprint: 1 << 30, percent: 50 };
        let case = Case::new(setting(share), 1.0 / 16.0).unwrap();
        assert_eq!(case.knobs[..2], [(Knob::MemcgFlushMs, 125), (Knob::DirtyExpireCentisecs, 188)]);
        let timed = Load::Timed { program: "pageout-loop:1M", memory: 64 << 20 };
        assert!(Case::new(setting(timed), 1.0 / 16.0).unwrap().knobs.is_empty());
        let scan = |scale| periods(scale).find(|&(knob, _)| knob == Knob::NumaScanSizeMb).unwrap().1;
        assert_eq!([1.0, 1.0 / 16.0, 1e-6].map(scan), [256, 16, 10]);
        assert!(periods(1e-6).all(|(knob, value)| value == 1 || knob == Knob::NumaScanSizeMb));
    }

    #[test]
    fn unknown_names_and_small_scales_are_refused() {
        let error = Reproduction::find("pfn-flash").unwrap_err().to_string();
        assert!(error.contains("did you mean 'pfn-flush'?"), "{error}");
        let error = Case::new(&ALL[0].settings[0], 1e-6).err().unwrap().to_string();
        assert!(
            error.starts_with("--scale 0.000001: uma-1s-2015: ") && error.contains("at least 1M"),
            "{error}"
        );
    }

    #[test]
    fn each_flush_is_one_event() {
        // A request, the flushes of the three CPUs that got it, and two that CPUs did for themselves.
        let counters = [
            (Stat::NrTlbRemoteFlush, 1),
            (Stat::NrTlbRemoteFlushReceived, 3),
            (Stat::NrTlbLocalFlushAll, 1),
            (Stat::NrTlbLocalFlushOne, 1),
        ];
        let run = crate::metrics::tests::run("a", 1, 1, &counters);
        assert_eq!(Measure::Flushes.of(&run), 6.0);
    }

    #[test]
    fn scale_is_a_number_or_a_fraction() {
        assert_eq!(
            (parse_scale("1/16"), parse_scale("0.25"), parse_scale("1")),
            (Ok(0.0625), Ok(0.25), Ok(1.0))
        );
        for bad in ["0", "2", "-1", "1/0", "x", "1/", "nan"] {
            assert!(parse_scale(bad).unwrap_err().contains("like 1/16"), "{bad}");
        }
    }
}

//! How much the default of each reproduction makes the simulator do, by its description.
//!
//! A limit in seconds would fail on a busy computer and pass on a fast one, so it is one in simulated work: pages that
//! programs of a given size touch, accesses that traces hold, CPU time of programs that run for a fixed time. Each is
//! summed over machines, profiles and seeds, so that more of any of them, or a larger scale, shows.

use super::{ALL, Case, Load, Reproduction};
use crate::engine::Program;
use mm::units::PAGE_SIZE;
use std::ops::{Add, Mul};

/// Work of runs, by the kind of their programs.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Effort {
    /// Thousands of pages that programs of a given size touch.
    pages: u64,
    /// Millions of accesses that traces hold.
    accesses: u64,
    /// Simulated seconds of all CPUs in programs that run for a fixed time.
    seconds: f64,
}

impl Add for Effort {
    type Output = Effort;

    fn add(self, other: Effort) -> Effort {
        Effort {
            pages: self.pages + other.pages,
            accesses: self.accesses + other.accesses,
            seconds: self.seconds + other.seconds,
        }
    }
}

impl Mul<u64> for Effort {
    type Output = Effort;

    fn mul(self, times: u64) -> Effort {
        Effort {
            pages: self.pages * times,
            accesses: self.accesses * times,
            seconds: self.seconds * times as f64,
        }
    }
}

impl Effort {
    /// Of one run.
    fn of_run(case: &Case, scale: f64) -> Effort {
        let none = Effort::default();
        match (case.setting.load, &*case.program) {
            (Load::Trace { .. }, Program::Trace(replay)) => {
                Effort { accesses: replay.source().header().counts().accesses() / 1_000_000, ..none }
            }
            // Such programs run for a second at full size.
            (Load::Timed { .. }, _) => Effort { seconds: f64::from(case.machine.cpus()) * scale, ..none },
            (_, program) => Effort { pages: program.footprint() / PAGE_SIZE / 1000, ..none },
        }
    }

    /// Of everything that the reproduction does without options.
    fn of(one: &Reproduction) -> Effort {
        let runs = one.profiles().len() as u64 * u64::from(one.runs);
        one.settings
            .iter()
            .map(|setting| Effort::of_run(&Case::new(setting, one.scale).unwrap(), one.scale) * runs)
            .fold(Effort::default(), Effort::add)
    }

    fn fits(self, limit: Effort) -> bool {
        self.pages <= limit.pages && self.accesses <= limit.accesses && self.seconds <= limit.seconds
    }
}

/// The most that each may do. The first two are for a first look and end within a minute: one thread of a computer of
/// 2025 does 1,000 thousand of pfn-flush's pages or 5 of rmap's seconds in a second. The others take as long as their
/// pages say; what they do is rounded up.
const LIMITS: &[(&str, Effort)] = &[
    ("pfn-flush", Effort { pages: 20_000, accesses: 0, seconds: 0.0 }),
    ("rmap", Effort { pages: 0, accesses: 0, seconds: 100.0 }),
    ("mglru", Effort { pages: 7_500, accesses: 0, seconds: 0.0 }),
    ("mglru-7.2", Effort { pages: 500, accesses: 0, seconds: 0.0 }),
    ("cache-ext", Effort { pages: 8_000, accesses: 0, seconds: 0.0 }),
    ("luf", Effort { pages: 650, accesses: 0, seconds: 0.0 }),
    ("compaction", Effort { pages: 50_000, accesses: 0, seconds: 0.0 }),
    ("defrag-mode", Effort { pages: 12_000, accesses: 0, seconds: 0.0 }),
    ("tiers", Effort { pages: 3_500, accesses: 36_000, seconds: 0.0 }),
];

#[test]
fn defaults_do_no_more_than_their_limits() {
    let names = ALL.iter().map(|one| one.name);
    assert!(names.eq(LIMITS.iter().map(|(name, _)| *name)), "each reproduction has a limit");
    for (one, (_, limit)) in ALL.iter().zip(LIMITS) {
        let effort = Effort::of(one);
        assert!(effort.fits(*limit), "{}: {effort:?} is more than {limit:?}", one.name);
    }
}

#[test]
fn a_run_of_pfn_flush_reads_each_word_once() {
    let one = Reproduction::find("pfn-flush").unwrap();
    let case = Case::new(&one.settings[0], 1.0 / 1024.0).unwrap();
    let run = case.cells(one).unwrap()[0].run(1).unwrap();
    assert_eq!(run.work.accesses, case.program.footprint() / 8);
}

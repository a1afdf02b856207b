//! Memory that is given back and asked for at random, for as long as one likes: what leaves it in pieces.
//!
//! All of it is filled, and half of it given back. In each round a tenth of what is left is given back and asked for
//! again, all at random. At last everything is compacted, so that can be told what was whole before, and what can be
//! made whole. (The benchmark `frag` of llfree does so with single frames.)
//!
//! Mixed, it is in folios of six sizes, each with as many bytes, and now and then a page is locked in memory and never
//! given back.

use super::{LEAST, PAGE, must};
use crate::rng::Rng;
use crate::{Map, Os, Program, Role, Signal};
use alloc::vec::Vec;

/// Rounds if nothing is said.
const ROUNDS: u32 = 60;
/// Orders of the folios of mixed sizes, and the names of the knobs that enable those of several pages.
const ORDERS: [u32; 6] = [0, 2, 3, 4, 5, 6];
const SIZES: [&str; 5] = ["16kB", "32kB", "64kB", "128kB", "256kB"];
/// Where areas of folios lie: one for each size.
const AREA: u64 = 0x10_0000_0000;
/// Of so many single pages one is locked.
const LOCKED: u64 = 2048;

/// The program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Churn {
    bytes: u64,
    rounds: u32,
    mixed: bool,
}

/// A place for a folio.
#[derive(Clone, Copy)]
struct Place {
    addr: u64,
    bytes: u64,
}

impl Churn {
    /// All names, with a line of help each.
    pub const LIST: &'static [(&'static str, &'static str)] = &[
        (
            "churn",
            "single pages given back and stored to again at random, in rounds; then everything is compacted",
        ),
        ("churn-mixed", "the same in folios of six sizes, with pages that are locked and stay"),
    ];

    /// The program of that name, with `bytes` at once and so many rounds.
    pub fn from_name(name: &str, bytes: u64, rounds: Option<u32>) -> Option<Churn> {
        let mixed = name == "churn-mixed";
        let rounds = rounds.unwrap_or(ROUNDS);
        (mixed || name == "churn").then(|| Churn { bytes: bytes.max(16 * LEAST), rounds, mixed })
    }

    /// A place for each folio: of several sizes those of one size side by side, but with a gap, so that none is larger.
    fn places(&self) -> Vec<Place> {
        let area = |area: usize, order: u32, share: u64, gap: u64| {
            let bytes = PAGE << order;
            let start = AREA * (area as u64 + 1);
            (0..share / bytes).map(move |at| Place { addr: start + at * bytes * gap, bytes })
        };
        if !self.mixed {
            return area(0, 0, self.bytes, 1).collect();
        }
        let share = self.bytes / ORDERS.len() as u64;
        ORDERS.iter().enumerate().flat_map(|(at, &order)| area(at, order, share, 2)).collect()
    }

    fn fill<O: Os>(&self, os: &mut O, place: Place) -> Result<(), Signal> {
        if self.mixed {
            must(os.mmap(Map { addr: Some(place.addr), ..Map::anonymous(place.bytes) }))?;
        }
        (0..place.bytes / PAGE).try_for_each(|page| os.store(place.addr + page * PAGE))
    }

    fn empty<O: Os>(&self, os: &mut O, place: Place) -> Result<(), Signal> {
        match self.mixed {
            true => must(os.munmap(place.addr, place.bytes)),
            false => must(os.madvise(place.addr, place.bytes, crate::Advice::DontNeed)),
        }
    }

    fn prepare<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        if !self.mixed {
            return must(os.mmap(Map { addr: Some(AREA), ..Map::anonymous(self.bytes) })).map(drop);
        }
        for size in SIZES {
            must(os.set_knob(&alloc::format!("hugepages-{size}.enabled"), 2))?;
        }
        Ok(())
    }
}

impl Program for Churn {
    fn name(&self) -> &str {
        Churn::LIST[usize::from(self.mixed)].0
    }

    fn footprint(&self) -> u64 {
        self.bytes
    }

    fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
        let mut rng = Rng::new(os.seed());
        self.prepare(os)?;
        let mut places = self.places();
        rng.shuffle(&mut places);
        places.iter().try_for_each(|&place| self.fill(os, place))?;
        let is_locked = |place: &Place| {
            self.mixed && place.bytes == PAGE && (place.addr / (2 * PAGE)).is_multiple_of(LOCKED)
        };
        for place in places.iter().filter(|place| is_locked(place)) {
            must(os.mlock(place.addr, PAGE))?;
        }
        places.retain(|place| !is_locked(place));
        // Not in the order in which they were filled.
        rng.shuffle(&mut places);
        let kept = places.len() / 2;
        places.drain(kept..).try_for_each(|place| self.empty(os, place))?;
        for _ in 0..self.rounds {
            rng.shuffle(&mut places);
            let some = &places[..kept / 10];
            some.iter().try_for_each(|&place| self.empty(os, place))?;
            some.iter().rev().try_for_each(|&place| self.fill(os, place))?;
            os.progress(1);
        }
        must(os.set_knob("vm.compact_memory", 1))
    }
}

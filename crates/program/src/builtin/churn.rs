//! Memory that is freed and allocated again at random, for as many rounds as wanted: this fragments it.
//!
//! The program fills all of its memory and frees half of it. Each round frees a tenth of the rest and
//! allocates it again, all at random. At the end it compacts everything, which shows how much was whole
//! before, and how much can be made whole. (The benchmark `frag` of llfree does this with single frames.)
//!
//! With mixed sizes, memory is in folios of six sizes, with as many bytes of each, and now and then a page is
//! locked in memory and never freed.

use super::{MIN_BYTES, PAGE, must};
use crate::rng::Rng;
use crate::{Map, Os, Program, Role, Signal};
use alloc::vec::Vec;

/// Rounds by default.
const ROUNDS: u32 = 60;
/// Orders of the folios with mixed sizes, and the names of the knobs that enable those of several pages.
const ORDERS: [u32; 6] = [0, 2, 3, 4, 5, 6];
const SIZES: [&str; 5] = ["16kB", "32kB", "64kB", "128kB", "256kB"];
/// Where areas of folios are: one for each size.
const AREA: u64 = 0x10_0000_0000;
/// One in this many single pages is locked.
const LOCKED: u64 = 2048;

/// The programs `churn` and `churn-mixed`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Churn {
    bytes: u64,
    rounds: u32,
    mixed: bool,
}

/// The address of a folio and its size.
#[derive(Clone, Copy)]
struct Slot {
    addr: u64,
    bytes: u64,
}

impl Churn {
    /// All names, with a line of help each.
    pub const LIST: &'static [(&'static str, &'static str)] = &[
        ("churn", "free single pages and store to them again at random, in rounds; then compact everything"),
        ("churn-mixed", "as churn, in folios of six sizes, with some pages locked in memory"),
    ];

    /// The program with that name, with `bytes` at once and `rounds` rounds.
    pub fn from_name(name: &str, bytes: u64, rounds: Option<u32>) -> Option<Churn> {
        let mixed = name == "churn-mixed";
        let rounds = rounds.unwrap_or(ROUNDS);
        (mixed || name == "churn").then(|| Churn { bytes: bytes.max(16 * MIN_BYTES), rounds, mixed })
    }

    /// A slot for each folio. With mixed sizes, folios of one size have gaps between them, so that none
    /// becomes larger.
    fn slots(&self) -> Vec<Slot> {
        let area = |area: usize, order: u32, share: u64, gap: u64| {
            let bytes = PAGE << order;
            let start = AREA * (area as u64 + 1);
            (0..share / bytes).map(move |at| Slot { addr: start + at * bytes * gap, bytes })
        };
        if !self.mixed {
            return area(0, 0, self.bytes, 1).collect();
        }
        let share = self.bytes / ORDERS.len() as u64;
        ORDERS.iter().enumerate().flat_map(|(at, &order)| area(at, order, share, 2)).collect()
    }

    fn fill<O: Os>(&self, os: &mut O, slot: Slot) -> Result<(), Signal> {
        if self.mixed {
            must(os.mmap(Map { addr: Some(slot.addr), ..Map::anonymous(slot.bytes) }))?;
        }
        (0..slot.bytes / PAGE).try_for_each(|page| os.store(slot.addr + page * PAGE))
    }

    fn empty<O: Os>(&self, os: &mut O, slot: Slot) -> Result<(), Signal> {
        match self.mixed {
            true => must(os.munmap(slot.addr, slot.bytes)),
            false => must(os.madvise(slot.addr, slot.bytes, crate::Advice::DontNeed)),
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
        let mut slots = self.slots();
        rng.shuffle(&mut slots);
        slots.iter().try_for_each(|&slot| self.fill(os, slot))?;
        let is_locked =
            |slot: &Slot| self.mixed && slot.bytes == PAGE && (slot.addr / (2 * PAGE)).is_multiple_of(LOCKED);
        for slot in slots.iter().filter(|slot| is_locked(slot)) {
            must(os.mlock(slot.addr, PAGE))?;
        }
        slots.retain(|slot| !is_locked(slot));
        // Not in the order of filling.
        rng.shuffle(&mut slots);
        let kept = slots.len() / 2;
        slots.drain(kept..).try_for_each(|slot| self.empty(os, slot))?;
        for _ in 0..self.rounds {
            rng.shuffle(&mut slots);
            let some = &slots[..kept / 10];
            some.iter().try_for_each(|&slot| self.empty(os, slot))?;
            some.iter().rev().try_for_each(|&slot| self.fill(os, slot))?;
            os.progress(1);
        }
        must(os.set_knob("vm.compact_memory", 1))
    }
}

//! The optimum of placement: how little time reads of slow memory and moves between tiers could have taken, whatever
//! had been moved when.
//!
//! Problem: ways to promote can be compared with each other. What is missing is the best there could be for the reads
//! of this run, which an oracle would come to that knows them beforehand, and that pays for what it moves.
//!
//! *What is bounded.* The run's reads of memory (those after a miss of the TLBs: the others cost the same everywhere
//! here), in their order, each of a page and of some lines. A read that a slower tier serves costs so much more than
//! one that the fast tier serves as the machine's description says of memory at rest; a move of a page from one to the
//! other costs its copy. Between reads any pages may be moved, as long as no more are in the fast tier than it has
//! frames. A page that comes new (or back from a device) comes where it likes. The *cost* of a plan is the sum; the
//! run's own moves are one of the plans. Nothing else of the run is in it: no faults, no flushes, no scans, no queues,
//! no time that goes by.
//!
//! *How.* The limit of frames is replaced by a price for each moment that a page spends in the fast tier. Then each
//! page is by itself: of two places after each read, the cheaper way to each is known from those after the read before.
//! What all pages come to, less the price of all frames for the whole time, is no more than the cost of any plan within
//! the limit, whatever the price is (weak duality of Lagrange: a plan within the limit pays no more for frames than is
//! given back). So several prices are tried at once, while the run goes on, and the largest sum is told. It need not be
//! reached by any plan: it is a bound, and how far from it a plan can come is not known. The share of lines that the
//! fast tier serves in the plan of that price is told beside it; that plan may need more frames at times and fewer at
//! others.

use crate::spec::MachineSpec;
use mm::event::Event;
use mm::machine::{MemoryRange, Work};
use mm::units::Pfn;
use std::collections::HashMap;

/// Prices that are tried, each twice the one before.
const PRICES: usize = 20;
/// The first is this part of what one read saves, divided among all frames.
const FIRST: f64 = 1.0 / 256.0;

/// What a run's placement came to, and what is the least on its reads.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct PlacementReport {
    /// Nanoseconds that the run's reads of slow memory took longer, and its moves.
    pub(crate) own: f64,
    /// The least there can be.
    pub(crate) least: f64,
    /// Share of lines that the fast tier serves in the plan which the least comes from.
    pub(crate) least_share: f64,
    /// Moves of pages between tiers.
    pub(crate) moves: u64,
    /// Of these, those up of pages that had been moved down.
    pub(crate) back: u64,
}

impl PlacementReport {
    /// Are the numbers in their order? If not, something here is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.least <= self.own * (1.0 + 1e-9) + 1.0 {
            return Ok(());
        }
        Err(format!("the optimum of placement is not one: {self:?}"))
    }
}

/// A read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// Of which page.
    pub(crate) page: u64,
    /// Where it is.
    pub(crate) frame: Pfn,
    /// Is that fast memory?
    pub(crate) fast: bool,
    pub(crate) lines: u64,
    /// Nanoseconds that the read takes longer in slow memory.
    pub(crate) longer: f64,
}

/// What is known of a frame.
#[derive(Clone, Copy, Default)]
struct Held {
    /// Nobody has read what it holds, wherever that was.
    fresh: bool,
    /// What it holds has gone down before.
    demoted: bool,
    /// Between how many tiers it has gone since its last read.
    crossed: u32,
}

/// The cheapest way to a place, and what is served by fast memory on it.
#[derive(Clone, Copy, Default)]
struct Way {
    cost: f64,
    fast_lines: f64,
}

impl Way {
    fn and(self, cost: f64) -> Way {
        Way { cost: self.cost + cost, ..self }
    }

    fn or(self, other: Way) -> Way {
        if other.cost < self.cost { other } else { self }
    }
}

/// A page after its last read.
struct Page {
    last: u64,
    /// In fast memory, and not; for each price.
    ways: [[Way; 2]; PRICES],
}

/// The observer.
pub(crate) struct Placement {
    /// Frames of fast memory.
    room: u64,
    /// Nanoseconds of a move.
    move_cost: f64,
    /// Nanoseconds that one read saves at least.
    saved: f64,
    now: u64,
    held: Vec<Held>,
    pages: HashMap<u64, Page>,
    /// Of pages that have come anew since: what their lives before came to.
    ended: [Way; PRICES],
    lines: f64,
    own: f64,
    moves: u64,
    back: u64,
}

impl Placement {
    /// For the machine of `spec`; an error if its memory has one tier only.
    pub(crate) fn of(spec: &MachineSpec) -> Result<Placement, String> {
        let fast = |range: &&MemoryRange| spec.nodes()[range.node.index()].cpus > 0;
        let node = |has_cpus: bool| spec.nodes().iter().position(|node| (node.cpus > 0) == has_cpus);
        let (Some(near), Some(slow)) = (node(true), node(false)) else {
            return Err("placement needs memory of two tiers, a node with CPUs and one without, and this machine has one \
                        (tiers, luf-cxl and colloid have two: `pagefold list machines`)"
                .into());
        };
        let room = spec.ranges().iter().filter(fast).map(|range| u64::from(range.frames)).sum();
        let saved = spec.latency(near, slow).saturating_sub(spec.latency(near, near)) as f64 / 1000.0;
        let move_cost = spec.costs().work(Work::CopyPage) as f64 / 1000.0;
        Ok(Placement::new(spec.end_pfn(), room, saved, move_cost))
    }

    /// For a machine with frames below `end`, of which `room` are fast. `saved`: nanoseconds by which a read of one
    /// line is faster there.
    pub(crate) fn new(end: usize, room: u64, saved: f64, move_cost: f64) -> Placement {
        Placement {
            room,
            move_cost,
            saved,
            now: 0,
            held: vec![Held::default(); end],
            pages: HashMap::new(),
            ended: [Way::default(); PRICES],
            lines: 0.0,
            own: 0.0,
            moves: 0,
            back: 0,
        }
    }

    fn price(&self, of: usize) -> f64 {
        self.saved / self.room.max(1) as f64 * FIRST * f64::from(1 << of)
    }

    /// Memory is read.
    pub(crate) fn read(&mut self, read: Read) {
        self.now += 1;
        let (now, move_cost) = (self.now, self.move_cost);
        let held = &mut self.held[read.frame.index()];
        let (fresh, crossed) = (std::mem::take(&mut held.fresh), std::mem::take(&mut held.crossed));
        self.lines += read.lines as f64;
        self.own += if read.fast { 0.0 } else { read.longer };
        let prices: [f64; PRICES] = std::array::from_fn(|of| self.price(of));
        let page = self
            .pages
            .entry(read.page)
            .or_insert_with(|| Page { last: 0, ways: [[Way::default(); 2]; PRICES] });
        let known = page.last > 0;
        if known && !fresh {
            self.own += f64::from(crossed) * move_cost;
        }
        let gap = (now - page.last) as f64;
        page.last = now;
        for ((price, ended), [fast, slow]) in prices.into_iter().zip(&mut self.ended).zip(&mut page.ways) {
            let left = fast.and(price);
            let before = match (known, fresh) {
                (false, _) => [Way::default(); 2],
                (true, true) => {
                    let best = left.or(*slow);
                    *ended =
                        Way { cost: ended.cost + best.cost, fast_lines: ended.fast_lines + best.fast_lines };
                    [Way::default(); 2]
                }
                (true, false) => {
                    let stays = fast.and(price * gap);
                    [
                        stays.or(left.and(2.0 * move_cost)).or(slow.and(move_cost)),
                        slow.or(left.and(move_cost)),
                    ]
                }
            };
            *fast = Way { fast_lines: before[0].fast_lines + read.lines as f64, ..before[0] };
            *slow = before[1].and(read.longer);
        }
    }

    /// The memory manager tells of something.
    pub(crate) fn event(&mut self, event: Event, args: [u64; 4]) {
        if event == Event::MmPageAlloc {
            let first = args[0] as usize;
            self.held[first..first + (1 << args[1])].fill(Held { fresh: true, ..Held::default() });
        }
    }

    /// Frames get the content of others; `fast`: are these, and those, fast memory?
    pub(crate) fn copied(&mut self, to: Pfn, from: Pfn, count: u32, fast: [bool; 2]) {
        let crosses = fast[0] != fast[1];
        for (to, from) in (0..count).map(|i| (to.add(i).index(), from.add(i).index())) {
            let old = self.held[from];
            self.held[to] = Held {
                crossed: old.crossed + u32::from(crosses),
                demoted: old.demoted || (crosses && fast[1]),
                ..old
            };
            self.moves += u64::from(crosses);
            self.back += u64::from(crosses && fast[0] && old.demoted);
        }
    }

    /// What was found until now.
    pub(crate) fn report(&self) -> PlacementReport {
        let mut least = Way::default();
        // In one order: sums of rounded numbers depend on it, and runs with one seed print the same.
        let mut pages: Vec<(&u64, &Page)> = self.pages.iter().collect();
        pages.sort_unstable_by_key(|&(name, _)| name);
        for of in 0..PRICES {
            let price = self.price(of);
            let mut sum = self.ended[of];
            for (_, page) in &pages {
                let [fast, slow] = page.ways[of];
                let best = fast.and(price).or(slow);
                sum = Way { cost: sum.cost + best.cost, fast_lines: sum.fast_lines + best.fast_lines };
            }
            let bound = sum.and(-price * self.room as f64 * self.now as f64);
            if bound.cost > least.cost {
                least = bound;
            }
        }
        // With room for everything nothing is slow.
        let all_fast = least.cost == 0.0;
        PlacementReport {
            own: self.own,
            least: least.cost,
            least_share: if all_fast { 1.0 } else { least.fast_lines / self.lines.max(1.0) },
            moves: self.moves,
            back: self.back,
        }
    }
}

#[cfg(test)]
mod tests;

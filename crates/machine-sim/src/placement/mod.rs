//! The optimum of placement: a lower bound for the time that reads of slow memory and moves between tiers take.
//!
//! Problem: paths of promotion can be compared with each other. What is missing is the best possible one for the reads of
//! this run: that of an oracle that knows them in advance and pays for its moves.
//!
//! *What is bounded.* The run's reads of memory (only those after a TLB miss: the others cost the same everywhere here), in
//! order, each of some lines of a page. A read from a slower tier costs more than one from the fast tier; the difference
//! is that of the machine's description for idle memory. A move of a page between tiers costs its copy. Between reads any
//! pages may move, as long as the fast tier holds no more than its frames. A page that is new (or comes back from a
//! device) may start in either tier. The *cost* of a plan is the sum; the run's own moves are one plan. Nothing else
//! counts: no faults, flushes, scans or queues, and no passing of time.
//!
//! *How.* A price for each moment that a page spends in the fast tier replaces the limit of frames. Then each page is
//! independent: of the two tiers after each read, the cheapest way to each follows from those after the page's previous
//! read. The sum over all pages, minus the price of all frames for the whole time, is at most the cost of any plan within
//! the limit, for every price (weak Lagrangian duality: a plan within the limit pays no more for frames than it gets
//! back). So several prices are tried at once, online, and the largest sum is reported. It is a bound: no plan need
//! reach it, and it is unknown how near a plan can come. The share of lines that the fast tier serves in the plan of that
//! price is reported with it; that plan may need more frames at some times and fewer at others.

use crate::spec::MachineSpec;
use mm::event::Event;
use mm::machine::{MemoryRange, Work};
use mm::units::Pfn;
use std::collections::HashMap;

/// How many prices are tried, each twice the previous one.
const PRICES: usize = 20;
/// The first price: this part of what one read saves, divided by the number of frames.
const FIRST: f64 = 1.0 / 256.0;

/// The cost of a run's placement, and the least for its reads.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct PlacementReport {
    /// Nanoseconds that the run's reads of slow memory took longer, plus its moves.
    pub(crate) own: f64,
    /// A lower bound for that.
    pub(crate) least: f64,
    /// Share of lines that the fast tier serves in the plan of the lower bound.
    pub(crate) least_share: f64,
    /// Moves of pages between tiers.
    pub(crate) moves: u64,
    /// Of these, promotions of pages that had been demoted.
    pub(crate) back: u64,
}

impl PlacementReport {
    /// Check the order of the numbers. An error is a bug of this observer.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.least <= self.own * (1.0 + 1e-9) + 1.0 {
            return Ok(());
        }
        Err(format!("the optimum of placement exceeds what the run did: {self:?}"))
    }
}

/// A read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// The page.
    pub(crate) page: u64,
    /// Its frame.
    pub(crate) frame: Pfn,
    /// Whether that is fast memory.
    pub(crate) fast: bool,
    pub(crate) lines: u64,
    /// Nanoseconds that the read takes longer in slow memory.
    pub(crate) longer: f64,
}

/// The state of a frame's content.
#[derive(Clone, Copy, Default)]
struct Held {
    /// It is new and was never read.
    fresh: bool,
    /// It was demoted before.
    demoted: bool,
    /// How often it moved between tiers since its last read.
    crossed: u32,
}

/// The cheapest way to a tier, and the lines that fast memory serves on it.
#[derive(Clone, Copy, Default)]
struct Path {
    cost: f64,
    fast_lines: f64,
}

impl Path {
    fn and(self, cost: f64) -> Path {
        Path { cost: self.cost + cost, ..self }
    }

    fn or(self, other: Path) -> Path {
        if other.cost < self.cost { other } else { self }
    }
}

/// A page after its last read.
struct Page {
    last: u64,
    /// To fast and to slow memory, for each price.
    paths: [[Path; 2]; PRICES],
}

/// The observer.
pub(crate) struct Placement {
    /// Frames of fast memory.
    capacity: u64,
    /// Nanoseconds of a move.
    move_cost: f64,
    /// Nanoseconds that a read of one line saves in fast memory.
    saved: f64,
    now: u64,
    held: Vec<Held>,
    pages: HashMap<u64, Page>,
    /// The paths of earlier lives of pages that have become new since.
    ended: [Path; PRICES],
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
        let capacity = spec.ranges().iter().filter(fast).map(|range| u64::from(range.frames)).sum();
        let saved = spec.latency(near, slow).saturating_sub(spec.latency(near, near)) as f64 / 1000.0;
        let move_cost = spec.costs().work(Work::CopyPage) as f64 / 1000.0;
        Ok(Placement::new(spec.end_pfn(), capacity, saved, move_cost))
    }

    /// For a machine with frames below `end`, of which `capacity` are fast. `saved`: nanoseconds by which a read of one
    /// line is faster there.
    pub(crate) fn new(end: usize, capacity: u64, saved: f64, move_cost: f64) -> Placement {
        Placement {
            capacity,
            move_cost,
            saved,
            now: 0,
            held: vec![Held::default(); end],
            pages: HashMap::new(),
            ended: [Path::default(); PRICES],
            lines: 0.0,
            own: 0.0,
            moves: 0,
            back: 0,
        }
    }

    fn price(&self, of: usize) -> f64 {
        self.saved / self.capacity.max(1) as f64 * FIRST * f64::from(1 << of)
    }

    /// A program reads memory.
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
            .or_insert_with(|| Page { last: 0, paths: [[Path::default(); 2]; PRICES] });
        let known = page.last > 0;
        if known && !fresh {
            self.own += f64::from(crossed) * move_cost;
        }
        let gap = (now - page.last) as f64;
        page.last = now;
        for ((price, ended), [fast, slow]) in prices.into_iter().zip(&mut self.ended).zip(&mut page.paths) {
            let left = fast.and(price);
            let before = match (known, fresh) {
                (false, _) => [Path::default(); 2],
                (true, true) => {
                    let best = left.or(*slow);
                    *ended =
                        Path { cost: ended.cost + best.cost, fast_lines: ended.fast_lines + best.fast_lines };
                    [Path::default(); 2]
                }
                (true, false) => {
                    let stays = fast.and(price * gap);
                    [
                        stays.or(left.and(2.0 * move_cost)).or(slow.and(move_cost)),
                        slow.or(left.and(move_cost)),
                    ]
                }
            };
            *fast = Path { fast_lines: before[0].fast_lines + read.lines as f64, ..before[0] };
            *slow = before[1].and(read.longer);
        }
    }

    /// The memory manager reports an event.
    pub(crate) fn event(&mut self, event: Event, args: [u64; 4]) {
        if event == Event::MmPageAlloc {
            let first = args[0] as usize;
            self.held[first..first + (1 << args[1])].fill(Held { fresh: true, ..Held::default() });
        }
    }

    /// Frames are copied. `fast`: whether `to`, and `from`, are fast memory.
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

    /// The result until now.
    pub(crate) fn report(&self) -> PlacementReport {
        let mut least = Path::default();
        // In a fixed order: rounded sums depend on it, and runs of one seed must print the same.
        let mut pages: Vec<(&u64, &Page)> = self.pages.iter().collect();
        pages.sort_unstable_by_key(|&(name, _)| name);
        for of in 0..PRICES {
            let price = self.price(of);
            let mut sum = self.ended[of];
            for (_, page) in &pages {
                let [fast, slow] = page.paths[of];
                let best = fast.and(price).or(slow);
                sum = Path { cost: sum.cost + best.cost, fast_lines: sum.fast_lines + best.fast_lines };
            }
            let bound = sum.and(-price * self.capacity as f64 * self.now as f64);
            if bound.cost > least.cost {
                least = bound;
            }
        }
        // With capacity for all pages no read is slow.
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

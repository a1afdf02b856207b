//! Least hit density: of a sample, evicts the folios with the fewest expected hits for the space and time that they
//! take.
//!
//! The expectation follows from a folio's age, the time since its last use, and from its type: of all folios that
//! reached that age, how many were used later, and how long did they stay? Both are counted, with weights that fade
//! over time.
//!
//! Source: Beckmann, Chen, Cidon: LHD, Improving Cache Hit Rate by Maximizing Hit Density, NSDI 2018, sections 3 and
//! 4. Time is counted in evictions; a step of age is a sixteenth of the time in which all of memory is replaced once.
//! The classes are the two types.

use super::{InsertReason, Replace, Sample, Spot, View};

/// Number of ages; the last includes everything older.
const AGES: usize = 64;
/// Steps of age in which as many pages are evicted as memory holds.
const STEPS: u64 = 16;
/// Events after which densities are computed again.
const PERIOD: u32 = 1024;
/// Initial weight of an event, and the density of one hit in each step.
const ONE: u64 = 1 << 16;

/// The fate of folios of a type at each age.
struct Class {
    hits: [u64; AGES],
    evictions: [u64; AGES],
    density: [u64; AGES],
}

pub(super) struct Lhd {
    classes: [Class; 2],
    /// Pages evicted in this step of time.
    evicted: u64,
    /// The step, modulo what a mark can hold.
    now: u8,
    resident: u64,
    events: u32,
}

impl Class {
    fn new() -> Class {
        // Initially, the younger the better.
        let density = core::array::from_fn(|age| ONE / (age as u64 + 1));
        Class { hits: [0; AGES], evictions: [0; AGES], density }
    }

    /// By age: hits from that age on, divided by the time spent from that age on.
    fn learn(&mut self) {
        let (mut hits, mut ends, mut time) = (0, 0, 0);
        for age in (0..AGES).rev() {
            hits += self.hits[age];
            ends += self.hits[age] + self.evictions[age];
            time += ends;
            if time > 0 {
                self.density[age] = (u128::from(hits) * u128::from(ONE) / u128::from(time)) as u64;
            }
            self.hits[age] -= self.hits[age] / 8;
            self.evictions[age] -= self.evictions[age] / 8;
        }
    }
}

impl Default for Lhd {
    fn default() -> Self {
        Lhd { classes: [Class::new(), Class::new()], evicted: 0, now: 0, resident: 0, events: 0 }
    }
}

impl Lhd {
    fn age(&self, folio: View<'_>) -> usize {
        usize::from(self.now.wrapping_sub(folio.mark())).min(AGES - 1)
    }

    fn event(&mut self, folio: View<'_>, hit: bool) {
        let age = self.age(folio);
        let class = &mut self.classes[usize::from(folio.is_anon())];
        let counted = if hit { &mut class.hits } else { &mut class.evictions };
        counted[age] += ONE;
        self.events += 1;
        if self.events == PERIOD {
            self.events = 0;
            self.classes.iter_mut().for_each(Class::learn);
        }
        if hit {
            folio.set_mark(self.now);
        }
    }
}

impl Replace for Lhd {
    fn sample(&self) -> Option<Sample> {
        Some(Sample { of: 128, take: 32 })
    }

    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot {
        match why {
            InsertReason::New { .. } => folio.set_mark(self.now),
            InsertReason::Used => self.event(folio, true),
            // The largest age.
            InsertReason::Cold => folio.set_mark(self.now.wrapping_sub(AGES as u8)),
            _ => {}
        }
        Spot { list: 0, end: why.end() }
    }

    fn next(&mut self, sizes: &[u64]) -> Spot {
        self.resident = sizes[0];
        Spot::tail(0)
    }

    fn score(&mut self, folio: View<'_>) -> u64 {
        if folio.take_uses() > 0 {
            self.event(folio, true);
        }
        let class = &self.classes[usize::from(folio.is_anon())];
        class.density[self.age(folio)] / folio.pages()
    }

    fn evicted(&mut self, folio: View<'_>) -> u8 {
        self.event(folio, false);
        self.evicted += folio.pages();
        if self.evicted * STEPS >= self.resident {
            self.evicted = 0;
            self.now = self.now.wrapping_add(1);
        }
        0
    }
}

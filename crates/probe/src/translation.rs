//! What translations cost, by the number of pages that are in use.
//!
//! A chain leads through one line of each page, in a random order, and comes back to its start. As long as the TLB has
//! an entry for each page, a step takes as long as one of a chain through as many lines close together in a large page;
//! both chains fill the data caches alike. The difference rises in steps where a level of the TLB is full.
//!
//! A walk whose line of the page tables is in no cache of the CPU's own is forced by an address range that has far more
//! page tables than these caches hold: it maps the page of zeroes throughout, so they are all the memory that it takes.
//! Each load there is of another line of page tables; the one data line stays in the first-level cache.

use crate::chain::Chain;
use crate::clock::{nanos, quickest};
use crate::order::shuffled;
use crate::region::{Pages, Region};
use crate::steps::{self, Point, TranslationTimes};
use crate::{LARGE, LINE, PAGE};
use std::hint::black_box;
use std::io;

/// Steps that are timed together. The lines of the far range are a multiple.
const STEPS: usize = 2048;
/// The most pages of the curve: three times as many as any TLB holds.
const MOST: usize = 12288;
/// Pages whose entries share a line of a page table.
const PER_LINE: usize = 8;
/// The fewest lines of page tables of the far range, and the most (8 GiB of addresses).
const LINES: std::ops::RangeInclusive<usize> = 1 << 16..=1 << 18;
/// Lines of page tables that stay in all caches.
const FEW: u32 = 16;

/// Memory in small pages, in large pages, and a range of addresses.
pub struct Translation {
    sparse: Region,
    dense: Region,
    far: Region,
    /// Numbers of places in `far`.
    far_order: Vec<u32>,
    /// The next one that is read.
    next: usize,
    /// Nanoseconds of a cycle.
    cycle: f64,
}

impl Translation {
    /// Set memory up, for a CPU with this clock and so large a second-level cache.
    ///
    /// # Errors
    /// There are no large pages, or there is no memory.
    pub fn new(ghz: f64, cache: usize) -> io::Result<Translation> {
        let sparse = Region::new(MOST * PAGE, Pages::Small)?;
        // In a random order, so that neighbours are not neighbours in memory: some CPUs map those with one entry.
        shuffled(MOST as u32).into_iter().for_each(|page| sparse.write(page as usize * PAGE, 1));
        let lines = (2 * cache / LINE).clamp(*LINES.start(), *LINES.end()).next_multiple_of(STEPS);
        let far = Region::new(lines * PER_LINE * PAGE, Pages::Small)?;
        let far_order = shuffled(lines as u32);
        far_order.iter().for_each(|&line| {
            black_box(far.read(line as usize * PER_LINE * PAGE));
        });
        Ok(Translation {
            sparse,
            dense: Region::in_large_pages(LARGE)?,
            far,
            far_order,
            next: 0,
            cycle: 1.0 / ghz,
        })
    }

    /// The curve once, and the far range.
    pub fn round(&mut self) -> TranslationTimes {
        let curve = self.curve();
        let read = steps::read(&curve, self.cycle);
        TranslationTimes { far_step: self.far() - read.walk, ..read }
    }

    fn curve(&self) -> Vec<Point> {
        let point = |pages: usize| {
            let order = shuffled(pages as u32);
            let places = || order.iter().map(|&number| number as usize);
            // Lines of a page begin at another place in each page, or they would share a few sets of the caches.
            let sparse = places().map(|page| page * PAGE + page % (PAGE / LINE) * LINE);
            let dense = places().map(|line| line * LINE);
            Point { pages: pages as u32, nanos: step(&self.sparse, sparse) - step(&self.dense, dense) }
        };
        sizes().map(point).collect()
    }

    /// Nanoseconds that a load of the far range takes longer than one of few pages. Each timing goes on where the last
    /// has ended, so a line comes again after all others.
    fn far(&mut self) -> f64 {
        let Translation { far, far_order, next, .. } = self;
        let mut loads = |mask: u32| {
            let lines = &far_order[*next..][..STEPS];
            *next = (*next + STEPS) % far_order.len();
            // What is loaded is zero, which the CPU cannot know before.
            let place = |line: u32| (line & mask) as usize * PER_LINE * PAGE;
            nanos(|| lines.iter().fold(0, |zero, &line| usize::from(far.read(place(line) + zero))))
        };
        let [far, near] = [u32::MAX, FEW - 1].map(|mask| quickest(|| loads(mask)));
        (far - near) / STEPS as f64
    }
}

/// Numbers of pages, eight to each doubling.
fn sizes() -> impl Iterator<Item = usize> {
    let all = (1..).flat_map(|power| (8..16).map(move |eighths| eighths << power));
    all.take_while(|&pages| pages <= MOST)
}

/// Nanoseconds of a step of a chain through these places.
fn step(region: &Region, places: impl ExactSizeIterator<Item = usize> + Clone) -> f64 {
    let count = places.len();
    let mut chain = Chain::link(region, places);
    chain.follow(count);
    quickest(|| nanos(|| chain.follow(STEPS))) / STEPS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rise_by_eighths_of_a_doubling() {
        let sizes: Vec<usize> = sizes().collect();
        assert_eq!(sizes[..9], [16, 18, 20, 22, 24, 26, 28, 30, 32]);
        assert!(sizes.contains(&64) && sizes.contains(&96) && sizes.contains(&1536));
        assert_eq!(sizes.last(), Some(&MOST));
        assert!(sizes.windows(2).all(|two| two[0] < two[1]));
    }
}

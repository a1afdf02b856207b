//! Memory that is in no cache: lines are evicted before they are read.

use crate::arch::{self, evict, evict_lines};
use crate::chain::Chain;
use crate::clock::{nanos, quickest};
use crate::order::shuffled;
use crate::region::Region;
use crate::{LARGE, LINE, PAGE, unsupported};
use program::rng::Rng;
use std::hint::black_box;
use std::io;

/// Bytes that lines are read from: so large that few of its lines are in the same set of a cache by chance.
const BYTES: usize = 32 << 20;
/// Bytes that are read in a row.
const STREAM: usize = 2 << 20;
/// Loads that are timed together, of which each needs the result of the one before.
const LOADS: usize = 1024;
/// Pages that are copied or cleared.
const PAGES: f64 = (LARGE / PAGE) as f64;

/// Memory in large pages, so that translations cost nothing.
pub struct Memory {
    region: Region,
    /// Places of lines, a page each, in the order in which they are read.
    order: Vec<u32>,
    /// A large page to copy from, and one to copy to.
    pages: Region,
}

/// What one round measures.
#[derive(Clone, Copy, Debug)]
pub struct MemoryTimes {
    /// Nanoseconds of one dependent load.
    pub latency: f64,
    /// Bytes a nanosecond (GB/s) of reading in a row.
    pub stream: f64,
    /// Nanoseconds of copying a page to another.
    pub copy: f64,
    /// Nanoseconds of clearing a page.
    pub clear: f64,
}

impl Memory {
    /// Set memory up.
    ///
    /// # Errors
    /// There are no large pages, or no instruction is known here that evicts a line.
    pub fn new() -> io::Result<Memory> {
        if !arch::KNOWN {
            return Err(unsupported("only on x86-64"));
        }
        let region = Region::in_large_pages(BYTES)?;
        let mut random = Rng::new(1);
        let mut place =
            |page: u32| page * PAGE as u32 + random.below((PAGE / LINE) as u64) as u32 * LINE as u32;
        let order = shuffled((BYTES / PAGE) as u32).into_iter().map(&mut place).collect();
        Ok(Memory { region, order, pages: Region::in_large_pages(2 * LARGE)? })
    }

    /// Time all of them once.
    pub fn round(&mut self) -> MemoryTimes {
        MemoryTimes { latency: self.latency(), stream: self.stream(), copy: self.copy(), clear: self.clear() }
    }

    fn latency(&mut self) -> f64 {
        let mut chain = Chain::link(&self.region, self.order.iter().map(|&place| place as usize));
        let mut rest = self.order.chunks(LOADS);
        quickest(|| {
            let lines = rest.next().unwrap_or_default();
            evict_lines(lines.iter().map(|&place| self.region.byte(place as usize)));
            nanos(|| chain.follow(lines.len())) / lines.len() as f64
        })
    }

    fn stream(&mut self) -> f64 {
        let bytes = &self.region.as_mut()[..STREAM];
        // A byte of each line: the CPU's own additions are then no limit.
        let sum = || bytes.iter().step_by(LINE).fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        let time = quickest(|| {
            evict(bytes);
            nanos(sum)
        });
        STREAM as f64 / time
    }

    fn copy(&mut self) -> f64 {
        let (from, to) = self.pages.as_mut().split_at_mut(LARGE);
        let time = quickest(|| {
            evict(from);
            evict(to);
            let pairs = from.chunks(PAGE).zip(to.chunks_mut(PAGE));
            nanos(|| pairs.for_each(|(from, to)| black_box(to).copy_from_slice(from)))
        });
        time / PAGES
    }

    fn clear(&mut self) -> f64 {
        let to = &mut self.pages.as_mut()[LARGE..];
        let time = quickest(|| {
            evict(to);
            nanos(|| to.chunks_mut(PAGE).for_each(|page| black_box(page).fill(0)))
        });
        time / PAGES
    }
}

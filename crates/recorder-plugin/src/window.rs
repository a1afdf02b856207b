//! The window: accesses to the same few pages become one run each.
//!
//! Programs go to and fro between a handful of pages (stack, the object at hand, a table, the code), so writing
//! a run whenever the page changes would give runs of length two or three. The window holds the `(page, mode)`
//! pairs that were used last; an access to one of them is only counted. A pair leaves when it is the longest
//! unused one and room is needed, and then its run is written; but the modes of a page leave in the order in
//! which they came in.
//!
//! **What that distorts.** A run stands where its page left the window, not where its accesses were, so accesses
//! to different pages that lie within some 32 page changes of each other are reordered. The window is smaller
//! than the first-level TLBs of the machines at hand (48 to 96 entries for data, 64 and more for code, against 32 for
//! both), so a replay misses the TLBs where the program would have, save for a reordering within that distance; and it
//! is emptied before every system call and whenever another thread has changed the address space, so an access is never
//! moved across a change of what it may touch. Two threads' accesses to one page keep their order only to that grain.

use crate::event::Run;
use abi::AccessKind;

/// Most pairs that a window can be set to.
pub const MOST: usize = 64;
/// Pairs if nothing else is asked for.
pub const USUAL: usize = 32;
/// No pair: page numbers have at most 52 bits.
const NONE: u64 = u64::MAX;

pub struct Window {
    size: usize,
    keys: [u64; MOST],
    counts: [u32; MOST],
    used: [u64; MOST],
    /// When it came in.
    first: [u64; MOST],
    clock: u64,
    /// Where a pair was seen last, by some bits of its key: a hint that is checked.
    hints: [u8; 256],
    /// Pages of which it is told when they are met.
    pub watched: Vec<u64>,
}

const fn hint(key: u64) -> usize {
    ((key ^ (key >> 8)) & 255) as usize
}

impl Window {
    pub fn new(size: usize) -> Window {
        let size = size.clamp(1, MOST);
        Window {
            size,
            keys: [NONE; MOST],
            counts: [0; MOST],
            used: [0; MOST],
            first: [0; MOST],
            clock: 0,
            hints: [0; 256],
            watched: Vec::new(),
        }
    }

    /// Count `count` accesses. Returns the run that had to make room; or one of no accesses if the page is watched:
    /// then nothing was counted.
    #[inline]
    pub fn touch(&mut self, page: u64, mode: AccessKind, count: u32) -> Option<Run> {
        let key = page << 2 | mode as u64;
        self.clock += 1;
        let at = usize::from(self.hints[hint(key)]) % MOST;
        if self.keys[at] == key && self.counts[at] < u32::MAX - count {
            self.counts[at] += count;
            self.used[at] = self.clock;
            return None;
        }
        self.search(key, count)
    }

    #[inline(never)]
    fn search(&mut self, key: u64, count: u32) -> Option<Run> {
        let found = self.keys[..self.size].iter().position(|&known| known == key);
        let at = match found {
            Some(at) if self.counts[at] < u32::MAX - count => {
                self.counts[at] += count;
                self.used[at] = self.clock;
                self.hints[hint(key)] = at as u8;
                return None;
            }
            Some(at) => at,
            None if self.watched.contains(&(key >> 2)) => {
                return Some(Run { page: key >> 2, count: 0, mode: AccessKind::Load });
            }
            None => self.next_to_go(),
        };
        let run = self.run(at);
        (self.keys[at], self.counts[at], self.used[at]) = (key, count, self.clock);
        self.first[at] = self.clock;
        self.hints[hint(key)] = at as u8;
        run
    }

    /// The pair that was used longest ago; or, of its page, the one that came in first.
    fn next_to_go(&self) -> usize {
        self.first_of_page((0..self.size).min_by_key(|&at| self.used[at]).unwrap_or(0))
    }

    /// Of the pairs with the same page, the one that came in first. A load that is told before the store that made the
    /// page would be a fault of its own, on zeroes, and the store another.
    fn first_of_page(&self, at: usize) -> usize {
        let page = self.keys[at] >> 2;
        let of_page = (0..self.size).filter(|&at| self.keys[at] >> 2 == page);
        of_page.min_by_key(|&at| self.first[at]).unwrap_or(at)
    }

    fn run(&self, at: usize) -> Option<Run> {
        let key = self.keys[at];
        let mode = AccessKind::ALL[(key & 3) as usize % 3];
        (key != NONE).then(|| Run { page: key >> 2, count: self.counts[at], mode })
    }

    /// Empty the window, longest unused pair first, but the modes of a page in the order in which they came in.
    pub fn drain(&mut self, mut each: impl FnMut(Run)) {
        let mut order: [usize; MOST] = std::array::from_fn(|at| at);
        let order = &mut order[..self.size];
        order.sort_unstable_by_key(|&at| self.used[at]);
        for &last in order.iter() {
            while self.keys[last] != NONE {
                let at = self.first_of_page(last);
                if let Some(run) = self.run(at) {
                    each(run);
                }
                self.keys[at] = NONE;
                self.used[at] = 0;
                self.first[at] = 0;
            }
        }
    }
}

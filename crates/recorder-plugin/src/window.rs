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

/// A page and a mode, and what was counted of them.
#[derive(Clone, Copy)]
struct Pair {
    count: u32,
    /// The moment when it was used last.
    used: u64,
    /// When it came in: the moment, and how many came in before.
    first: u64,
}

const FREE: Pair = Pair { count: 0, used: 0, first: 0 };

pub struct Window {
    size: usize,
    /// Pages with their modes, and what was counted of each.
    keys: [u64; MOST],
    pairs: [Pair; MOST],
    /// Moments so far: what was used in the same one has no order.
    moment: u64,
    /// Pairs that came in so far.
    came: u64,
    /// By some bits of the key: a key, and where its pair is. A key that is here is in the window.
    hints: [Hint; 256],
    /// The key that code was fetched from last, and where its pair is.
    fetched: Hint,
    /// Pages of which it is told when they are met.
    pub watched: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Hint {
    key: u64,
    at: usize,
}

const NO_HINT: Hint = Hint { key: NONE, at: 0 };

const fn hint(key: u64) -> usize {
    ((key ^ (key >> 8)) & 255) as usize
}

impl Window {
    pub fn new(size: usize) -> Window {
        Window {
            size: size.clamp(1, MOST),
            keys: [NONE; MOST],
            pairs: [FREE; MOST],
            moment: 0,
            came: 0,
            hints: [NO_HINT; 256],
            fetched: NO_HINT,
            watched: Vec::new(),
        }
    }

    /// A block of instructions begins, which is a moment. Returns whether so many have passed that somebody must look whether
    /// [it is full](Self::is_full).
    #[inline(always)]
    pub fn block(&mut self) -> bool {
        const BLOCKS: u64 = 1 << 20;
        self.moment += 1;
        self.moment % BLOCKS == 0
    }

    /// Whether a count is so large that it could overflow in the next million blocks of a thousand accesses, which
    /// [`hit`](Self::hit) does not look for.
    #[cold]
    pub fn is_full(&self) -> bool {
        self.pairs.iter().any(|pair| pair.count > u32::MAX / 2)
    }

    /// Count an access to a pair that is there and for which there is a hint; otherwise do nothing and say so. This is done
    /// for each access of the program, and is nearly all that is.
    #[inline(always)]
    pub fn hit(&mut self, page: u64, mode: AccessKind) -> bool {
        let key = page << 2 | mode as u64;
        let Hint { key: known, at } = self.hints[hint(key)];
        known == key && self.count(at)
    }

    /// As [`hit`](Self::hit) for a fetch: most are from the page that was fetched from last.
    #[inline(always)]
    pub fn hit_fetch(&mut self, page: u64) -> bool {
        let key = page << 2 | AccessKind::Fetch as u64;
        self.fetched.key == key && self.count(self.fetched.at)
    }

    #[inline(always)]
    fn count(&mut self, at: usize) -> bool {
        let pair = &mut self.pairs[at % MOST];
        pair.count += 1;
        pair.used = self.moment;
        true
    }

    /// The pair of `key` is at this place.
    fn hint(&mut self, key: u64, at: usize) {
        self.hints[hint(key)] = Hint { key, at };
        if key & 3 == AccessKind::Fetch as u64 {
            self.fetched = Hint { key, at };
        }
    }

    /// The pair at this place goes.
    fn forget(&mut self, at: usize) {
        let key = std::mem::replace(&mut self.keys[at], NONE);
        if key != NONE && self.hints[hint(key)].key == key {
            self.hints[hint(key)] = NO_HINT;
        }
        if self.fetched.key == key {
            self.fetched = NO_HINT;
        }
        self.pairs[at] = FREE;
    }

    /// Count `count` accesses. Returns the run that had to make room; or one of no accesses if the page is watched:
    /// then nothing was counted.
    pub fn touch(&mut self, page: u64, mode: AccessKind, count: u32) -> Option<Run> {
        self.moment += 1;
        let key = page << 2 | mode as u64;
        let Hint { key: known, at } = self.hints[hint(key)];
        let found = match known == key {
            true => Some(at),
            false => self.keys[..self.size].iter().position(|&known| known == key),
        };
        let at = match found {
            // A run counts so many at most.
            Some(at) if self.pairs[at].count <= u32::MAX - count => {
                let pair = &mut self.pairs[at];
                (pair.count, pair.used) = (pair.count + count, self.moment);
                self.hint(key, at);
                return None;
            }
            Some(at) => at,
            None if self.watched.contains(&page) => {
                return Some(Run { page, count: 0, mode: AccessKind::Load });
            }
            None => self.next_to_go(),
        };
        let run = self.run(at);
        self.forget(at);
        self.came += 1;
        self.keys[at] = key;
        self.pairs[at] = Pair { count, used: self.moment, first: self.came };
        self.hint(key, at);
        run
    }

    /// The pair that was used longest ago; or, of its page, the one that came in first.
    fn next_to_go(&self) -> usize {
        self.first_of_page((0..self.size).min_by_key(|&at| self.pairs[at].used).unwrap_or(0))
    }

    /// Of the pairs with the same page, the one that came in first. A load that is told before the store that made the
    /// page would be a fault of its own, on zeroes, and the store another.
    fn first_of_page(&self, at: usize) -> usize {
        let page = self.keys[at] >> 2;
        let of_page = (0..self.size).filter(|&at| self.keys[at] >> 2 == page);
        of_page.min_by_key(|&at| self.pairs[at].first).unwrap_or(at)
    }

    fn run(&self, at: usize) -> Option<Run> {
        let (key, count) = (self.keys[at], self.pairs[at].count);
        let mode = AccessKind::ALL[(key & 3) as usize % 3];
        (key != NONE).then_some(Run { page: key >> 2, count, mode })
    }

    /// Empty the window, longest unused pair first, but the modes of a page in the order in which they came in.
    pub fn drain(&mut self, mut each: impl FnMut(Run)) {
        let mut order: [usize; MOST] = std::array::from_fn(|at| at);
        let order = &mut order[..self.size];
        order.sort_unstable_by_key(|&at| (self.pairs[at].used, self.pairs[at].first));
        for &last in order.iter() {
            while self.keys[last] != NONE {
                let at = self.first_of_page(last);
                if let Some(run) = self.run(at) {
                    each(run);
                }
                self.forget(at);
            }
        }
    }
}

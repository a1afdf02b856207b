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

/// What is in a place of the window besides its key.
#[derive(Clone, Copy)]
struct Pair {
    count: u32,
    /// Whether another mode of the page may be in the window, too.
    mated: bool,
    /// When it came in: how many came in before.
    first: u64,
}

const FREE: Pair = Pair { count: 0, mated: false, first: 0 };

/// Moments after which the window is looked at: no count overflows in so many blocks of a thousand accesses.
const LOOK: i32 = 1 << 20;
/// Moments after which they are counted from 0 again.
const LAST: i32 = 1 << 30;
/// When nothing was used.
const NEVER: i32 = -1;

pub struct Window {
    size: usize,
    /// Pages with their modes. This and the next are apart from the rest because they are searched.
    keys: [u64; MOST],
    /// The moment when each was used last.
    used: [i32; MOST],
    pairs: [Pair; MOST],
    /// Moments so far: what was used in the same one has no order.
    moment: i32,
    /// When the window is to be looked at.
    look: i32,
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
    at: u32,
    /// How many other keys with the same bits are in the window: those must be searched for.
    hidden: u32,
}

const NO_HINT: Hint = Hint { key: NONE, at: 0, hidden: 0 };

const fn hint(key: u64) -> usize {
    ((key ^ (key >> 8)) & 255) as usize
}

impl Window {
    pub fn new(size: usize) -> Window {
        let size = size.clamp(1, MOST);
        let mut used = [i32::MAX; MOST];
        used[..size].fill(NEVER);
        Window {
            size,
            keys: [NONE; MOST],
            used,
            pairs: [FREE; MOST],
            moment: 0,
            look: LOOK,
            came: 0,
            hints: [NO_HINT; 256],
            fetched: NO_HINT,
            watched: Vec::new(),
        }
    }

    /// Whether the window is to be [looked at](Self::is_full).
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.moment >= self.look
    }

    /// A block of instructions begins, which is a moment. Returns whether so many have passed that the window is to be
    /// [looked at](Self::is_full).
    #[inline(always)]
    pub fn block(&mut self) -> bool {
        self.moment += 1;
        self.is_due()
    }

    /// Whether the window must be emptied: a count could overflow, which [`hit`](Self::hit) does not look for, or the
    /// number of moments could.
    #[cold]
    pub fn is_full(&mut self) -> bool {
        self.look = self.moment + LOOK;
        self.moment >= LAST || self.pairs.iter().any(|pair| pair.count > u32::MAX / 2)
    }

    /// Count an access to a pair that is there and for which there is a hint; otherwise do nothing and say so. This
    /// is done for each access of the program, and is nearly all that is.
    #[inline(always)]
    pub fn hit(&mut self, page: u64, mode: AccessKind) -> bool {
        let key = page << 2 | mode as u64;
        let Hint { key: known, at, .. } = self.hints[hint(key)];
        known == key && self.count(at)
    }

    /// As [`hit`](Self::hit) for a fetch: most are from the page that was fetched from last.
    #[inline(always)]
    pub fn hit_fetch(&mut self, page: u64) -> bool {
        let key = page << 2 | AccessKind::Fetch as u64;
        self.fetched.key == key && self.count(self.fetched.at)
    }

    #[inline(always)]
    fn count(&mut self, at: u32) -> bool {
        self.pairs[at as usize % MOST].count += 1;
        self.used[at as usize % MOST] = self.moment;
        true
    }

    /// Where the pair of `key` is.
    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let Hint { key: known, at, hidden } = self.hints[hint(key)];
        match known == key {
            true => Some(at as usize),
            false if hidden == 0 => None,
            false => self.keys[..self.size].iter().position(|&known| known == key),
        }
    }

    /// The pair of `key` is at this place, and is `new` or was found there.
    #[inline]
    fn hint(&mut self, key: u64, at: usize, new: bool) {
        let found = &mut self.hints[hint(key)];
        if found.key != key {
            found.hidden += u32::from(found.key != NONE);
            found.hidden -= u32::from(!new);
            (found.key, found.at) = (key, at as u32);
        }
        if key & 3 == AccessKind::Fetch as u64 {
            self.fetched = Hint { key, at: at as u32, hidden: 0 };
        }
    }

    /// The pair at this place goes.
    #[inline]
    fn forget(&mut self, at: usize) {
        let key = std::mem::replace(&mut self.keys[at], NONE);
        if key == NONE {
            return;
        }
        let found = &mut self.hints[hint(key)];
        match found.key == key {
            true => found.key = NONE,
            false => found.hidden -= 1,
        }
        if self.fetched.key == key {
            self.fetched = NO_HINT;
        }
        self.used[at] = NEVER;
        self.pairs[at] = FREE;
    }

    /// Count `count` accesses. Returns the run that had to make room; or one of no accesses if the page is watched:
    /// then nothing was counted.
    pub fn touch(&mut self, page: u64, mode: AccessKind, count: u32) -> Option<Run> {
        self.moment += 1;
        let key = page << 2 | mode as u64;
        let at = match self.find(key) {
            // A run counts so many at most.
            Some(at) if self.pairs[at].count <= u32::MAX - count => {
                self.pairs[at].count += count;
                self.used[at] = self.moment;
                self.hint(key, at, false);
                return None;
            }
            Some(at) => at,
            None if !self.watched.is_empty() && self.watched.contains(&page) => {
                return Some(Run { page, count: 0, mode: AccessKind::Load });
            }
            None => self.next_to_go(),
        };
        let run = self.run(at);
        self.forget(at);
        self.came += 1;
        let mut mated = false;
        for other in AccessKind::ALL.into_iter().filter(|&other| other != mode) {
            if let Some(at) = self.find(page << 2 | other as u64) {
                self.pairs[at].mated = true;
                mated = true;
            }
        }
        self.keys[at] = key;
        self.used[at] = self.moment;
        self.pairs[at] = Pair { count, mated, first: self.came };
        self.hint(key, at, true);
        run
    }

    /// The pair that was used longest ago; or, of its page, the one that came in first.
    fn next_to_go(&self) -> usize {
        // In two steps, which are some of the processor's vector instructions each.
        let oldest = self.used.iter().fold(i32::MAX, |oldest, &used| oldest.min(used));
        let at = self.used.iter().position(|&used| used == oldest).unwrap_or(0);
        if self.pairs[at].mated { self.first_of_page(at) } else { at }
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
        order.sort_unstable_by_key(|&at| (self.used[at], self.pairs[at].first));
        for &last in order.iter() {
            while self.keys[last] != NONE {
                let at = self.first_of_page(last);
                if let Some(run) = self.run(at) {
                    each(run);
                }
                self.forget(at);
            }
        }
        if self.moment >= LAST {
            (self.moment, self.look) = (0, LOOK);
        }
    }
}

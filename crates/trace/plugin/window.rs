//! The window: accesses to the same few pages become one run each.
//!
//! Programs alternate between a handful of pages (stack, the current object, a table, the code), so writing a run at
//! each change of page would give runs of length two or three. The window holds the most recently used `(page, mode)`
//! pairs; an access to one of them is only counted. When room is needed, the least recently used pair leaves, and its
//! run is written; but the modes of a page leave in the order in which they came in.
//!
//! **What that distorts.** A run is placed where its page left the window, not where its accesses were, so accesses to
//! different pages that are within some 32 page changes of each other are reordered. The window is smaller than the
//! first-level TLBs of today's machines (48 to 96 entries for data, 64 and more for code, against 32 for both), so a
//! replay misses the TLBs where the program would have, except for a reordering within that distance. The window is
//! emptied before every system call and whenever another thread has changed the address space, so an access is never
//! moved across a change of its mapping. Two threads' accesses to one page keep their order only to that grain.

use crate::event::Run;
use abi::AccessKind;

/// Most pairs that a window can have.
pub const MOST: usize = 64;
/// Pairs by default.
pub const USUAL: usize = 32;
/// No pair: page numbers have at most 52 bits.
const NONE: u64 = u64::MAX;

/// The content of a slot of the window besides its key.
#[derive(Clone, Copy)]
struct Pair {
    count: u32,
    /// Whether another mode of the page may be in the window, too.
    mated: bool,
    /// When it came in: the number of pairs that came in before.
    first: u64,
}

const FREE: Pair = Pair { count: 0, mated: false, first: 0 };

/// Moments between two checks of the window: no count overflows within this many blocks of a thousand accesses.
const LOOK: i32 = 1 << 20;
/// Moments after which they are counted from 0 again.
const LAST: i32 = 1 << 30;
/// The moment of a slot that was never used.
const NEVER: i32 = -1;

pub struct Window {
    size: usize,
    /// Pages with their modes. This and the next field are separate from the rest because they are searched.
    keys: [u64; MOST],
    /// The moment of the last use of each.
    used: [i32; MOST],
    pairs: [Pair; MOST],
    /// Moments so far. Uses within one moment have no order.
    moment: i32,
    /// When the window is to be checked.
    look: i32,
    /// Pairs that came in so far.
    came: u64,
    /// By some bits of the key: a key, and the place of its pair. A key that is here is in the window.
    hints: [Hint; 256],
    /// The key of the last code fetch, and the place of its pair.
    fetched: Hint,
    /// Pages that [`touch`](Window::touch) reports.
    pub watched: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Hint {
    key: u64,
    at: u32,
    /// Number of other keys with the same bits in the window, which must be searched for.
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

    /// Whether the window is to be [checked](Self::is_full).
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.moment >= self.look
    }

    /// Begin a block of instructions, which is a moment. Returns whether the window is to be [checked](Self::is_full).
    #[inline(always)]
    pub fn block(&mut self) -> bool {
        self.moment += 1;
        self.is_due()
    }

    /// Whether the window must be emptied: a count could overflow, which [`hit`](Self::hit) does not check, or the
    /// number of moments could.
    #[cold]
    pub fn is_full(&mut self) -> bool {
        self.look = self.moment + LOOK;
        self.moment >= LAST || self.pairs.iter().any(|pair| pair.count > u32::MAX / 2)
    }

    /// Count an access to a pair that has a hint, and return `true`; else return `false`. This runs for each access of
    /// the program, and for nearly all of them nothing else does.
    #[inline(always)]
    pub fn hit(&mut self, page: u64, mode: AccessKind) -> bool {
        let key = page << 2 | mode as u64;
        let Hint { key: known, at, .. } = self.hints[hint(key)];
        known == key && self.count(at)
    }

    /// [`hit`](Self::hit) for a fetch: most are from the same page as the last one.
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

    /// The place of the pair of `key`.
    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let Hint { key: known, at, hidden } = self.hints[hint(key)];
        match known == key {
            true => Some(at as usize),
            false if hidden == 0 => None,
            false => self.keys[..self.size].iter().position(|&known| known == key),
        }
    }

    /// Note that the pair of `key`, which is `new` or was found, is at this place.
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

    /// Take out the pair at this place.
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

    /// Count `count` accesses. Returns the run that had to make room. If the page is watched, counts nothing and
    /// returns a run of no accesses.
    pub fn touch(&mut self, page: u64, mode: AccessKind, count: u32) -> Option<Run> {
        self.moment += 1;
        let key = page << 2 | mode as u64;
        let at = match self.find(key) {
            // The count of a run is at most `u32::MAX`.
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

    /// The loads of a page began with one that was part of a store: its stores came in first.
    pub fn store_was_first(&mut self, page: u64) {
        let [load, store] =
            [AccessKind::Load, AccessKind::Store].map(|mode| self.find(page << 2 | mode as u64));
        if let (Some(load), Some(store)) = (load, store)
            && self.pairs[load].first < self.pairs[store].first
        {
            let first = self.pairs[load].first;
            self.pairs[load].first = std::mem::replace(&mut self.pairs[store].first, first);
        }
    }

    /// The least recently used pair; or, of its page, the one that came in first.
    fn next_to_go(&self) -> usize {
        // In two steps, each of which becomes a few vector instructions.
        let oldest = self.used.iter().fold(i32::MAX, |oldest, &used| oldest.min(used));
        let at = self.used.iter().position(|&used| used == oldest).unwrap_or(0);
        if self.pairs[at].mated { self.first_of_page(at) } else { at }
    }

    /// Of the pairs with the same page, the one that came in first. If a load were recorded before the store that
    /// first touched the page, each would cause a fault of its own, the load's with a page of zeroes.
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

    /// Empty the window, the least recently used pair first, but the modes of a page in the order in which they came
    /// in.
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

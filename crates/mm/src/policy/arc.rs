//! ARC: folios used once and folios used more often share memory in proportions that follow what returns after its
//! eviction.
//!
//! Source: Megiddo, Modha: ARC, a Self-Tuning, Low Overhead Replacement Cache, FAST 2003, figure 4; with the clocks
//! of Bansal, Modha: CAR, Clock with Adaptive Replacement, FAST 2004, figure 2, because uses are seen only when
//! reclaim looks. A directory remembers what a list has lost, the oldest as long as there is room. Folios keep no place
//! in it: each knows the step of its list's time in which it was evicted, and the directory knows how many of each step
//! it still remembers. A step is 1/32 of memory, so the oldest of a step may be forgotten in place of another.

use super::{InsertReason, Judgement, Past, Replace, Spot, View, added_to_two, hits, list_of_two};

/// The lists of folios used once and of folios used more often.
const ONCE: usize = 0;
const OFTEN: usize = 1;
/// In the mark: the folio was used more than once.
const IS_OFTEN: u8 = 0x80;

/// Steps in which as many pages leave a list as memory holds.
const STEPS: u64 = 32;
/// Number of steps that a directory can tell apart: what a mark can hold, without 0.
const KNOWN: usize = 127;

/// What is remembered of the folios that a list has lost.
struct Directory {
    /// Pages by step, modulo [`KNOWN`].
    pages: [u64; KNOWN],
    sum: u64,
    /// The present step, and the one of the oldest folio.
    now: usize,
    oldest: usize,
    /// Pages that have left in the present step.
    left: u64,
}

impl Default for Directory {
    fn default() -> Directory {
        Directory { pages: [0; KNOWN], sum: 0, now: 0, oldest: 0, left: 0 }
    }
}

impl Directory {
    /// Remember a folio of a memory of `resident` pages. Returns its step.
    fn add(&mut self, pages: u64, resident: u64) -> u8 {
        if self.left >= (resident / STEPS).max(1) {
            self.left = 0;
            self.now = (self.now + 1) % KNOWN;
            if self.now == self.oldest {
                self.forget_oldest(u64::MAX);
            }
        }
        self.left += pages;
        self.pages[self.now] += pages;
        self.sum += pages;
        self.now as u8
    }

    /// Forget the oldest pages until `most` are left.
    fn trim(&mut self, most: u64) {
        while self.sum > most {
            self.forget_oldest(self.sum - most);
        }
    }

    /// Forget up to `most` pages of the oldest step.
    fn forget_oldest(&mut self, most: u64) {
        let gone = most.min(self.pages[self.oldest]);
        self.pages[self.oldest] -= gone;
        self.sum -= gone;
        if self.pages[self.oldest] == 0 && self.oldest != self.now || most > gone {
            self.oldest = (self.oldest + 1) % KNOWN;
        }
    }

    /// A folio that left in `step` returns. Returns whether it was remembered; it no longer is.
    fn remove(&mut self, step: u8, pages: u64) -> bool {
        let remembered = &mut self.pages[usize::from(step)];
        let known = *remembered > 0;
        let gone = pages.min(*remembered);
        *remembered -= gone;
        self.sum -= gone;
        known
    }
}

#[derive(Default)]
pub(super) struct Arc {
    /// Target size of the list of folios used once, in pages.
    target: u64,
    /// Pages of the lists.
    sizes: [u64; 2],
    /// What they have lost.
    ghosts: [Directory; 2],
}

impl Replace for Arc {
    fn lists(&self) -> usize {
        2
    }

    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot {
        added_to_two(folio, why, IS_OFTEN)
    }

    fn returned(&mut self, folio: View<'_>, past: Past) {
        // A step that is so long ago has the number of a later one.
        let known = (KNOWN as u64 - 1) * (past.resident / STEPS).max(1);
        let Some(step) = (past.left & !IS_OFTEN).checked_sub(1).filter(|_| past.distance < known) else {
            return;
        };
        let from = if past.left & IS_OFTEN == 0 { ONCE } else { OFTEN };
        let [ours, others] = [self.ghosts[from].sum, self.ghosts[1 - from].sum];
        if !self.ghosts[from].remove(step, folio.pages()) {
            return;
        }
        let step = (folio.pages() * others / ours).max(folio.pages());
        self.target = match from {
            ONCE => (self.target + step).min(past.resident),
            _ => self.target.saturating_sub(step),
        };
        folio.set_mark(IS_OFTEN);
    }

    fn next(&mut self, sizes: &[u64]) -> Spot {
        self.sizes = [sizes[ONCE], sizes[OFTEN]];
        let once = sizes[ONCE] >= self.target.max(1) || sizes[OFTEN] == 0;
        Spot::tail(if once { ONCE } else { OFTEN })
    }

    fn judge(&mut self, folio: View<'_>) -> Judgement {
        if hits(folio) == 0 {
            return Judgement::Evict;
        }
        folio.set_mark(IS_OFTEN);
        Judgement::Move(Spot::head(OFTEN))
    }

    fn evicted(&mut self, folio: View<'_>) -> u8 {
        let (from, [once, often]) = (list_of_two(folio, IS_OFTEN), self.sizes);
        let (resident, pages) = (once + often, folio.pages());
        let step = self.ghosts[from].add(pages, resident);
        // The list of folios used once and its directory are together at most as large as memory, and so are both
        // directories.
        let left = if from == ONCE { once.saturating_sub(pages) } else { once };
        self.ghosts[ONCE].trim(resident - left);
        self.ghosts[OFTEN].trim(resident.saturating_sub(self.ghosts[ONCE].sum));
        self.sizes[from] = self.sizes[from].saturating_sub(pages);
        if from == ONCE { step + 1 } else { (step + 1) | IS_OFTEN }
    }
}

//! SIEVE: one queue, a hand that moves from its tail to its head, and a visited bit on each folio.
//!
//! The hand evicts unvisited folios. It clears the bit of visited ones and leaves them in place. Two lists form the
//! queue: the part ahead of the hand and the part that it has passed. When nothing is ahead, the hand starts again at
//! the tail of the passed part.
//!
//! Source: Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is Simpler than LRU, NSDI 2024, section 3.1. The bit of a
//! mapped folio is the young bits of its entries when the hand gets there.

use super::{FIRST, InsertReason, Judgement, Replace, Spot, View, hits};

#[derive(Default)]
pub(super) struct Sieve {
    ahead: usize,
    /// Pages ahead of the hand, including that under it.
    left: u64,
}

impl Sieve {
    /// Move the folio under the hand to the passed part. Returns the list of that part.
    fn pass(&mut self, pages: u64) -> usize {
        let passed = 1 - self.ahead;
        if self.left <= pages {
            self.ahead = passed;
        }
        passed
    }
}

impl Replace for Sieve {
    fn lists(&self) -> usize {
        2
    }

    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot {
        match why {
            InsertReason::New { .. } => folio.set_mark(FIRST),
            InsertReason::Used | InsertReason::Kept => return Spot::head(1 - self.ahead),
            InsertReason::Wanted | InsertReason::Cold => return Spot::tail(self.ahead),
            InsertReason::Back => {}
        }
        Spot::head(self.ahead)
    }

    fn next(&mut self, sizes: &[u64]) -> Spot {
        if sizes[self.ahead] == 0 {
            self.ahead = 1 - self.ahead;
        }
        self.left = sizes[self.ahead];
        Spot::tail(self.ahead)
    }

    fn judge(&mut self, folio: View<'_>) -> Judgement {
        let passed = self.pass(folio.pages());
        if hits(folio) > 0 { Judgement::Move(Spot::head(passed)) } else { Judgement::Evict }
    }
}

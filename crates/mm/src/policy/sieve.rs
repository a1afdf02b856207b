//! SIEVE: one queue, a hand that goes from its tail to its head, and a bit on each folio.
//!
//! What the hand meets unvisited goes; what was visited is not any more, and stays where it is. Two lists are that
//! queue: what is ahead of the hand, and what it has passed. When nothing is ahead, it begins again at the tail of what
//! it has passed.
//!
//! Source: Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is Simpler than LRU, NSDI 2024, section 3.1. A mapped folio's bit
//! is what its entries show when the hand meets it.

use super::{FIRST, InsertReason, Judgement, Replace, Spot, View, hits};

#[derive(Default)]
pub(super) struct Sieve {
    ahead: usize,
    /// Pages ahead of the hand, that under it included.
    left: u64,
}

impl Sieve {
    /// The folio under the hand leaves the part ahead of it. Returns the part that is passed.
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

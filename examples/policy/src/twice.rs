use mm::policy::{InsertReason, Judgement, Past, Replace, Spot, View};

/// What was used in memory goes round once more; what comes back soon after it was evicted has a list of its own, which
/// is left alone while it is the shorter one.
pub struct Twice;

const ONCE: usize = 0;
const AGAIN: usize = 1;

impl Replace for Twice {
    fn lists(&self) -> usize {
        2
    }

    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot {
        // The use that brings a folio says nothing of the next.
        if matches!(why, InsertReason::New { .. }) {
            folio.take_uses();
        }
        Spot { list: usize::from(folio.mark()), end: why.end() }
    }

    fn returned(&mut self, folio: View<'_>, past: Past) {
        if past.distance <= past.resident {
            folio.set_mark(AGAIN as u8);
        }
    }

    fn next(&mut self, sizes: &[u64]) -> Spot {
        Spot::tail(if sizes[ONCE] >= sizes[AGAIN] { ONCE } else { AGAIN })
    }

    fn judge(&mut self, folio: View<'_>) -> Judgement {
        match folio.take_uses() {
            0 => Judgement::Evict,
            _ => Judgement::Move(Spot::head(folio.list())),
        }
    }
}

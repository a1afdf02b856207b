use mm::policy::{InsertReason, Judgement, Past, Replace, Spot, View};

/// Folios that are used in memory go around once more. Folios that return soon after their eviction have a
/// list of their own, which is not scanned while it is the shorter one.
pub struct Twice;

const ONCE: usize = 0;
const AGAIN: usize = 1;

impl Replace for Twice {
    fn lists(&self) -> usize {
        2
    }

    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot {
        // The access that brings a folio in says nothing about the next one.
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

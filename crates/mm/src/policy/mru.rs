//! Most recently used: evicts the folio that came last, so that a part of a loop larger than memory stays.
//!
//! Source: Chou, DeWitt: An Evaluation of Buffer Management Strategies for Relational Database Systems, VLDB 1985,
//! section 3.1. A folio that was read ahead and not yet used is not the most recently *used* one: it is skipped once.
//! Uses do not move a folio.

use super::{FIRST, InsertReason, Judgement, Replace, Spot, View};

pub(super) struct Mru;

impl Replace for Mru {
    fn checks_references(&self) -> bool {
        false
    }

    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot {
        match why {
            InsertReason::New { faulted, .. } => {
                folio.set_mark(if faulted { 0 } else { FIRST });
                Spot::head(0)
            }
            InsertReason::Wanted | InsertReason::Cold => Spot::head(0),
            InsertReason::Used | InsertReason::Kept | InsertReason::Back => Spot::tail(0),
        }
    }

    fn next(&mut self, _sizes: &[u64]) -> Spot {
        Spot::head(0)
    }

    fn judge(&mut self, folio: View<'_>) -> Judgement {
        let waits = folio.mark() == FIRST && folio.uses() == 0;
        folio.set_mark(0);
        if waits { Judgement::Move(Spot::tail(0)) } else { Judgement::Evict }
    }
}

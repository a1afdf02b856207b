//! First in, first out: evicts folios in the order in which they came, used or not.

use super::{InsertReason, Replace, Spot, View};

pub(super) struct Fifo;

impl Replace for Fifo {
    fn checks_references(&self) -> bool {
        false
    }

    fn added(&mut self, _folio: View<'_>, why: InsertReason) -> Spot {
        Spot { list: 0, end: why.end() }
    }

    fn next(&mut self, _sizes: &[u64]) -> Spot {
        Spot::tail(0)
    }
}

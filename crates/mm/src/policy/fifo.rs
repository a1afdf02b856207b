//! First in, first out: what came first goes first, used or not.

use super::{Replace, Spot, View, Why};

pub(super) struct Fifo;

impl Replace for Fifo {
    fn heeds_use(&self) -> bool {
        false
    }

    fn added(&mut self, _folio: View<'_>, why: Why) -> Spot {
        Spot { list: 0, end: why.end() }
    }

    fn next(&mut self, _sizes: &[u64]) -> Spot {
        Spot::tail(0)
    }
}

//! Least frequently used: of a sample at the list's end, evicts the folios with the fewest uses since they came.
//!
//! Source: Coffman, Denning: Operating Systems Theory, 1973, section 6.3; taken from a sample as in cache_ext
//! (Zussman and others, SOSP 2025, section 5.1). Each look at a mapped folio sees at most one use.

use super::{InsertReason, Replace, Sample, Spot, View};

pub(super) struct Lfu;

fn count(folio: View<'_>, uses: u32) -> u8 {
    let count = folio.mark().saturating_add(uses as u8);
    folio.set_mark(count);
    count
}

impl Replace for Lfu {
    fn sample(&self) -> Option<Sample> {
        Some(Sample { of: 128, take: 32 })
    }

    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot {
        match why {
            InsertReason::Used => _ = count(folio, 1),
            InsertReason::Cold => folio.set_mark(0),
            _ => {}
        }
        Spot { list: 0, end: why.end() }
    }

    fn next(&mut self, _sizes: &[u64]) -> Spot {
        Spot::tail(0)
    }

    fn score(&mut self, folio: View<'_>) -> u64 {
        count(folio, folio.take_uses()).into()
    }
}

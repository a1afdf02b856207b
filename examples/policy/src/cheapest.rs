use mm::policy::{InsertReason, Replace, Sample, Spot, View};

/// Of the oldest folios, those go first that cost least to evict: clean ones before dirty ones, then files
/// before anonymous memory, then unmapped folios before mapped ones.
pub struct Cheapest;

impl Replace for Cheapest {
    fn sample(&self) -> Option<Sample> {
        Some(Sample { of: 32, take: 8 })
    }

    fn added(&mut self, _folio: View<'_>, why: InsertReason) -> Spot {
        Spot { list: 0, end: why.end() }
    }

    fn next(&mut self, _sizes: &[u64]) -> Spot {
        Spot::tail(0)
    }

    fn score(&mut self, folio: View<'_>) -> u64 {
        [folio.is_dirty(), folio.is_anon(), folio.is_mapped()]
            .into_iter()
            .fold(0, |sum, cost| sum * 2 + u64::from(cost))
    }
}

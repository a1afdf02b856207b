//! Bloom filters: which page tables to walk.
//!
//! A table is walked if many of its entries were young at the last look. A walk for the generation after `seq` visits
//! only the tables in the filter of `seq`, and adds the tables that it finds dense to the filter of `seq + 1`. A look
//! around a used entry during eviction adds a dense table to the filter of the youngest generation. So there are two
//! filters at a time. A table that is in a filter by mistake costs a walk; a table that is missing is found again by
//! eviction.

use crate::lock::Lock;
use crate::units::*;
use std_alloc::boxed::Box;

/// log2 of the bits of a filter.
const SHIFT: u32 = 15;
const WORDS: usize = (1 << SHIFT) / u64::BITS as usize;

type Filter = Option<Box<[u64; WORDS]>>;

/// The filters of a vector, by the parity of the sequence number. A vector has none before its first walk.
#[derive(Default)]
pub(super) struct Filters {
    filters: Lock<[Filter; 2]>,
}

/// The two bits of a table: parts of a hash of its frame number.
fn bits(table: Pfn) -> [usize; 2] {
    let folded = u64::from(table.0).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (folded ^ folded >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    [mixed >> (u64::BITS - SHIFT), mixed >> (u64::BITS - 2 * SHIFT) & ((1 << SHIFT) - 1)]
        .map(|bit| bit as usize)
}

impl Filters {
    /// Empty the filter of `seq` before the first table is added.
    pub(crate) fn reset(&self, seq: u64) {
        let filter = &mut self.filters.lock()[seq as usize % 2];
        match filter {
            Some(filter) => filter.fill(0),
            None => *filter = Some(Box::new([0; WORDS])),
        }
    }

    /// Whether the table is in the filter of `seq`. Without a filter, all tables are.
    pub fn has(&self, seq: u64, table: Pfn) -> bool {
        self.filters.lock()[seq as usize % 2]
            .as_ref()
            .is_none_or(|filter| bits(table).iter().all(|bit| filter[bit / 64] >> (bit % 64) & 1 == 1))
    }

    /// Add a table to the filter of `seq`, if there is one.
    pub fn add(&self, seq: u64, table: Pfn) {
        if let Some(filter) = &mut self.filters.lock()[seq as usize % 2] {
            bits(table).iter().for_each(|bit| filter[bit / 64] |= 1 << (bit % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// reclaim.md, section 6: 0.209 with 10,000 tables, 0.497 with 20,000.
    #[test]
    fn false_positives_match_the_filter_size() {
        for (tables, expected) in [(10_000, 0.209), (20_000, 0.497)] {
            let filters = Filters::default();
            assert!(filters.has(0, Pfn(1)), "without a filter every table is walked");
            filters.reset(0);
            (0..tables).for_each(|table| filters.add(0, Pfn(table * 7)));
            assert!((0..tables).all(|table| filters.has(0, Pfn(table * 7))));
            let others = (0..10_000u32).map(|i| Pfn(1_000_000 + i * 3));
            let mistaken = others.filter(|&table| filters.has(0, table)).count() as f64 / 10_000.0;
            assert!((mistaken - expected).abs() < 0.03, "{mistaken} of tables, expected {expected}");
        }
    }
}

//! Bloom filters: which page tables are worth a walk.
//!
//! A table is worth it if many of its entries were young when it was last seen. A walk that is to make the generation
//! after `seq` looks only at tables in the filter of `seq`, and puts those that it finds dense into that of `seq + 1`;
//! what looks around a used entry during eviction puts its table into that of the youngest generation. So there are two
//! filters at a time. A table that is in a filter by mistake costs a walk; one that was forgotten is found again by
//! eviction.

use crate::lock::Lock;
use crate::units::*;
use std_alloc::boxed::Box;

/// log2 of the bits of a filter.
const SHIFT: u32 = 15;
const WORDS: usize = (1 << SHIFT) / u64::BITS as usize;

type Filter = Option<Box<[u64; WORDS]>>;

/// The filters of a vector, by the parity of the sequence number. There is none before the first walk.
#[derive(Default)]
pub(super) struct Filters {
    filters: Lock<[Filter; 2]>,
}

/// The two bits of a table: parts of a number that all bits of its number have changed.
fn bits(table: Pfn) -> [usize; 2] {
    let folded = u64::from(table.0).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (folded ^ folded >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    [mixed >> (u64::BITS - SHIFT), mixed >> (u64::BITS - 2 * SHIFT) & ((1 << SHIFT) - 1)]
        .map(|bit| bit as usize)
}

impl Filters {
    /// Empty the filter of `seq`, before the first table is put there.
    pub fn reset(&self, seq: u64) {
        let filter = &mut self.filters.lock()[seq as usize % 2];
        match filter {
            Some(filter) => filter.fill(0),
            None => *filter = Some(Box::new([0; WORDS])),
        }
    }

    /// Is the table in the filter of `seq`? Where there is none, all are.
    pub fn has(&self, seq: u64, table: Pfn) -> bool {
        self.filters.lock()[seq as usize % 2]
            .as_ref()
            .is_none_or(|filter| bits(table).iter().all(|bit| filter[bit / 64] >> (bit % 64) & 1 == 1))
    }

    /// Put a table into the filter of `seq`, if there is one.
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
    fn mistakes_are_as_many_as_the_size_of_the_filter_allows() {
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

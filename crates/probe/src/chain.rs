//! Chains of places in memory, each of which holds the next.

use crate::LINE;
use crate::region::Region;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A chain that comes back to its start. Its loads depend on each other, and nothing else takes time: a check of each
/// place would hide some of what a load takes.
pub(crate) struct Chain<'a> {
    region: &'a Region,
    at: usize,
}

/// The word at a place of a region.
///
/// # Safety
/// The place is a multiple of a cache line, in the region.
unsafe fn word(region: &Region, place: usize) -> &AtomicUsize {
    // SAFETY: the region's memory is mapped as long as it lives and begins at a multiple of a page; what shares it
    // accesses it by atomics.
    unsafe { AtomicUsize::from_ptr(region.start().add(place).cast()) }
}

impl<'a> Chain<'a> {
    /// Link places, which are multiples of a cache line, in this order.
    pub fn link(region: &'a Region, places: impl Iterator<Item = usize> + Clone) -> Chain<'a> {
        let start = places.clone().next().expect("a chain has places");
        let fits = |place: usize| place.is_multiple_of(LINE) && place < region.bytes();
        for (place, next) in places.clone().zip(places.skip(1).chain([start])) {
            assert!(fits(place) && fits(next), "{place} and {next} must be lines of the region");
            // SAFETY: the place has just been checked.
            unsafe { word(region, place) }.store(next, Relaxed);
        }
        Chain { region, at: start }
    }

    /// Go on by this many places.
    pub fn follow(&mut self, steps: usize) {
        let mut at = self.at;
        for _ in 0..steps {
            // SAFETY: `at` is a place of the chain, and `link` has checked them all. Nothing stores to a region's words
            // while a chain borrows it.
            at = unsafe { word(self.region, at) }.load(Relaxed);
        }
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Pages;

    #[test]
    fn chain_comes_by_all_places_and_back() {
        let region = Region::new(16 * LINE, Pages::Small).unwrap();
        let mut chain = Chain::link(&region, [3, 0, 7, 5].into_iter().map(|line| line * LINE));
        let seen = [1, 1, 1, 1].map(|steps| {
            chain.follow(steps);
            chain.at / LINE
        });
        assert_eq!(seen, [0, 7, 5, 3]);
        chain.follow(6);
        assert_eq!(chain.at, 7 * LINE);
    }
}

//! Sampled addresses: counts the uses of pages; as many of the hottest as the fast tier holds belong there.
//!
//! The machine samples one of every `tier.sample_period` reads of memory. Each page has a count of its samples. A
//! histogram has the number of pages with a count of 1, of 2 to 3, of 4 to 7 and so on. After every
//! `tier.adapt_samples` samples the threshold becomes the lowest class such that all pages of this and higher classes
//! fit into the fast tier. After every `tier.cool_samples` all counts are halved, so that old uses weigh less. A page
//! that reaches the threshold is promoted; a page above it is not demoted.
//!
//! Two pages whose names map to one place in the table of counts compete for it: the hotter one has it, and cools down
//! like any other.
//!
//! Source: MEMTIS (Lee et al., SOSP 2023): histogram, threshold, cooling; its defaults (its kernel's sysfs: a sample
//! of 199 reads, adaptation after 100,000 samples, cooling after 2,000,000, promotion every 500 ms). Not here: its
//! split of huge pages.

use super::balance::{ALL, ReadShare};
use super::table::Table;
use super::{HotAccess, HotPolicy, PageName, PromoteVerdict};
use crate::knobs::{Knob, Knobs};
use crate::primitive::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Classes of the histogram.
const CLASSES: usize = 16;
/// The lowest threshold: one sample is no evidence.
const LEAST: u32 = 1;

/// State of the policy of sampled addresses.
pub struct Sampled {
    counts: Table,
    /// Pages by class of their count.
    histogram: [AtomicU64; CLASSES],
    threshold: AtomicU32,
    samples: AtomicU64,
    /// Sum of all counts.
    weight: AtomicU64,
    adapted: AtomicU64,
    cooled: AtomicU64,
}

/// Class of a nonzero count.
fn class(count: u32) -> u32 {
    count.ilog2().min(CLASSES as u32 - 1)
}

/// The lowest class such that all pages of this and higher classes fit into `fast`.
fn threshold(histogram: [u64; CLASSES], fast: u64) -> u32 {
    let mut room = fast;
    let mut lowest = CLASSES as u32;
    for (class, pages) in histogram.into_iter().enumerate().rev() {
        let Some(rest) = room.checked_sub(pages) else { break };
        (room, lowest) = (rest, class as u32);
    }
    lowest.max(LEAST)
}

impl Sampled {
    pub(super) fn new(frames: u64) -> Sampled {
        Sampled {
            counts: Table::new(frames),
            histogram: core::array::from_fn(|_| AtomicU64::new(0)),
            threshold: AtomicU32::new(LEAST),
            samples: AtomicU64::new(0),
            weight: AtomicU64::new(0),
            adapted: AtomicU64::new(0),
            cooled: AtomicU64::new(0),
        }
    }

    /// Count a sample of a page. Returns its count; 0: another page has its place.
    fn count(&self, name: PageName) -> u32 {
        self.samples.fetch_add(1, Relaxed);
        let place = self.counts.place(name);
        let (own, any) = (place.own(), place.any());
        if own.is_none() && any > 1 {
            return 0;
        }
        let count = own.unwrap_or(0).saturating_add(1);
        if any > 0 {
            self.histogram[class(any) as usize].fetch_sub(1, Relaxed);
        }
        self.histogram[class(count) as usize].fetch_add(1, Relaxed);
        place.set(count);
        self.weight.fetch_add(1, Relaxed);
        count
    }

    fn cool(&self) {
        let (mut histogram, mut weight) = ([0; CLASSES], 0);
        self.counts.for_each(|count| {
            let half = count / 2;
            weight += u64::from(half);
            if half > 0 {
                histogram[class(half) as usize] += 1;
            }
            half
        });
        self.weight.store(weight, Relaxed);
        self.histogram.iter().zip(histogram).for_each(|(cell, pages)| cell.store(pages, Relaxed));
    }

    fn is_hot(&self, count: u32) -> bool {
        count > 0 && class(count) >= self.threshold.load(Relaxed)
    }
}

impl HotPolicy for Sampled {
    fn used(&self, used: &HotAccess) -> PromoteVerdict {
        let hot = used.name.is_some_and(|name| self.is_hot(self.count(name)));
        PromoteVerdict { promote: hot, candidate: hot }
    }

    fn keeps(&self, name: PageName) -> bool {
        self.counts.place(name).own().is_some_and(|count| self.is_hot(count))
    }

    fn share(&self, name: PageName) -> ReadShare {
        let count = u64::from(self.counts.place(name).own().unwrap_or(0));
        ALL * count / self.weight.load(Relaxed).max(count).max(1)
    }

    fn round(&self, fast: u64, knobs: &Knobs) {
        let samples = self.samples.load(Relaxed);
        if samples - self.cooled.load(Relaxed) >= knobs.get(Knob::TierCoolSamples) {
            self.cooled.store(samples, Relaxed);
            self.cool();
        }
        if samples - self.adapted.load(Relaxed) >= knobs.get(Knob::TierAdaptSamples) {
            self.adapted.store(samples, Relaxed);
            let histogram = core::array::from_fn(|class| self.histogram[class].load(Relaxed));
            self.threshold.store(threshold(histogram, fast), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(page: u64) -> PageName {
        PageName(page << 32 | page)
    }

    #[test]
    fn threshold_admits_as_many_pages_as_fit() {
        let mut histogram = [0; CLASSES];
        (histogram[0], histogram[2], histogram[5], histogram[9]) = (1000, 40, 30, 20);
        let of = |fast| threshold(histogram, fast);
        assert_eq!([of(19), of(20), of(49), of(50), of(89), of(90), of(5000)], [10, 6, 6, 3, 3, 1, 1]);
    }

    #[test]
    fn hottest_pages_that_fit_are_hot_and_cool_down() {
        let sampled = Sampled::new(256);
        let knobs = Knobs::default();
        knobs.set(Knob::TierAdaptSamples, 100).unwrap();
        knobs.set(Knob::TierCoolSamples, 10_000).unwrap();
        // 10 pages with 16 samples each, and 40 with 4.
        for page in 0..50 {
            for _ in 0..if page < 10 { 16 } else { 4 } {
                sampled.count(name(page));
            }
        }
        sampled.round(20, &knobs);
        assert!((0..10).all(|page| sampled.keeps(name(page))));
        assert!((10..50).all(|page| !sampled.keeps(name(page))));
        sampled.cool();
        let histogram: std_alloc::vec::Vec<u64> =
            sampled.histogram.iter().map(|cell| cell.load(Relaxed)).collect();
        assert_eq!(histogram[..5], [0, 40, 0, 10, 0]);
    }

    #[test]
    fn hotter_of_two_pages_gets_their_shared_place() {
        let sampled = Sampled::new(2);
        let (one, other) = (PageName(1 << 32), PageName(2 << 32));
        assert_eq!([sampled.count(one), sampled.count(one), sampled.count(other)], [1, 2, 0]);
        sampled.cool();
        assert_eq!([sampled.count(other), sampled.count(one)], [1, 1]);
        assert_eq!(sampled.histogram[0].load(Relaxed), 1);
    }
}

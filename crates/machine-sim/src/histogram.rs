//! A histogram of durations: 16 buckets for each doubling, so a quantile is at most 6 % too high.

const SUB_BITS: u32 = 4;
const SUBS: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUBS;

/// Durations in nanoseconds.
pub(crate) struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS].into(), total: 0, max: 0 }
    }
}

impl Histogram {
    /// Count a duration.
    pub(crate) fn record(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    /// How many durations were counted.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The longest.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// The shortest duration that at least `percent` percent do not exceed, as the upper end of its bucket; 0 if nothing
    /// was counted.
    pub(crate) fn quantile(&self, percent: u64) -> u64 {
        let wanted = (self.total * percent).div_ceil(100);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return upper_end(bucket).min(self.max);
            }
        }
        0
    }
}

/// Values below 32 have a bucket each; larger ones are sorted by their five highest bits.
fn bucket(nanos: u64) -> usize {
    let shift = (64 - nanos.leading_zeros()).saturating_sub(SUB_BITS + 1);
    shift as usize * SUBS + (nanos >> shift) as usize
}

fn upper_end(bucket: usize) -> u64 {
    let shift = (bucket / SUBS).saturating_sub(1) as u32;
    let top = (bucket - shift as usize * SUBS) as u64;
    (((top as u128 + 1) << shift) - 1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_at_most_6_percent_wide() {
        let mut last = 0;
        for nanos in (0..200).chain((6..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1])) {
            let end = upper_end(bucket(nanos));
            assert!(nanos <= end && end - nanos <= nanos / 16, "{nanos} in a bucket up to {end}");
            assert!(bucket(nanos) >= last || nanos < 200);
            last = bucket(nanos);
        }
        assert!(bucket(u64::MAX) < BUCKETS && upper_end(bucket(u64::MAX)) == u64::MAX);
    }

    #[test]
    fn quantiles_are_upper_ends_of_buckets() {
        let mut all = Histogram::default();
        assert_eq!(all.quantile(50), 0);
        (1..=20).for_each(|nanos| all.record(nanos));
        assert_eq!((all.quantile(50), all.quantile(99), all.max(), all.total()), (10, 20, 20, 20));
    }
}

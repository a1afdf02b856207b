//! The distributions by which benchmarks of stores and disks draw keys, in integers, so that every machine
//! draws the same keys.

use crate::rng::Rng;
use crate::zipf::Zipf;

/// A prime larger than the number of pages in any area: multiplying by it scatters ranks over the area.
const SCATTER: u64 = 1_099_511_627_791;
/// Length of all keys together, in millionths of the mean of the exponential distribution: 95 % of all draws
/// are among the first 85.71 % of the keys (YCSB's `exponential.percentile` and `exponential.frac`), and ln
/// 20 / 0.8571 is 3.495.
const EXPONENTIAL_LENGTH: u128 = 3_495_021;

/// How keys are distributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// One after the other, starting over after the last.
    Sequential,
    /// All keys equally likely.
    Uniform,
    /// Around the middle key, with a standard deviation of a sixth of their number, like memtier_benchmark's
    /// `G`.
    Gaussian,
    /// The first keys are the likeliest, as in YCSB's `exponential`.
    Exponential,
    /// The `i`-th with weight `1 / i`.
    Zipf,
}

impl Distribution {
    /// All distributions.
    pub const ALL: [Distribution; 5] = [
        Distribution::Sequential,
        Distribution::Uniform,
        Distribution::Gaussian,
        Distribution::Exponential,
        Distribution::Zipf,
    ];

    /// The word for it in a program's name.
    pub const fn name(self) -> &'static str {
        match self {
            Distribution::Sequential => "sequential",
            Distribution::Uniform => "uniform",
            Distribution::Gaussian => "gaussian",
            Distribution::Exponential => "exponential",
            Distribution::Zipf => "zipf",
        }
    }

    /// The distribution with that name.
    pub fn from_name(name: &str) -> Option<Distribution> {
        Distribution::ALL.into_iter().find(|distribution| distribution.name() == name)
    }
}

/// One task's draws from the keys `0..n`.
#[derive(Clone, Debug)]
pub struct Keys {
    distribution: Distribution,
    n: u64,
    zipf: Zipf,
    next: u64,
}

impl Keys {
    /// From `n` keys, at least 1 and at most 2^40. A sequence begins at key `first`.
    pub fn new(distribution: Distribution, n: u64, first: u64) -> Keys {
        Keys { distribution, n, zipf: Zipf::new(n), next: first % n }
    }

    /// The next key; the likeliest keys are neighbours.
    pub fn next(&mut self, rng: &mut Rng) -> u64 {
        match self.distribution {
            Distribution::Sequential => {
                let key = self.next;
                self.next = (key + 1) % self.n;
                key
            }
            Distribution::Uniform => rng.below(self.n),
            Distribution::Gaussian => gaussian(rng, self.n),
            Distribution::Exponential => exponential(rng, self.n),
            Distribution::Zipf => self.zipf.next(rng),
        }
    }

    /// The next key; the likeliest keys are scattered, as if keys were hashed. A sequence stays a sequence.
    pub fn next_scattered(&mut self, rng: &mut Rng) -> u64 {
        let key = self.next(rng);
        if self.distribution == Distribution::Sequential { key } else { scattered(key, self.n) }
    }
}

/// The position of a key among `n`, far from its neighbours'. No two keys have the same position.
pub fn scattered(key: u64, n: u64) -> u64 {
    (u128::from(key) * u128::from(SCATTER) % u128::from(n)) as u64
}

/// The sum of twelve uniform numbers, which has a standard deviation of one. Sums more than three deviations
/// from the mean are drawn again.
fn gaussian(rng: &mut Rng, n: u64) -> u64 {
    loop {
        let sum: u128 =
            (0..6).map(|_| rng.bits()).map(|bits| u128::from(bits >> 32) + u128::from(bits as u32)).sum();
        let position = (sum * u128::from(n) / (6 << 32)).checked_sub(u128::from(n / 2));
        if let Some(position) = position.filter(|&position| position < u128::from(n)) {
            return position as u64;
        }
    }
}

/// Von Neumann's comparison method: draw uniform numbers while each is smaller than the last. If that run has
/// an odd length, its first number is the fraction; otherwise the whole part grows by one. Keys beyond the
/// last are drawn again.
fn exponential(rng: &mut Rng, n: u64) -> u64 {
    let mut uniform = move || (rng.bits() >> 32) as u32;
    let mut whole = 0u64;
    loop {
        let first = uniform();
        let (mut last, mut length) = (first, 1u32);
        loop {
            let next = uniform();
            if next >= last {
                break;
            }
            (last, length) = (next, length + 1);
        }
        if length % 2 == 0 {
            whole += 1;
            continue;
        }
        let drawn = u128::from(whole << 32 | u64::from(first)) * 1_000_000;
        let key = drawn * u128::from(n) / (EXPONENTIAL_LENGTH << 32);
        if key < u128::from(n) {
            return key as u64;
        }
        whole = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u64 = 1000;
    const DRAWS: u64 = 200_000;

    /// How often each key was drawn.
    fn counts(distribution: Distribution) -> [u64; N as usize] {
        let (mut keys, mut rng) = (Keys::new(distribution, N, 0), Rng::new(5));
        let mut seen = [0; N as usize];
        (0..DRAWS).for_each(|_| seen[keys.next(&mut rng) as usize] += 1);
        seen
    }

    /// Mean, standard deviation, and share of the likeliest tenth of the keys, in thousandths.
    fn shape(distribution: Distribution) -> (i64, i64, u64) {
        let mut seen = counts(distribution);
        let weighted = |of: &dyn Fn(f64) -> f64| {
            let sum: f64 = seen.iter().enumerate().map(|(key, &count)| of(key as f64) * count as f64).sum();
            sum / DRAWS as f64
        };
        let mean = weighted(&|key| key);
        let variance = weighted(&|key| (key - mean) * (key - mean));
        let deviation = (1..).find(|&d| f64::from(d) * f64::from(d) >= variance).unwrap();
        seen.sort_unstable();
        let hottest: u64 = seen.iter().rev().take(N as usize / 10).sum();
        (mean as i64, i64::from(deviation), hottest * 1000 / DRAWS)
    }

    #[test]
    fn distributions_have_the_expected_mean_deviation_and_hot_keys() {
        for (distribution, mean, deviation, hottest) in [
            // Every key is drawn 200 times, so 100 keys have a tenth of all draws.
            (Distribution::Sequential, 499, 289, 100),
            // The most frequent of keys that are each drawn 200 times, plus or minus 14.
            (Distribution::Uniform, 499, 289, 112),
            // A sixth of the keys, less the truncated tails; 23.6 % of a normal distribution are within 0.3
            // deviations of the mean.
            (Distribution::Gaussian, 499, 165, 238),
            // With a mean of 1/3.495 of the keys, truncated at the last: 3.0 % are beyond it, and 29.5 % in
            // the first tenth.
            (Distribution::Exponential, 254, 223, 304),
            // The harmonic number of 100 is 5.187, that of 1000 is 7.485.
            (Distribution::Zipf, 133, 222, 693),
        ] {
            let (is_mean, is_deviation, is_hottest) = shape(distribution);
            assert!((is_mean - mean).abs() <= 3, "{distribution:?}: mean {is_mean}");
            assert!((is_deviation - deviation).abs() <= 4, "{distribution:?}: deviation {is_deviation}");
            assert!(is_hottest.abs_diff(hottest) <= 6, "{distribution:?}: hottest {is_hottest}");
        }
    }

    #[test]
    fn sequence_begins_at_the_given_key_and_wraps() {
        let (mut keys, mut rng) = (Keys::new(Distribution::Sequential, 3, 4), Rng::new(1));
        assert_eq!([(); 4].map(|()| keys.next_scattered(&mut rng)), [1, 2, 0, 1]);
    }

    #[test]
    fn every_distribution_draws_the_only_key() {
        for distribution in Distribution::ALL {
            assert_eq!(Keys::new(distribution, 1, 0).next(&mut Rng::new(1)), 0);
            assert_eq!(Distribution::from_name(distribution.name()), Some(distribution));
        }
    }

    #[test]
    fn scattered_keys_are_a_permutation_without_neighbours() {
        let mut positions: alloc::vec::Vec<u64> = (0..N).map(|key| scattered(key, N)).collect();
        assert!(positions.windows(2).all(|two| two[0].abs_diff(two[1]) > 10), "{positions:?}");
        positions.sort_unstable();
        assert!(positions.into_iter().eq(0..N));
    }
}

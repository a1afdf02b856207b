//! Which key comes next: the distributions that benchmarks of stores and disks draw keys by, in integers, so that every
//! machine draws the same ones.

use crate::rng::Rng;
use crate::zipf::Zipf;

/// A prime that no area has as many pages of: multiplying by it scatters ranks over the area.
const SCATTER: u64 = 1_099_511_627_791;
/// Millionths of the mean of the exponential law that all keys together are long: 95 % of all draws are among the first
/// 85.71 % of the keys (YCSB's `exponential.percentile` and `exponential.frac`), and ln 20 / 0.8571 is 3.495.
const EXPONENTIAL_LENGTH: u128 = 3_495_021;

/// A distribution of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Law {
    /// One after the other, round and round.
    Sequential,
    /// Each as likely as any other.
    Uniform,
    /// Around the middle one, with a standard deviation of a sixth of their number, as memtier_benchmark's `G` has it.
    Gaussian,
    /// The first are the likeliest, as YCSB's `exponential` has it.
    Exponential,
    /// The `i`-th with weight `1 / i`.
    Zipf,
}

impl Law {
    /// All of them.
    pub const ALL: [Law; 5] = [Law::Sequential, Law::Uniform, Law::Gaussian, Law::Exponential, Law::Zipf];

    /// Its name in a program's name.
    pub const fn name(self) -> &'static str {
        match self {
            Law::Sequential => "sequential",
            Law::Uniform => "uniform",
            Law::Gaussian => "gaussian",
            Law::Exponential => "exponential",
            Law::Zipf => "zipf",
        }
    }

    /// The law of that name.
    pub fn from_name(name: &str) -> Option<Law> {
        Law::ALL.into_iter().find(|law| law.name() == name)
    }
}

/// Draws of one task from the keys `0..n`.
#[derive(Clone, Debug)]
pub struct Keys {
    law: Law,
    n: u64,
    zipf: Zipf,
    at: u64,
}

impl Keys {
    /// From `n` keys, at least 1 and at most 2^40. A sequence begins at key `at`.
    pub fn new(law: Law, n: u64, at: u64) -> Keys {
        Keys { law, n, zipf: Zipf::new(n), at: at % n }
    }

    /// The next key; the likeliest are neighbours.
    pub fn next(&mut self, rng: &mut Rng) -> u64 {
        match self.law {
            Law::Sequential => {
                let key = self.at;
                self.at = (key + 1) % self.n;
                key
            }
            Law::Uniform => rng.below(self.n),
            Law::Gaussian => gaussian(rng, self.n),
            Law::Exponential => exponential(rng, self.n),
            Law::Zipf => self.zipf.next(rng),
        }
    }

    /// The next key; the likeliest lie anywhere, as where keys are hashed. A sequence stays one.
    pub fn next_scattered(&mut self, rng: &mut Rng) -> u64 {
        let key = self.next(rng);
        if self.law == Law::Sequential { key } else { scattered(key, self.n) }
    }
}

/// The place of a key among `n`, far from those of its neighbours; no two keys have the same.
pub fn scattered(key: u64, n: u64) -> u64 {
    (u128::from(key) * u128::from(SCATTER) % u128::from(n)) as u64
}

/// The sum of twelve uniform numbers, which has a standard deviation of one; what lies three of them away is drawn
/// again.
fn gaussian(rng: &mut Rng, n: u64) -> u64 {
    loop {
        let sum: u128 =
            (0..6).map(|_| rng.bits()).map(|bits| u128::from(bits >> 32) + u128::from(bits as u32)).sum();
        let place = (sum * u128::from(n) / (6 << 32)).checked_sub(u128::from(n / 2));
        if let Some(place) = place.filter(|&place| place < u128::from(n)) {
            return place as u64;
        }
    }
}

/// By von Neumann's comparisons: a uniform number is the fraction if the run of ever smaller ones that it begins is of
/// odd length; else the whole part grows by one. What lies beyond the last key is drawn again.
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

    /// How often each key came.
    fn counts(law: Law) -> [u64; N as usize] {
        let (mut keys, mut rng) = (Keys::new(law, N, 0), Rng::new(5));
        let mut seen = [0; N as usize];
        (0..DRAWS).for_each(|_| seen[keys.next(&mut rng) as usize] += 1);
        seen
    }

    /// Mean, standard deviation, and share of the likeliest tenth of the keys, in thousandths.
    fn shape(law: Law) -> (i64, i64, u64) {
        let mut seen = counts(law);
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
    fn laws_have_the_means_deviations_and_hot_keys_that_they_should() {
        for (law, mean, deviation, hottest) in [
            // Every key comes 200 times; 100 keys have a tenth of all draws.
            (Law::Sequential, 499, 289, 100),
            // The luckiest of keys that all come 200 times, give or take 14.
            (Law::Uniform, 499, 289, 112),
            // A sixth of the keys, less what is cut off; within 0.3 deviations of the middle lie 23.6 % of a normal
            // law.
            (Law::Gaussian, 499, 165, 238),
            // With a mean of 1/3.495 of the keys, cut off at the last: 3.0 % lie beyond, and 29.5 % in the first tenth.
            (Law::Exponential, 254, 223, 304),
            // The harmonic number of 100 is 5.187, that of 1000 is 7.485.
            (Law::Zipf, 133, 222, 693),
        ] {
            let (is_mean, is_deviation, is_hottest) = shape(law);
            assert!((is_mean - mean).abs() <= 3, "{law:?}: mean {is_mean}");
            assert!((is_deviation - deviation).abs() <= 4, "{law:?}: deviation {is_deviation}");
            assert!(is_hottest.abs_diff(hottest) <= 6, "{law:?}: hottest {is_hottest}");
        }
    }

    #[test]
    fn a_sequence_begins_where_it_is_told_to_and_goes_round() {
        let (mut keys, mut rng) = (Keys::new(Law::Sequential, 3, 4), Rng::new(1));
        assert_eq!([(); 4].map(|()| keys.next_scattered(&mut rng)), [1, 2, 0, 1]);
    }

    #[test]
    fn one_key_is_drawn_by_every_law() {
        for law in Law::ALL {
            assert_eq!(Keys::new(law, 1, 0).next(&mut Rng::new(1)), 0);
            assert_eq!(Law::from_name(law.name()), Some(law));
        }
    }

    #[test]
    fn scattered_keys_are_all_keys_and_no_neighbours() {
        let mut places: alloc::vec::Vec<u64> = (0..N).map(|key| scattered(key, N)).collect();
        assert!(places.windows(2).all(|two| two[0].abs_diff(two[1]) > 10), "{places:?}");
        places.sort_unstable();
        assert!(places.into_iter().eq(0..N));
    }
}

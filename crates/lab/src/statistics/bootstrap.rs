//! An interval of a ratio of means that assumes no shape of the values' distribution: the bootstrap with correction of
//! bias and acceleration (BCa; Efron, "Better bootstrap confidence intervals", JASA 82, 1987).
//!
//! Student's interval takes means for normally distributed. With few runs of which one is far off they are not; then
//! the two intervals differ, and a reader should know.

use super::{CONFIDENCE, Interval, bisect, mean};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Samples drawn with replacement: 100 are beyond either end of the interval.
const SAMPLES: usize = 4000;
/// Fewer pairs have too few different samples.
const FEWEST: usize = 8;
/// Draws are the same each time, so that equal runs have equal intervals.
const SEED: u64 = 1;

/// The interval of mean value / mean base, from pairs; `None` for fewer than eight, or if the base of a sample is 0.
pub fn ratio(base: &[f64], value: &[f64]) -> Option<Interval> {
    if base.len() < FEWEST || base.iter().sum::<f64>() <= 0.0 {
        return None;
    }
    let all = mean(value) / mean(base);
    let mut drawn = samples(base, value)?;
    drawn.sort_by(f64::total_cmp);
    if drawn.first() == drawn.last() {
        return Some([all, all]);
    }
    let below = drawn.partition_point(|&sample| sample < all);
    let not_above = drawn.partition_point(|&sample| sample <= all);
    let bias = quantile((below + not_above) as f64 / (2 * SAMPLES) as f64);
    let acceleration = acceleration(base, value)?;
    let end = |probability: f64| {
        let z = bias + quantile(probability);
        percentile(&drawn, cdf(bias + z / (1.0 - acceleration * z)))
    };
    Some([end(0.5 - CONFIDENCE / 2.0), end(0.5 + CONFIDENCE / 2.0)])
}

/// The ratios of samples of the pairs.
fn samples(base: &[f64], value: &[f64]) -> Option<Vec<f64>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let pairs = base.len() as u64;
    let sample = |_| {
        let (mut below, mut above) = (0.0, 0.0);
        for _ in 0..pairs {
            // The upper half of a product is even enough for so few pairs.
            let at = ((u128::from(random.next_u64()) * u128::from(pairs)) >> 64) as usize;
            below += base[at];
            above += value[at];
        }
        (below > 0.0).then_some(above / below)
    };
    (0..SAMPLES).map(sample).collect()
}

/// How fast the ratio's spread changes with the ratio, from ratios without one pair each.
fn acceleration(base: &[f64], value: &[f64]) -> Option<f64> {
    let (below, above) = (base.iter().sum::<f64>(), value.iter().sum::<f64>());
    let without = |(b, v): (&f64, &f64)| (below - b > 0.0).then(|| (above - v) / (below - b));
    let without: Vec<f64> = base.iter().zip(value).map(without).collect::<Option<_>>()?;
    let middle = mean(&without);
    let power = |exponent| without.iter().map(|ratio| (middle - ratio).powi(exponent)).sum::<f64>();
    Some(power(3) / (6.0 * power(2).powf(1.5))).filter(|acceleration| acceleration.is_finite())
}

/// The value below which this share of sorted values is, between two of them in proportion.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// P(Z <= z) of the normal distribution.
fn cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// The z with P(Z <= z) = `p`; as far out as doubles tell for 0 and 1.
fn quantile(p: f64) -> f64 {
    bisect([-40.0, 40.0], |z| cdf(z) < p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Change;

    /// Pairs, and the ends that scipy 1.17.1 gives with 400,000 samples
    /// (`scipy.stats.bootstrap(..., paired=True, method="BCa")`).
    type Case = (&'static [f64], &'static [f64], Interval);
    const CASES: [Case; 3] = [
        (
            &[10.0, 11.0, 9.0, 30.0, 12.0, 10.0, 55.0, 9.5, 10.5, 13.0],
            &[9.0, 10.0, 9.2, 21.0, 11.0, 9.9, 33.0, 9.1, 10.1, 12.0],
            [0.657_785_155_3, 0.933_936_651_6],
        ),
        (
            &[100.0, 101.0, 99.5, 102.0, 98.0, 100.5, 101.5, 99.0, 100.2, 100.8, 97.5, 103.0],
            &[98.0, 99.5, 97.0, 101.0, 96.5, 99.1, 99.2, 97.7, 98.1, 99.9, 95.5, 100.9],
            [0.980_158_399_3, 0.985_778_071_8],
        ),
        (
            &[5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 50.0],
            &[5.5, 5.2, 5.1, 5.3, 5.4, 5.6, 5.2, 20.0],
            [0.457_727_272_7, 1.075],
        ),
    ];

    #[test]
    fn ends_are_those_of_scipy_but_for_chance() {
        for (base, value, expected) in CASES {
            let got = ratio(base, value).unwrap();
            let width = expected[1] - expected[0];
            for (got, expected) in got.into_iter().zip(expected) {
                assert!((got - expected).abs() < 0.05 * width, "{got} instead of {expected} of {width}");
            }
        }
    }

    #[test]
    fn normal_distribution_has_the_usual_quantiles() {
        for (p, z) in [(0.5, 0.0), (0.975, 1.959_963_984_540_054), (0.025, -1.959_963_984_540_054)] {
            assert!((quantile(p) - z).abs() < 1e-12 && (cdf(z) - p).abs() < 1e-12, "{p}");
        }
    }

    #[test]
    fn one_run_far_off_separates_it_from_students() {
        let (base, value, _) = CASES[2];
        let students = Change::of(base, value).ratio_interval;
        assert_eq!(students, None, "the base cannot be told from 0");
        assert!(ratio(base, value).is_some());
    }

    #[test]
    fn few_pairs_have_none_and_equal_ones_one_of_width_zero() {
        assert_eq!(ratio(&[1.0; 7], &[2.0; 7]), None);
        assert_eq!(ratio(&[4.0; 8], &[2.0; 8]), Some([0.5, 0.5]));
        assert_eq!(ratio(&[0.0; 8], &[2.0; 8]), None);
        let mostly_zero = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        assert_eq!(ratio(&mostly_zero, &[1.0; 8]), None);
    }
}

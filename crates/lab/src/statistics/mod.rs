//! Means and confidence intervals over a few runs.
//!
//! Runs of two profiles are *paired*: run i of each has the same seed, so it sees the same random choices, and what
//! the two have in common cancels. Three intervals follow, all at [`CONFIDENCE`]:
//!
//! - of a value: mean ± t · sd / √n, with Student's t at n − 1 degrees of freedom;
//! - of a difference: the same, of the n paired differences (the paired t interval);
//! - of a ratio, for a change in per cent: Fieller's. The interval holds every ratio ρ that a paired t test of
//!   `value − ρ · base` would not reject. Unlike the delta method it needs no large n, and it contains ρ = 1 exactly if
//!   the interval of the difference contains 0, so the two can never contradict each other. If the base itself cannot
//!   be distinguished from zero, the set is unbounded and there is no interval.
//!
//! Beside Fieller's, [`bootstrap`] has one that takes no distribution for normal.
//!
//! One run has no interval. Runs that agree to the last digit have one of width zero: the simulator is deterministic,
//! so for these seeds that is exact.

pub mod bootstrap;
pub mod median;
pub mod student;

/// Probability that an interval holds the true value.
pub const CONFIDENCE: f64 = 0.95;

/// An interval, low end first.
pub type Interval = [f64; 2];

/// Arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    // The mean of equal values must be exact, however many there are: sum the distances from the first.
    let Some(&first) = values.first() else { return 0.0 };
    first + values.iter().map(|value| value - first).sum::<f64>() / values.len() as f64
}

/// Where a condition that holds below some number of the bracket ends: bisection, which cannot diverge.
fn bisect([mut low, mut high]: Interval, is_below: impl Fn(f64) -> bool) -> f64 {
    // Halving a bracket 200 times exhausts the digits of a double from any start.
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if is_below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// Sample standard deviation (n − 1); `None` for fewer than two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    (values.len() >= 2).then(|| (centred_products(values, values) / (values.len() - 1) as f64).sqrt())
}

/// Sum over i of (a_i − mean a)(b_i − mean b).
fn centred_products(a: &[f64], b: &[f64]) -> f64 {
    let (mean_a, mean_b) = (mean(a), mean(b));
    a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum()
}

/// Two-sided t value for `n` observations.
fn t_value(n: usize) -> f64 {
    student::quantile(0.5 + CONFIDENCE / 2.0, (n - 1) as f64)
}

/// The interval of the mean; `None` for fewer than two values.
pub fn interval(values: &[f64]) -> Option<Interval> {
    let sd = standard_deviation(values)?;
    let centre = mean(values);
    let half = if sd == 0.0 { 0.0 } else { t_value(values.len()) * sd / (values.len() as f64).sqrt() };
    Some([centre - half, centre + half])
}

/// The change from `base` to `value`, estimated from pairs of observations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Mean of value − base.
    pub difference: f64,
    /// Its interval.
    pub difference_interval: Option<Interval>,
    /// Mean value / mean base; `None` if the base is zero and the value is not.
    pub ratio: Option<f64>,
    /// Its interval (Fieller).
    pub ratio_interval: Option<Interval>,
}

impl Change {
    /// Compare pairs: `base[i]` and `value[i]` have the same seed.
    pub fn of(base: &[f64], value: &[f64]) -> Change {
        assert_eq!(base.len(), value.len(), "paired observations come in pairs");
        let differences: Vec<f64> = base.iter().zip(value).map(|(base, value)| value - base).collect();
        Change {
            difference: mean(&differences),
            difference_interval: interval(&differences),
            ratio: ratio(mean(base), mean(value)),
            ratio_interval: fieller(base, value),
        }
    }

    /// Whether the interval of the difference excludes zero.
    pub fn is_significant(&self) -> bool {
        self.difference_interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
    }
}

/// A ratio for a change in per cent; 0 that stays 0 has a ratio of 1.
fn ratio(base: f64, value: f64) -> Option<f64> {
    if base > 0.0 { Some(value / base) } else { (base == 0.0 && value == 0.0).then_some(1.0) }
}

/// Fieller's interval of the ratio of two means, from pairs.
fn fieller(base: &[f64], value: &[f64]) -> Option<Interval> {
    let n = base.len();
    if n < 2 {
        return None;
    }
    let (x, y) = (mean(base), mean(value));
    if base.iter().chain(value).all(|&observation| observation == 0.0) {
        return Some([1.0, 1.0]);
    }
    if x <= 0.0 {
        return None;
    }
    let t = t_value(n);
    let of_means = (n * (n - 1)) as f64;
    let (sxx, sxy) = (centred_products(base, base) / of_means, centred_products(base, value) / of_means);
    let syy = centred_products(value, value) / of_means;
    let g = t * t * sxx / (x * x);
    if g >= 1.0 {
        return None;
    }
    let ratio = y / x;
    // The variance of the residuals value − ratio · base, computed from the residuals themselves: the textbook form
    // subtracts large equal terms.
    let residuals: Vec<f64> = base.iter().zip(value).map(|(b, v)| (v - y) - ratio * (b - x)).collect();
    let see = residuals.iter().map(|e| e * e).sum::<f64>() / of_means;
    let spread = (see - t * t * (sxx * syy - sxy * sxy) / (x * x)).max(0.0).sqrt() * t / x;
    let centre = ratio - t * t * sxy / (x * x);
    Some([(centre - spread) / (1.0 - g), (centre + spread) / (1.0 - g)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
    }

    #[test]
    fn mean_and_deviation_of_known_values() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert!(close(mean(&values), 5.0));
        assert!(close(standard_deviation(&values).unwrap(), (32.0f64 / 7.0).sqrt()));
        assert_eq!(standard_deviation(&[1.0]), None);
        assert_eq!(mean(&[]), 0.0);
    }

    #[test]
    fn interval_of_a_textbook_sample() {
        // n = 3, sd = 1, t = 4.3027: 2 ± 2.4841.
        let [low, high] = interval(&[1.0, 2.0, 3.0]).unwrap();
        assert!((low + 0.484_137_7).abs() < 1e-6 && (high - 4.484_137_7).abs() < 1e-6, "{low} {high}");
    }

    #[test]
    fn one_run_has_no_interval() {
        assert_eq!(interval(&[3.0]), None);
        let change = Change::of(&[10.0], &[8.0]);
        assert_eq!((change.difference, change.ratio), (-2.0, Some(0.8)));
        assert_eq!((change.difference_interval, change.ratio_interval), (None, None));
        assert!(!change.is_significant());
    }

    #[test]
    fn equal_runs_have_intervals_of_width_zero() {
        let third = 1.0 / 3.0;
        assert_eq!(interval(&[third; 7]), Some([third, third]));
        let change = Change::of(&[10.0; 3], &[9.0; 3]);
        assert_eq!(change.difference_interval, Some([-1.0, -1.0]));
        assert_eq!(change.ratio_interval, Some([0.9, 0.9]));
        assert!(change.is_significant());
        let same = Change::of(&[10.0, 11.0, 12.5], &[10.0, 11.0, 12.5]);
        assert_eq!(same.difference_interval, Some([0.0, 0.0]));
        let [low, high] = same.ratio_interval.unwrap();
        assert!(close(low, 1.0) && close(high, 1.0));
        assert!(!same.is_significant());
    }

    #[test]
    fn zero_base_has_a_ratio_only_if_the_value_is_zero() {
        let nothing = Change::of(&[0.0; 3], &[0.0; 3]);
        assert_eq!((nothing.ratio, nothing.ratio_interval), (Some(1.0), Some([1.0, 1.0])));
        let something = Change::of(&[0.0; 3], &[5.0; 3]);
        assert_eq!((something.ratio, something.ratio_interval), (None, None));
        assert_eq!(something.difference_interval, Some([5.0, 5.0]));
    }

    #[test]
    fn pairing_cancels_the_effect_of_seeds() {
        // The seeds differ tenfold more than the profiles.
        let (base, value) = ([1000.0, 1100.0, 1200.0], [990.0, 1089.0, 1190.0]);
        let change = Change::of(&base, &value);
        assert!(change.is_significant() && change.ratio_interval.unwrap()[1] < 1.0);
        let [low, _] = interval(&base).unwrap();
        assert!(low < mean(&value), "unpaired intervals overlap");
    }

    #[test]
    fn ratio_has_no_interval_if_the_base_may_be_zero() {
        let change = Change::of(&[0.0, 0.0, 9.0], &[1.0, 2.0, 3.0]);
        assert!(change.ratio.is_some());
        assert_eq!(change.ratio_interval, None);
    }

    #[test]
    fn ends_of_fiellers_interval_are_at_the_limit_of_the_t_test() {
        // At both ends the paired t test is exactly at its limit.
        let (base, value) = ([10.0, 12.0, 11.0, 13.0], [8.0, 9.5, 9.1, 10.0]);
        for end in Change::of(&base, &value).ratio_interval.unwrap() {
            let residuals: Vec<f64> = base.iter().zip(&value).map(|(b, v)| v - end * b).collect();
            let error = standard_deviation(&residuals).unwrap() / 2.0;
            assert!(close(mean(&residuals).abs() / error, t_value(4)));
        }
    }

    proptest! {
        #[test]
        fn intervals_of_difference_and_ratio_agree(pairs in prop::collection::vec((50.0..150.0f64, 50.0..150.0f64), 2..8)) {
            let (base, value): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let change = Change::of(&base, &value);
            if let (Some([dl, dh]), Some([rl, rh])) = (change.difference_interval, change.ratio_interval) {
                let ratio = change.ratio.unwrap();
                prop_assert!(rl <= ratio + 1e-9 && ratio <= rh + 1e-9);
                // Not at the very edge, where rounding decides.
                if dl.abs() > 1e-6 && dh.abs() > 1e-6 {
                    prop_assert_eq!(dl <= 0.0 && dh >= 0.0, rl <= 1.0 && rh >= 1.0);
                }
            }
        }

        #[test]
        fn intervals_hold_the_mean(values in prop::collection::vec(-1e6..1e6f64, 2..20)) {
            let [low, high] = interval(&values).unwrap();
            prop_assert!(low <= mean(&values) && mean(&values) <= high);
        }
    }
}

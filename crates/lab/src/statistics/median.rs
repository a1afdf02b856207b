//! Medians and their intervals, for measurements that something may disturb.
//!
//! The interval is between two of the values themselves, in their order: how many of them are below the true median is
//! drawn as heads of a coin are, whatever the values' distribution is. A few values that are far off change nothing.

use super::{CONFIDENCE, Interval};

/// The middle one, the lower of two; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    sorted.get((sorted.len().max(1) - 1) / 2).copied().unwrap_or(0.0)
}

/// The interval of the median; `None` for fewer than six values, which hold it too seldom.
pub fn interval(values: &[f64]) -> Option<Interval> {
    let sorted = sorted(values);
    let outside = outside(sorted.len());
    (outside > 0).then(|| [sorted[outside - 1], sorted[sorted.len() - outside]])
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The rank of the interval's ends among `count` values, from either side; 0: there is none.
fn outside(count: usize) -> usize {
    let (mut rank, mut below) = (0, 0.0);
    // The chance that exactly `rank` values are below the median.
    let mut exactly = 0.5f64.powi(count as i32);
    loop {
        below += exactly;
        if 2.0 * below > 1.0 - CONFIDENCE {
            return rank;
        }
        exactly *= (count - rank) as f64 / (rank + 1) as f64;
        rank += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_or_the_lower_of_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn ranks_are_those_of_the_sign_test() {
        // As tables of the sign test have them.
        let expected =
            [(5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (20, 6), (25, 8), (50, 18), (100, 40)];
        for (count, rank) in expected {
            assert_eq!(outside(count), rank, "{count}");
        }
    }

    #[test]
    fn values_far_off_change_neither() {
        let calm: Vec<f64> = (0..20).map(f64::from).collect();
        let mut disturbed = calm.clone();
        disturbed[18..].copy_from_slice(&[1e6, 1e9]);
        assert_eq!((median(&calm), interval(&calm)), (9.0, Some([5.0, 14.0])));
        assert_eq!((median(&disturbed), interval(&disturbed)), (9.0, Some([5.0, 14.0])));
        assert_eq!(interval(&calm[..5]), None);
    }
}

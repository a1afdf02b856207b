//! What points show: their middle, and a straight line through them.

/// The median of values, the upper of two; NaN of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The line `y = at_zero + slope · x` with the least squares.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Fit {
    pub at_zero: f64,
    pub slope: f64,
}

/// The line through points; `None` if they have fewer than two values of x.
pub(crate) fn line(points: &[(f64, f64)]) -> Option<Fit> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let products =
        |of: fn(f64, f64) -> f64| points.iter().map(|point| of(point.0 - x, point.1 - y)).sum::<f64>();
    let spread = products(|x, _| x * x);
    let slope = products(|x, y| x * y) / spread;
    (spread > 0.0).then_some(Fit { at_zero: y - slope * x, slope })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_through_points_of_a_line_is_that_line() {
        let points: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 8.0].map(|x| (x, 3.0 + 2.0 * x)).into();
        let fit = line(&points).unwrap();
        assert!((fit.at_zero - 3.0).abs() < 1e-9 && (fit.slope - 2.0).abs() < 1e-9, "{fit:?}");
        // What is above the line in the middle raises it, and does not turn it.
        let fit = line(&[(0.0, 0.0), (1.0, 3.0), (2.0, 0.0)]).unwrap();
        assert!((fit.at_zero - 1.0).abs() < 1e-9 && fit.slope.abs() < 1e-9, "{fit:?}");
    }

    #[test]
    fn one_place_gives_no_line() {
        assert_eq!(line(&[]), None);
        assert_eq!(line(&[(1.0, 2.0), (1.0, 4.0)]), None);
    }
}

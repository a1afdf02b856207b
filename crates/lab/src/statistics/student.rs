//! Quantiles of Student's t distribution.
//!
//! The distribution function is written with the regularised incomplete beta function, which is summed as a
//! continued fraction (modified Lentz method); the quantile is found by bisection, which cannot diverge. A call
//! costs microseconds and is made a few times a table, so nothing here is tuned.

use super::bisect;

/// Lanczos coefficients for g = 7, nine terms: good for 15 digits.
const LANCZOS: [f64; 9] = [
    0.999_999_999_999_809_9,
    676.520_368_121_885_1,
    -1_259.139_216_722_402_8,
    771.323_428_777_653_1,
    -176.615_029_162_140_6,
    12.507_343_278_686_905,
    -0.138_571_095_265_720_12,
    9.984_369_578_019_572e-6,
    1.505_632_735_149_311_6e-7,
];

/// Logarithm of the gamma function, for `x` of at least 0.5.
fn ln_gamma(x: f64) -> f64 {
    let x = x - 1.0;
    let series = (1..9).fold(LANCZOS[0], |sum, i| sum + LANCZOS[i] / (x + i as f64));
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + series.ln()
}

/// Regularised incomplete beta function I_x(a, b).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast only left of the mean; use the symmetry on the right of it.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    const TINY: f64 = 1e-300;
    let (mut c, mut d) = (1.0, 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0), TINY));
    let mut fraction = d;
    for m in 1..1000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / nonzero(1.0 + term * d, TINY);
            c = nonzero(1.0 + term / c, TINY);
            fraction *= c * d;
        }
        if (fraction - before).abs() <= f64::EPSILON * fraction.abs() {
            break;
        }
    }
    front * fraction
}

fn nonzero(x: f64, tiny: f64) -> f64 {
    if x.abs() < tiny { tiny } else { x }
}

/// P(T <= t) with `df` degrees of freedom.
pub fn cdf(t: f64, df: f64) -> f64 {
    let tail = 0.5 * incomplete_beta(df / 2.0, 0.5, df / (df + t * t));
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// The t with P(T <= t) = `p`, for `p` strictly between 0 and 1 and at least one degree of freedom.
pub fn quantile(p: f64, df: f64) -> f64 {
    assert!(p > 0.0 && p < 1.0, "a quantile needs a probability between 0 and 1, not {p}");
    assert!(df >= 1.0, "a t distribution needs a degree of freedom, not {df}");
    if p < 0.5 {
        return -quantile(1.0 - p, df);
    }
    let mut high = 1.0;
    while cdf(high, df) < p {
        high *= 2.0;
    }
    bisect([0.0, high], |t| cdf(t, df) < p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{ContinuousCDF, StudentsT};

    #[test]
    fn quantiles_match_the_printed_table() {
        // The usual table of two-sided 95 % values.
        for (df, expected) in [
            (1.0, 12.706_204_736_432_1),
            (2.0, 4.302_652_729_911_28),
            (4.0, 2.776_445_105_197_93),
            (9.0, 2.262_157_162_798_2),
        ] {
            let got = quantile(0.975, df);
            assert!((got - expected).abs() < 1e-9 * expected, "df {df}: {got} instead of {expected}");
        }
        assert!(quantile(0.5, 3.0).abs() < 1e-12);
        assert!(
            (quantile(0.975, 1e7) - 1.959_964).abs() < 1e-5,
            "many degrees of freedom approach the normal distribution"
        );
    }

    #[test]
    fn quantiles_agree_with_statrs() {
        for df in [1.0, 2.0, 3.0, 5.0, 10.0, 29.0, 100.0] {
            let theirs = StudentsT::new(0.0, 1.0, df).expect("a valid distribution");
            for p in [0.005, 0.025, 0.1, 0.4, 0.6, 0.9, 0.975, 0.995, 0.9995] {
                let (ours, theirs) = (quantile(p, df), theirs.inverse_cdf(p));
                assert!(
                    (ours - theirs).abs() < 1e-6 * theirs.abs().max(1.0),
                    "df {df} p {p}: {ours} {theirs}"
                );
                assert!((cdf(ours, df) - p).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn distribution_function_is_symmetric() {
        for t in [0.0, 0.3, 1.0, 4.0, 50.0] {
            assert!((cdf(t, 4.0) + cdf(-t, 4.0) - 1.0).abs() < 1e-14);
        }
    }
}

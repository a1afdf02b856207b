//! Reads the levels of a TLB from a curve: how much longer a load takes, by the number of pages in use.
//!
//! The curve is flat while the first level holds all pages, rises to the cost of a hit in the second level, is flat
//! again, and rises to the cost of a walk. A rise takes up to a doubling, since sets fill unequally; so a level holds
//! what is used at the last point before a rise begins, and its cost is read one doubling later.

use crate::fit::median;

/// A point of the curve.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Point {
    pub pages: u32,
    /// Nanoseconds that a load takes longer than without misses.
    pub nanos: f64,
}

/// What one round reads from its curve; NaN: it shows no such step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TranslationTimes {
    /// Pages that the first level of the TLB holds.
    pub first: f64,
    /// Pages that the second level holds.
    pub second: f64,
    /// Nanoseconds that a translation from the second level takes longer.
    pub second_hit: f64,
    /// Nanoseconds that a walk takes longer whose page tables are in the caches, and whose upper levels the CPU knows.
    pub walk: f64,
    /// Nanoseconds of a step of a walk that finds its line in no cache of the CPU's own.
    pub far_step: f64,
}

/// Cycles that a rise has at least: a hit in the second level takes about 7.
const RISE: f64 = 2.5;
/// Cycles that a walk takes longer than such a hit, at least. Where lines begin to leave the first-level cache, the
/// curve is rough by less.
const WALK: f64 = 6.0;
/// Points in a row that must be above a level: one is noise.
const ROW: usize = 3;
/// Pages that every first level holds.
const ALWAYS: u32 = 24;

/// Read a curve of ascending numbers of pages, of a CPU whose cycle takes `cycle` nanoseconds. What has no step is NaN.
pub(crate) fn read(curve: &[Point], cycle: f64) -> TranslationTimes {
    let none = TranslationTimes {
        first: f64::NAN,
        second: f64::NAN,
        second_hit: f64::NAN,
        walk: f64::NAN,
        far_step: f64::NAN,
    };
    let base = level(curve, 0, ALWAYS);
    let Some(first) = reach(curve, 0, base + RISE * cycle) else { return none };
    let hit = level(curve, 2 * first, 4 * first);
    let found = TranslationTimes { first: first.into(), second_hit: hit - base, ..none };
    let Some(second) = reach(curve, 2 * first, hit + WALK * cycle) else { return found };
    let walk = level(curve, 2 * second, 4 * second) - base;
    TranslationTimes { second: second.into(), walk, ..found }
}

/// The median of the points from `from` to `to` pages; NaN if there is none.
fn level(curve: &[Point], from: u32, to: u32) -> f64 {
    let within = curve.iter().filter(|point| (from..=to).contains(&point.pages));
    median(within.map(|point| point.nanos).collect())
}

/// The pages of the last point, from `from` pages on, before the curve rises above `limit` and stays there.
fn reach(curve: &[Point], from: u32, limit: f64) -> Option<u32> {
    let start = curve.partition_point(|point| point.pages < from);
    let above = |points: &[Point]| points.iter().all(|point| point.nanos > limit);
    let rise = curve[start..].windows(ROW).position(above)?;
    (rise > 0).then(|| curve[start + rise - 1].pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::rng::Rng;

    /// A curve of a TLB with these levels: a hit of the second takes 2 ns, a walk 9. Misses grow from a level's size to
    /// a quarter more. `noise`: nanoseconds up and down.
    fn curve(first: u32, second: u32, noise: f64) -> Vec<Point> {
        let mut random = Rng::new(7);
        let missing = |pages: u32, size: u32| {
            (f64::from(pages.saturating_sub(size)) / (f64::from(size) / 4.0)).min(1.0)
        };
        let sizes = (1..11).flat_map(|power| (8..16).map(move |eighths| eighths << power));
        sizes
            .map(|pages| {
                let noise = noise * (random.below(2001) as f64 / 1000.0 - 1.0);
                let nanos = 2.0 * missing(pages, first) + 7.0 * missing(pages, second) + noise;
                Point { pages, nanos }
            })
            .collect()
    }

    const CYCLE: f64 = 0.33;

    #[test]
    fn sizes_and_costs_of_both_levels_are_read() {
        for (first, second) in [(64, 1536), (96, 2048), (32, 512), (64, 3072)] {
            let read = read(&curve(first, second, 0.2), CYCLE);
            assert!((f64::from(first)..=1.25 * f64::from(first)).contains(&read.first), "{read:?}");
            assert!((f64::from(second)..=1.25 * f64::from(second)).contains(&read.second), "{read:?}");
            assert!((read.second_hit - 2.0).abs() < 0.3 && (read.walk - 9.0).abs() < 0.3, "{read:?}");
        }
    }

    #[test]
    fn curve_without_a_step_has_no_level() {
        let flat = curve(1 << 20, 1 << 21, 0.2);
        assert!(read(&flat, CYCLE).first.is_nan());
        let one = read(&curve(64, 1 << 21, 0.2), CYCLE);
        assert!(one.first >= 64.0 && one.second.is_nan() && one.walk.is_nan(), "{one:?}");
        assert!((one.second_hit - 2.0).abs() < 0.3, "{one:?}");
        assert!(read(&[], CYCLE).first.is_nan());
    }

    #[test]
    fn single_point_is_no_step() {
        let mut curve = curve(64, 1536, 0.0);
        curve[4].nanos = 50.0;
        curve[30].nanos = 50.0;
        let read = read(&curve, CYCLE);
        assert!(read.first >= 64.0 && read.second >= 1536.0, "{read:?}");
    }
}

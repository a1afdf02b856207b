//! The search for the smallest `memory.high` at which a program is hardly slower: sizes are halved between one that
//! suffices and one that does not, for each slow-down that is allowed, and all share what was measured.

use crate::statistics::Interval;
use serde::Serialize;
use std::collections::BTreeMap;

/// Sizes are multiples of this share of the most memory that the group has without a limit.
pub const STEPS: u64 = 64;

/// How much longer runs take than without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slowdown {
    /// Mean over the runs, in per cent.
    pub percent: f64,
    /// Its interval; `null` for one run.
    pub interval: Option<Interval>,
}

impl Slowdown {
    /// Whether it is at most this many per cent, beyond doubt if there is an interval.
    fn is_at_most(&self, percent: f64) -> bool {
        self.interval.map_or(self.percent, |[_, high]| high) <= percent
    }
}

/// The sizes between which the answer for an allowed slow-down is, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    /// The largest size below `enough` that is too little; 0: none was found.
    pub little: u64,
    /// The smallest size that is enough, as are all larger ones that were measured.
    pub enough: u64,
}

/// What is known of sizes, in steps. `None`: the program did not come to its end in time.
#[derive(Clone, Debug, Default)]
pub struct Measured(BTreeMap<u64, Option<Slowdown>>);

impl Measured {
    /// Learn what a size makes of the program.
    pub fn learn(&mut self, size: u64, slowdown: Option<Slowdown>) {
        self.0.insert(size, slowdown);
    }

    /// The sizes that were measured, and what they make of the program.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = (u64, Option<Slowdown>)> + '_ {
        self.0.iter().map(|(&size, &slowdown)| (size, slowdown))
    }

    /// What a size makes of the program, if it was measured. A limit that the group never reaches changes nothing.
    pub fn slowdown(&self, size: u64) -> Option<Slowdown> {
        let none = Slowdown { percent: 0.0, interval: Some([0.0, 0.0]) };
        if size >= STEPS { Some(none) } else { self.0.get(&size).copied().flatten() }
    }

    /// Where the answer for a slow-down of at most this many per cent is.
    pub fn bracket(&self, percent: f64) -> Bracket {
        let suffices = |slowdown: Option<Slowdown>| slowdown.is_some_and(|of| of.is_at_most(percent));
        let enough = self.all().rev().take_while(|&(_, of)| suffices(of)).last();
        let enough = enough.map_or(STEPS, |(size, _)| size);
        let little = self.all().rev().map(|(size, _)| size).find(|&size| size < enough);
        Bracket { little: little.unwrap_or(0), enough }
    }

    /// The sizes to measure next for these slow-downs; none if all answers are known.
    pub fn next(&self, percents: &[f64]) -> Vec<u64> {
        let brackets = percents.iter().map(|&percent| self.bracket(percent));
        let open = brackets.filter(|of| of.enough - of.little > 1);
        let mut next: Vec<u64> = open.map(|of| (of.little + of.enough) / 2).collect();
        next.sort_unstable();
        next.dedup();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Search with a program that is `slow(size)` per cent slower; the brackets, and how many sizes were measured.
    fn found(percents: &[f64], slow: impl Fn(u64) -> Option<f64>) -> (Vec<Bracket>, usize) {
        let mut measured = Measured::default();
        loop {
            let next = measured.next(percents);
            if next.is_empty() {
                break;
            }
            for size in next {
                let of = |percent| Slowdown { percent, interval: Some([percent - 0.5, percent + 0.5]) };
                measured.learn(size, slow(size).map(of));
            }
        }
        (percents.iter().map(|&percent| measured.bracket(percent)).collect(), measured.0.len())
    }

    #[test]
    fn the_smallest_size_that_suffices_is_found_for_each_slow_down() {
        // 1 % slower for each step below 50; it thrashes below 20.
        let slow = |size: u64| (size >= 20).then(|| 50_u64.saturating_sub(size) as f64);
        let (brackets, measured) = found(&[1.0, 5.0, 10.0], slow);
        // The interval ends half a per cent above the mean.
        let expected = [(49, 50), (45, 46), (40, 41)].map(|(little, enough)| Bracket { little, enough });
        assert_eq!(brackets, expected);
        assert!(measured <= 14, "{measured}");
    }

    #[test]
    fn a_program_that_needs_all_or_next_to_nothing_is_told_so() {
        assert_eq!(found(&[1.0], |_| None).0, [Bracket { little: 63, enough: 64 }]);
        assert_eq!(found(&[1.0], |_| Some(0.0)).0, [Bracket { little: 0, enough: 1 }]);
    }

    #[test]
    fn a_size_suffices_only_if_larger_ones_do() {
        let mut measured = Measured::default();
        let [none, much] = [0.0, 20.0].map(|percent| Some(Slowdown { percent, interval: None }));
        measured.learn(32, none);
        measured.learn(48, much);
        assert_eq!(measured.bracket(1.0), Bracket { little: 48, enough: 64 });
        assert_eq!(measured.bracket(30.0), Bracket { little: 0, enough: 32 });
        assert_eq!(measured.next(&[1.0, 30.0]), [16, 56]);
    }
}

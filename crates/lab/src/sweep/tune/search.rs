//! The search: a tree of Parzen estimators (`tpe`), an optimiser for each axis.
//!
//! Each proposes a value that is likelier among the best tenth of what was tried than among the rest. It needs no model
//! of the noise: the order of settings alone counts, so one that did not come to its end is only worse than all others.
//! docs/tune.md says why it is this optimiser.

use super::space::{Setting, Space};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::collections::BTreeSet;
use tpe::{
    TpeOptimizer, TpeOptimizerBuilder, categorical_range, histogram_estimator, parzen_estimator, range,
};

/// Settings that are drawn before anything is known.
const FIRST: usize = 10;
/// Settings that are asked for at once after them, so that more cores than seeds have work. It is a constant, because
/// the number of cores must not change results.
const AT_ONCE: usize = 2;
/// Of how many draws from the estimate of good values the most promising is proposed. The crate's default, 24, proposes
/// nearly the same again and again, and finds no more than chance does (docs/tune.md).
const DRAWS: usize = 2;
/// Proposals in a row that were all tried before: then nothing is left that is worth a run.
const PATIENCE: usize = 200;

/// A search; equal seeds and answers make equal proposals.
pub struct Search {
    axes: Vec<TpeOptimizer>,
    rng: Xoshiro256PlusPlus,
    /// Settings that are not proposed any more.
    asked: BTreeSet<Setting>,
}

impl Search {
    /// A search that knows the base, whose loss is 0.
    pub fn new(space: &Space, seed: u64) -> Search {
        let axes = space.axes.iter().map(|axis| {
            let (estimator, range) = match axis.ordered {
                true => (parzen_estimator(), range(0.0, axis.values.len() as f64)),
                false => (histogram_estimator(), categorical_range(axis.values.len())),
            };
            let range = range.expect("an axis has values");
            TpeOptimizerBuilder::new().candidates(DRAWS).build(estimator, range).expect("there are draws")
        });
        Search {
            axes: axes.collect(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            asked: BTreeSet::from([space.base()]),
        }
    }

    /// The next settings, at most `most`; none if all that it would propose was asked before.
    pub fn ask(&mut self, most: usize) -> Vec<Setting> {
        let count = most.min(if self.asked.len() == 1 { FIRST } else { AT_ONCE });
        let Search { axes, rng, asked } = self;
        let mut next =
            || (0..PATIENCE).map(|_| propose(axes, rng)).find(|setting| asked.insert(setting.clone()));
        (0..count).map_while(|_| next()).collect()
    }

    /// Tell what became of a setting; smaller is better, infinite: it did not come to its end.
    pub fn tell(&mut self, setting: &Setting, loss: f64) {
        for (axis, &at) in self.axes.iter_mut().zip(&setting.0) {
            // The middle of the value's part of the axis.
            axis.tell(at as f64 + 0.5, loss).expect("a loss is a number, and the value in its range");
        }
    }
}

fn propose(axes: &mut [TpeOptimizer], rng: &mut Xoshiro256PlusPlus) -> Setting {
    let value = |axis: &mut TpeOptimizer| {
        let Ok(value) = axis.ask(rng);
        value as usize
    };
    Setting(axes.iter_mut().map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::super::space::tests::space;
    use super::*;

    /// Search for the setting with the least distance from a wanted one.
    fn search(seed: u64, trials: usize) -> Vec<Setting> {
        let space = space();
        let mut search = Search::new(&space, seed);
        search.tell(&space.base(), 0.0);
        let mut tried = Vec::new();
        while tried.len() < trials {
            let next = search.ask(trials - tried.len());
            if next.is_empty() {
                break;
            }
            for setting in next {
                let wrong = setting.0.iter().zip([2, 0, 1, 1]).filter(|(at, wanted)| **at != *wanted).count();
                let loss = if setting.0[3] == 0 { f64::INFINITY } else { wrong as f64 - 2.0 };
                search.tell(&setting, loss);
                tried.push(setting);
            }
        }
        tried
    }

    #[test]
    fn equal_seeds_propose_equal_settings_and_none_twice() {
        let tried = search(1, 30);
        assert_eq!(tried, search(1, 30));
        assert_ne!(tried, search(2, 30));
        assert_eq!(tried.iter().collect::<BTreeSet<_>>().len(), tried.len());
    }

    #[test]
    fn search_ends_where_it_has_nothing_new_to_propose() {
        let tried = search(1, 1000);
        assert!((30..48).contains(&tried.len()), "{} of 47 settings beside the base", tried.len());
        assert!(tried.contains(&Setting(vec![2, 0, 1, 1])));
    }
}

//! The verdict: what the best setting of the search is worth on seeds that the search never saw, what each of its
//! changes adds there, and what is recommended.
//!
//! The judge asks for runs in steps, because each depends on the one before: the best setting; if it wins, the same
//! without each of its changes; if some of them add nothing, the same without those.

use super::super::plan::Sweep;
use super::super::store::{Done, Finished, Key};
use super::super::worth::Worth;
use super::space::{Setting, Space};
use std::collections::BTreeMap;

/// A change whose interval holds 0 is put back if it adds less than this, in per cent.
pub const LEAST: f64 = 1.0;

/// Some seeds of a command, and what is compared on them.
#[derive(Clone, Copy)]
pub struct Half<'a> {
    /// What settings are made of.
    pub space: &'a Space,
    /// The metric.
    pub metric: &'a str,
    /// The first seed, and how many there are.
    pub seeds: (u64, u32),
}

impl Half<'_> {
    /// The runs of settings, the base first.
    pub fn sweep(&self, settings: &[Setting]) -> Sweep {
        self.space.sweep(settings, self.seeds, self.metric)
    }

    /// Why a run of the base did not come to its end, if one did not.
    pub fn fails(&self, done: &BTreeMap<Key, Done>) -> Option<String> {
        Finished::of(&self.sweep(&[]), done).missing(0)
    }

    /// Simulated nanoseconds of the longest run of the base.
    pub fn longest(&self, done: &BTreeMap<Key, Done>) -> u64 {
        let sweep = self.sweep(&[]);
        let finished = Finished::of(&sweep, done);
        finished.runs(0).iter().filter_map(|(_, done)| Some(done.record()?.nanos)).max().unwrap_or_default()
    }

    /// What a setting is worth beside another.
    pub fn worth(&self, from: &Setting, to: &Setting, done: &BTreeMap<Key, Done>) -> Outcome {
        // The sweep begins with the base, of which runs are wanted in any case.
        let sweep = self.sweep(&[from.clone(), to.clone()]);
        let finished = Finished::of(&sweep, done);
        let at = |setting: &Setting| {
            let what = self.space.what(setting);
            sweep.whats.iter().position(|known| *known == what).expect("it is of the sweep")
        };
        let sides = [at(from), at(to)];
        let whole = |&what: &usize| finished.runs(what).len() == self.seeds.1 as usize;
        match sides.iter().find_map(|&side| finished.missing(side)) {
            Some(why) => Outcome::Missing(why),
            None if !sides.iter().all(whole) => Outcome::Open,
            None => {
                let better = finished.metric(sides[0], self.metric).and_then(|metric| metric.better);
                Outcome::Worth(Worth::of(finished.pairs(sides, self.metric), better))
            }
        }
    }
}

/// What became of the runs of two settings.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// They are not all done.
    Open,
    /// Some did not come to their end: the reason of the first.
    Missing(String),
    /// All ended.
    Worth(Worth),
}

impl Outcome {
    /// What the second is worth, if all ended.
    pub fn worth(&self) -> Option<Worth> {
        match self {
            Outcome::Worth(worth) => Some(*worth),
            Outcome::Open | Outcome::Missing(_) => None,
        }
    }

    /// Whether the second is better, beyond luck.
    pub fn wins(&self) -> bool {
        self.worth().is_some_and(|worth| worth.wins())
    }
}

/// What one change of the best setting adds to its others.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its axis.
    pub axis: usize,
    /// The best setting beside the one without this change.
    pub adds: Outcome,
}

impl Part {
    /// Whether the change stays. One without which the program does not come to its end does.
    fn stays(&self) -> bool {
        match &self.adds {
            Outcome::Worth(worth) => worth.wins() || worth.pct.is_some_and(|pct| pct >= LEAST),
            Outcome::Open | Outcome::Missing(_) => true,
        }
    }
}

/// A setting on the unseen half.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The setting.
    pub setting: Setting,
    /// Beside the base.
    pub worth: Outcome,
}

/// All that is known on the unseen half.
pub struct Judgement {
    /// The best setting of the search.
    pub best: Judged,
    /// What its changes add, if it wins.
    pub parts: Vec<Part>,
    /// The setting without what adds nothing, if that is another one.
    pub rest: Option<Judged>,
    /// Whether the rest is as good as the best, so that it is recommended instead.
    pub rest_will_do: bool,
    /// Settings whose runs are wanted next; none if all is known.
    pub wanted: Vec<Setting>,
}

impl Judgement {
    /// What the runs that are done say of the best setting of the search.
    pub fn of(half: Half, best: Setting, done: &BTreeMap<Key, Done>) -> Judgement {
        let Half { space, .. } = half;
        let base = space.base();
        let best = Judged { worth: half.worth(&base, &best, done), setting: best };
        let mut judgement =
            Judgement { best, parts: Vec::new(), rest: None, rest_will_do: false, wanted: Vec::new() };
        let best = &judgement.best;
        if !best.worth.wins() {
            let open = matches!(best.worth, Outcome::Open);
            judgement.wanted = open.then(|| best.setting.clone()).into_iter().collect();
            return judgement;
        }
        let changed = space.changed(&best.setting);
        // The only change adds all that there is.
        let alone = changed.len() == 1;
        for axis in changed {
            let without = space.without(&best.setting, &[axis]);
            let adds = half.worth(&without, &best.setting, done);
            judgement.wanted.extend(matches!(adds, Outcome::Open).then_some(without).filter(|_| !alone));
            judgement.parts.push(Part { axis, adds });
        }
        let parts = &judgement.parts;
        let idle: Vec<usize> = parts.iter().filter(|part| !part.stays()).map(|part| part.axis).collect();
        // If no change adds anything to the others, each can replace another, and not all can go.
        if !judgement.wanted.is_empty() || idle.is_empty() || judgement.none_adds() {
            return judgement;
        }
        let rest = space.without(&judgement.best.setting, &idle);
        let worth = half.worth(&base, &rest, done);
        judgement.wanted.extend(matches!(worth, Outcome::Open).then(|| rest.clone()));
        let lost =
            half.worth(&judgement.best.setting, &rest, done).worth().is_some_and(|worth| worth.loses());
        judgement.rest_will_do = worth.wins() && !lost;
        judgement.rest = Some(Judged { setting: rest, worth });
        judgement
    }

    /// Whether no change adds anything to the others, so that all stay.
    pub fn none_adds(&self) -> bool {
        self.parts.len() > 1 && self.parts.iter().all(|part| !part.stays())
    }

    /// What is recommended, if anything wins and all is known.
    pub fn recommended(&self) -> Option<&Judged> {
        let judged = self.wanted.is_empty() && self.best.worth.wins();
        judged.then(|| self.rest.as_ref().filter(|_| self.rest_will_do).unwrap_or(&self.best))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::space::tests::space;
    use super::*;
    use crate::metrics::tests::run;

    /// Run times of a setting by seed, around this many nanoseconds: seeds differ, and so do settings a little.
    pub(in super::super) fn measure(
        done: &mut BTreeMap<Key, Done>,
        half: Half,
        settings: &[Setting],
        nanos: impl Fn(&Setting) -> u64,
    ) {
        for setting in [&half.space.base()].into_iter().chain(settings) {
            let what = half.space.what(setting);
            for seed in half.seeds.0..half.seeds.0 + u64::from(half.seeds.1) {
                let luck = seed * 100 + (seed * 7 + setting.0.iter().sum::<usize>() as u64 * 3) % 5;
                let record = run(&what.profile, seed, nanos(setting) + luck, &[]);
                done.insert(Key { what: what.clone(), seed }, Done::Record(Box::new(record)));
            }
        }
    }

    /// Judge until nothing is wanted; also return how many settings were run in each step.
    fn judged(best: &Setting, nanos: impl Fn(&Setting) -> u64) -> (Judgement, Vec<usize>) {
        let space = Box::leak(Box::new(space()));
        let half = Half { space, metric: "run_time", seeds: (11, 5) };
        let (mut done, mut steps) = (BTreeMap::new(), Vec::new());
        loop {
            let judgement = Judgement::of(half, best.clone(), &done);
            if judgement.wanted.is_empty() {
                return (judgement, steps);
            }
            assert!(judgement.recommended().is_none(), "not all is known");
            steps.push(judgement.wanted.len());
            measure(&mut done, half, &judgement.wanted, &nanos);
        }
    }

    /// Swappiness 100 takes 10 % off, lazy flushes 5 %, page-cluster 0 nothing.
    fn nanos(setting: &Setting) -> u64 {
        let swappiness = if setting.0[0] == 2 { 10_000 } else { 0 };
        100_000 - swappiness - if setting.0[2] == 1 { 5000 } else { 0 }
    }

    #[test]
    fn changes_that_add_nothing_are_put_back() {
        let (judgement, steps) = judged(&Setting(vec![2, 0, 1, 0]), nanos);
        // What is left without one change has run when that was left out.
        assert_eq!(steps, [1, 3]);
        let adds: Vec<f64> =
            judgement.parts.iter().map(|part| part.adds.worth().unwrap().pct.unwrap()).collect();
        assert!(
            (adds[0] - 10.5).abs() < 0.5 && adds[1].abs() < 0.1 && (adds[2] - 5.5).abs() < 0.5,
            "{adds:?}"
        );
        let recommended = judgement.recommended().unwrap();
        assert_eq!(recommended.setting, Setting(vec![2, 3, 1, 0]));
        assert!(recommended.worth.wins());
    }

    #[test]
    fn nothing_is_recommended_where_nothing_wins() {
        for worse in [0, 3000] {
            let (judgement, steps) = judged(&Setting(vec![0, 0, 0, 0]), |setting| {
                100_000 + if setting.0[0] == 0 { worse } else { 0 }
            });
            assert_eq!(steps, [1]);
            assert!(judgement.recommended().is_none() && judgement.parts.is_empty());
        }
    }

    #[test]
    fn changes_that_replace_each_other_stay() {
        let either =
            |setting: &Setting| if setting.0[0] == 2 || setting.0[1] == 0 { 90_000 } else { 100_000 };
        let best = Setting(vec![2, 0, 0, 0]);
        let (judgement, steps) = judged(&best, either);
        assert_eq!(steps, [1, 2]);
        assert!(judgement.rest.is_none() && judgement.none_adds());
        assert_eq!(judgement.recommended().unwrap().setting, best);
        // Beside a third change that does add something, the rest without both is tried, and is not good enough.
        let (judgement, steps) = judged(&Setting(vec![2, 0, 1, 0]), |setting| {
            either(setting) - if setting.0[2] == 1 { 5000 } else { 0 }
        });
        assert_eq!(steps, [1, 3, 1]);
        assert!(judgement.rest.is_some() && !judgement.rest_will_do);
        assert_eq!(judgement.recommended().unwrap().setting, Setting(vec![2, 0, 1, 0]));
    }

    #[test]
    fn the_only_change_is_not_left_out() {
        let (judgement, steps) = judged(&Setting(vec![2, 3, 0, 0]), nanos);
        assert_eq!((steps, judgement.parts.len()), (vec![1], 1));
        assert!(judgement.parts[0].adds.wins(), "without it there is the base");
        assert!(judgement.recommended().is_some());
    }

    #[test]
    fn setting_that_does_not_end_on_the_unseen_half_loses() {
        let space = space();
        let half = Half { space: &space, metric: "run_time", seeds: (11, 2) };
        let best = Setting(vec![2, 3, 0, 0]);
        let mut done = BTreeMap::new();
        measure(&mut done, half, std::slice::from_ref(&best), nanos);
        let key = Key { what: space.what(&best), seed: 12 };
        done.insert(key, Done::Missing("out of memory".into()));
        let judgement = Judgement::of(half, best, &done);
        assert!(judgement.recommended().is_none() && judgement.wanted.is_empty());
        assert!(matches!(judgement.best.worth, Outcome::Missing(_)));
    }
}

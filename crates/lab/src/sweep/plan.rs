//! The plan of a sweep: axes with their values, the points that combine them, and the runs that the points need.

use crate::engine::DEFAULT_MACHINE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a run is made of, without its seed. Points that need the same share one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct What {
    /// The program, as `pagefold run` takes it; so are all other fields.
    pub program: String,
    /// A preset or a file.
    #[serde(default = "default_machine")]
    pub machine: String,
    /// Bytes or a share; `None`: all that the machine has.
    pub memory: Option<String>,
    /// The profile, perhaps with settings of its own.
    #[serde(default = "default_profile")]
    pub profile: String,
    /// Settings of knobs.
    #[serde(default)]
    pub set: Vec<String>,
    /// Swap areas instead of the machine's own; if there are any, it is known what pages hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub swap: Vec<String>,
    /// Control groups that the run begins with, their limits in bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<String>,
    /// A controller of one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub senpai: Option<String>,
    /// The state of memory at the start.
    pub fragment: Option<String>,
    /// What differs between seeds, besides what the machine draws.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vary: Option<String>,
    /// Whether the oracle checks the run.
    #[serde(default)]
    pub verify: bool,
}

fn default_machine() -> String {
    DEFAULT_MACHINE.to_owned()
}

fn default_profile() -> String {
    "classic".to_owned()
}

/// A combination of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The index of its cut.
    pub cut: usize,
    /// A value for each axis.
    pub values: Vec<String>,
    /// The index of what it runs.
    pub what: usize,
    /// The point with the first value of the axis that is compared and otherwise the same values; perhaps itself.
    pub base: usize,
}

/// A part of a sweep: all combinations of its axes' values.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// The values of each axis, in the order of axes.
    pub values: Vec<Vec<String>>,
}

/// A sweep; what is serialized of it are keys of its result (docs/json.md).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sweep {
    /// Its title, for people.
    pub title: String,
    /// The first seed.
    pub seed: u64,
    /// Seeds for each point.
    pub runs: u32,
    /// Names of axes.
    pub axes: Vec<String>,
    /// The axis whose values are shown beside each other.
    #[serde(skip)]
    pub compare: Option<usize>,
    /// Its parts.
    #[serde(skip)]
    pub cuts: Vec<Cut>,
    /// All points, cut by cut; the last axis varies fastest.
    #[serde(skip)]
    pub points: Vec<Point>,
    /// What the points run, each once.
    #[serde(skip)]
    pub whats: Vec<What>,
    /// The metrics or counters that are shown.
    #[serde(skip)]
    pub metrics: Vec<String>,
}

impl Sweep {
    /// A sweep over all combinations of the values of `axes`. `what` gives what a combination runs, by the indexes of
    /// its values.
    pub fn product<const AXES: usize>(
        axes: [(&str, Vec<String>); AXES],
        (seed, runs): (u64, u32),
        metrics: &[&str],
        what: impl Fn([usize; AXES]) -> What,
    ) -> Sweep {
        let metrics = metrics.iter().map(|&name| name.to_owned()).collect();
        let mut sweep = Sweep { runs, seed, metrics, ..Sweep::default() };
        sweep.axes = axes.iter().map(|(name, _)| (*name).to_owned()).collect();
        sweep.cuts = vec![Cut { values: axes.map(|(_, values)| values).to_vec() }];
        let fill = |indexes: &[usize], values| {
            let indexes = indexes.try_into().expect("a combination has an index for each axis");
            Ok::<_, std::convert::Infallible>((values, what(indexes)))
        };
        let Ok(()) = sweep.expand(fill);
        sweep
    }

    /// Add the points of all cuts. `fill` takes a combination by its indexes and its values, and gives the values that
    /// are shown and what is run.
    pub(super) fn expand<E>(
        &mut self,
        mut fill: impl FnMut(&[usize], Vec<String>) -> Result<(Vec<String>, What), E>,
    ) -> Result<(), E> {
        let mut known: BTreeMap<What, usize> = BTreeMap::new();
        for (cut, Cut { values: axes }) in self.cuts.iter().enumerate() {
            // Points that differ only in the axis that is compared are `step` points apart.
            let (step, count) = self
                .compare
                .map_or((1, 1), |axis| (axes[axis + 1..].iter().map(Vec::len).product(), axes[axis].len()));
            for (at, indexes) in combinations(axes).into_iter().enumerate() {
                let values = axes.iter().zip(&indexes).map(|(axis, &index)| axis[index].clone()).collect();
                let (values, what) = fill(&indexes, values)?;
                let next = known.len();
                let number = *known.entry(what).or_insert_with_key(|what| {
                    self.whats.push(what.clone());
                    next
                });
                let base = self.points.len() - at / step % count * step;
                self.points.push(Point { cut, values, what: number, base });
            }
        }
        Ok(())
    }

    /// The first point of a run, as messages call it: `cpus=8, threads=16`.
    pub fn name_of(&self, what: usize) -> String {
        let point =
            self.points.iter().find(|point| point.what == what).expect("every run belongs to a point");
        let pairs = self.axes.iter().zip(&point.values).map(|(axis, value)| format!("{axis}={value}"));
        let name = pairs.collect::<Vec<_>>().join(", ");
        if name.is_empty() { "its one point".to_owned() } else { name }
    }
}

/// All combinations of indexes of one value of each axis. Without an axis there is one, which is empty.
fn combinations(axes: &[Vec<String>]) -> Vec<Vec<usize>> {
    axes.iter().fold(vec![Vec::new()], |before, values| {
        let with = |start: &Vec<usize>, index: usize| [&start[..], &[index]].concat();
        before.iter().flat_map(|start| (0..values.len()).map(move |index| with(start, index))).collect()
    })
}

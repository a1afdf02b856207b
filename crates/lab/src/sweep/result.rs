//! The result of a sweep: its points with their numbers.

use super::plan::{Point, Sweep};
use super::store::{Done, Finished, Key};
use crate::columns::{Column, Columns};
use crate::document::Document;
use crate::grid::Grid;
use crate::human;
use crate::plot::{Axis, Panel, Point as Mark, render as plot};
use crate::record::Better;
use crate::statistics::{CONFIDENCE, Change, Interval, interval, mean};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A metric at a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Its name.
    pub metric: String,
    /// The unit of its value.
    pub unit: String,
    /// Mean over the seeds.
    pub mean: f64,
    /// Its interval; `null` for one run.
    pub ci: Option<Interval>,
    /// Which direction is good; `null`: neither.
    pub better: Option<Better>,
    /// Value by that at the first value of the axis that is compared; `null` at that value, or without one.
    pub ratio: Option<f64>,
    /// The same as a change in per cent, positive = better; `null` also where neither direction is.
    pub change_pct: Option<f64>,
    /// Its interval, of pairs of runs with the same seed.
    pub change_ci: Option<Interval>,
    /// Whether the difference is significant. (Not printed: `change_ci` shows it.)
    #[serde(skip)]
    pub significant: bool,
}

/// A point of the sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The number of its cut, from 0.
    pub cut: usize,
    /// A value for each axis.
    pub values: BTreeMap<String, String>,
    /// Seeds that are done.
    pub runs: usize,
    /// The metrics; empty if a run is missing. A metric that no run measured is left out.
    pub shown: Vec<Shown>,
    /// Why there are no numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// The result; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// What was run.
    #[serde(flatten)]
    sweep: Sweep,
    /// The axis whose values are compared.
    pub compare: Option<String>,
    /// What differs between seeds besides what the machine draws, as `--vary` takes it, if all runs have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vary: Option<String>,
    /// Probability of intervals.
    pub confidence: f64,
    /// Runs that are not done.
    pub left: usize,
    /// All points.
    pub rows: Vec<Row>,
}

impl Document for Outcome {
    const COMMAND: &'static str = "sweep";
    const SCHEMA: u32 = 2;

    fn text(&self, width: usize) -> String {
        let mut text = format!("{}\n{}\n", self.title(), self.about());
        for cut in 0..self.cuts() {
            text += &format!("\n{}", self.cut_text(cut, width));
        }
        text + &self.notes()
    }

    /// For each cut and metric a small panel over the first axis that varies; lines for the values that are compared
    /// and for all other axes that vary. `None`: nothing varies.
    fn svg(&self) -> Option<String> {
        let cuts = (0..self.sweep.cuts.len()).filter_map(|cut| Some((cut, *self.axes_of(cut).0.first()?)));
        let cuts = cuts.map(|(cut, axis)| {
            let values = self.sweep.cuts[cut].values[axis].iter().enumerate();
            let marks = values.map(|(at, value)| (at as f64, value.clone())).collect();
            (cut, axis, Axis { marks, label: self.sweep.axes[axis].clone() })
        });
        let cuts: Vec<_> = cuts.collect();
        let mut panels = Vec::new();
        for (cut, axis, scale) in &cuts {
            for metric in &self.sweep.metrics {
                let (unit, percent) = (self.unit(metric), self.compare.is_some());
                panels.push(Panel {
                    title: self.title_of(*cut, *axis, metric),
                    better: self.better(metric),
                    axis: scale,
                    lines: self.lines(*cut, *axis, metric),
                    show: Box::new(move |value| match percent {
                        true if value == 0.0 => "0".to_owned(),
                        true if value.fract() == 0.0 => format!("{value:+.0}%"),
                        true => format!("{value:+.1}%"),
                        false => human::number(value, &unit),
                    }),
                });
            }
        }
        let title = self.title();
        let runs = human::plural(self.sweep.runs.into(), "run", "runs");
        let about = match (self.compare.is_some(), self.base()) {
            (true, Some(base)) => {
                format!("Change against {base} in per cent, up is better; {runs} for each point.")
            }
            (true, None) => format!("Change in per cent, up is better; {runs} for each point."),
            (false, _) => format!("Means of {runs} for each point."),
        };
        (!panels.is_empty()).then(|| plot((title, &about), &panels, if panels.len() > 2 { 2 } else { 1 }))
    }
}

/// What differs between the seeds of all runs alike.
fn varies(sweep: &Sweep) -> Option<String> {
    let first = sweep.whats.first()?.vary.clone()?;
    sweep.whats.iter().all(|what| what.vary.as_ref() == Some(&first)).then_some(first)
}

impl Outcome {
    /// The result of the runs that are done.
    pub fn of(sweep: &Sweep, done: &BTreeMap<Key, Done>) -> Outcome {
        let finished = Finished::of(sweep, done);
        let rows = sweep.points.iter().map(|point| {
            let base = Some(sweep.points[point.base].what).filter(|&base| base != point.what);
            let missing = [point.what].into_iter().chain(base).find_map(|what| finished.missing(what));
            let shown = sweep.metrics.iter().filter(|_| missing.is_none());
            Row {
                cut: point.cut,
                values: sweep.axes.iter().cloned().zip(point.values.iter().cloned()).collect(),
                runs: finished.runs(point.what).len(),
                shown: shown.filter_map(|metric| shown_of(&finished, metric, point.what, base)).collect(),
                missing,
            }
        });
        Outcome {
            compare: sweep.compare.map(|axis| sweep.axes[axis].clone()),
            vary: varies(sweep),
            confidence: CONFIDENCE,
            left: finished.left,
            rows: rows.collect(),
            sweep: sweep.clone(),
        }
    }

    /// Its title.
    pub fn title(&self) -> &str {
        if self.sweep.title.is_empty() { "sweep" } else { &self.sweep.title }
    }

    /// What its numbers are.
    pub fn about(&self) -> String {
        let runs = human::plural(self.sweep.runs.into(), "run", "runs");
        let varies = self.vary.iter().map(|what| format!("; seeds also vary {what}")).collect::<String>();
        format!("{runs} for each point; means, and changes of means{varies}")
    }

    /// What to know of the numbers.
    pub fn notes(&self) -> String {
        let mut text = reasons(self.rows.iter().filter_map(|row| row.missing.as_deref()));
        let neutral = |shown: &Shown| shown.better.is_none() && shown.ratio.is_some();
        if self.rows.iter().flat_map(|row| &row.shown).any(neutral) {
            text += "\nxN: N times the value at the first, where neither more nor less is better\n";
        }
        if self.compare.is_some() {
            text += "\nchange: + is better, - is worse, of pairs of runs with the same seed; * = the 95% interval of the difference excludes no change\n";
        }
        text
    }

    fn cut_text(&self, cut: usize, width: usize) -> String {
        let (fixed, words, grid) = self.cut_grid(cut);
        let fixed = if fixed.is_empty() { String::new() } else { format!("{fixed}\n") };
        fixed + &grid.render(|column| column < words, width)
    }

    /// The number of cuts.
    pub fn cuts(&self) -> usize {
        self.sweep.cuts.len()
    }

    /// A cut: the values of its axes that do not vary, the number of those that do, and a table, whose first columns
    /// have their values.
    pub fn cut_grid(&self, cut: usize) -> (String, usize, Grid) {
        let (varied, fixed) = self.axes_of(cut);
        let fixed: Vec<String> = fixed
            .iter()
            .map(|&axis| format!("{} {}", self.sweep.axes[axis], self.sweep.cuts[cut].values[axis][0]))
            .collect();
        let columns = self.compared(cut);
        let headings = varied.iter().map(|&axis| self.sweep.axes[axis].clone());
        let of_metric = |metric: &String| {
            let heading = |value: &Option<String>| match value {
                Some(value) => format!("{metric} {value}"),
                None => metric.clone(),
            };
            columns.iter().map(heading).collect::<Vec<_>>()
        };
        let mut grid = Grid::new(headings.chain(self.sweep.metrics.iter().flat_map(of_metric)));
        for group in self.groups(cut) {
            let first = group[0];
            let values = varied.iter().map(|&axis| self.rows[first].values[&self.sweep.axes[axis]].clone());
            let cells = self
                .sweep
                .metrics
                .iter()
                .flat_map(|metric| group.iter().map(move |&row| self.rows[row].cell(metric)));
            grid.row(values.chain(cells));
        }
        (fixed.join(", "), varied.len(), grid)
    }

    /// Axes that vary in a cut, and those that do not; the axis that is compared is neither.
    fn axes_of(&self, cut: usize) -> (Vec<usize>, Vec<usize>) {
        let axes = (0..self.sweep.axes.len()).filter(|&axis| self.sweep.compare != Some(axis));
        axes.partition(|&axis| self.sweep.cuts[cut].values[axis].len() > 1)
    }

    /// The values that are compared in a cut; one `None` without a comparison.
    fn compared(&self, cut: usize) -> Vec<Option<String>> {
        match self.sweep.compare {
            Some(axis) => self.sweep.cuts[cut].values[axis].iter().cloned().map(Some).collect(),
            None => vec![None],
        }
    }

    /// Rows of a cut, grouped so that those of a group differ only in the value that is compared.
    fn groups(&self, cut: usize) -> Vec<Vec<usize>> {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (row, point) in self.sweep.points.iter().enumerate().filter(|(_, point)| point.cut == cut) {
            groups.entry(point.base).or_default().push(row);
        }
        groups.into_values().collect()
    }

    /// What all cuts are compared with, if that is the same.
    pub fn base(&self) -> Option<&str> {
        let axis = self.sweep.compare?;
        let mut bases = self.sweep.cuts.iter().map(|cut| &cut.values[axis][0][..]);
        let first = bases.next()?;
        bases.all(|base| base == first).then_some(first)
    }

    fn title_of(&self, cut: usize, axis: usize, metric: &str) -> String {
        let over = &self.sweep.axes[axis];
        let title = format!("{metric} over {over}");
        let Some(compared) = self.sweep.compare else { return title };
        let shown = self.rows.iter().find_map(|row| row.shown(metric));
        let neutral = shown.is_some_and(|shown| shown.better.is_none());
        let base = match self.base() {
            Some(_) => String::new(),
            None => format!(", against {}", self.sweep.cuts[cut].values[compared][0]),
        };
        title + &base + if neutral { " (up is more, not better)" } else { "" }
    }

    /// Which way is better in a panel of values; in one of changes it is up.
    fn better(&self, metric: &str) -> Option<Better> {
        self.rows.iter().find_map(|row| row.shown(metric)).filter(|_| self.compare.is_none())?.better
    }

    fn unit(&self, metric: &str) -> String {
        let shown = self.rows.iter().find_map(|row| row.shown(metric));
        shown.map_or(String::new(), |shown| shown.unit.clone())
    }

    fn lines(&self, cut: usize, axis: usize, metric: &str) -> Vec<(String, Vec<Option<Mark>>)> {
        let (varied, _) = self.axes_of(cut);
        let values = &self.sweep.cuts[cut].values[axis];
        let mut lines: Vec<(String, Vec<Option<Mark>>)> = Vec::new();
        for (row, point) in self.sweep.points.iter().enumerate().filter(|(_, point)| point.cut == cut) {
            if self.sweep.compare.is_some() && point.base == row {
                continue;
            }
            let others = varied.iter().filter(|&&other| other != axis);
            let others = others.map(|&other| format!("{} {}", self.sweep.axes[other], point.values[other]));
            let compared = self.sweep.compare.map(|axis| point.values[axis].clone());
            let name = compared.into_iter().chain(others).collect::<Vec<_>>().join(", ");
            let place = values.iter().position(|value| *value == point.values[axis]).expect("one of them");
            let mark = self.rows[row].shown(metric).and_then(|shown| mark(place, shown, self.sweep.compare));
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, marks)) => marks.push(mark),
                None => lines.push((name, vec![mark])),
            }
        }
        lines
    }

    /// All runs with all that was measured, a row for each.
    pub fn columns(&self, done: &BTreeMap<Key, Done>) -> Columns {
        let finished = Finished::of(&self.sweep, done);
        let runs_of = |point: &Point| finished.runs(point.what).iter();
        let runs: Vec<(&Point, &(u64, &Done))> =
            self.sweep.points.iter().flat_map(|point| runs_of(point).map(move |run| (point, run))).collect();
        let mut columns = Columns::default();
        columns.add("cut", Column::Count(runs.iter().map(|(point, _)| Some(point.cut as u64)).collect()));
        for (axis, name) in self.sweep.axes.iter().enumerate() {
            let value = |(point, _): &(&Point, _)| Some(point.values[axis].clone());
            columns.add(name, Column::Text(runs.iter().map(value).collect()));
        }
        columns.add("seed", Column::Count(runs.iter().map(|(_, (seed, _))| Some(*seed)).collect()));
        let missing = |done: &Done| match done {
            Done::Missing(why) => Some(why.clone()),
            Done::Record(_) => None,
        };
        columns.add("missing", Column::Text(runs.iter().map(|(_, (_, done))| missing(done)).collect()));
        let records: Vec<_> = runs.iter().map(|(_, (_, done))| done.record()).collect();
        columns.add_measured(&records);
        columns
    }
}

impl Row {
    fn shown(&self, metric: &str) -> Option<&Shown> {
        self.shown.iter().find(|shown| shown.metric == metric)
    }

    fn cell(&self, metric: &str) -> String {
        let Some(shown) = self.shown(metric) else { return "-".to_owned() };
        match (shown.change_pct, shown.ratio) {
            (None, None) => human::number(shown.mean, &shown.unit),
            (change, ratio) => {
                human::change(change, ratio.filter(|_| shown.better.is_none()), shown.significant)
            }
        }
    }
}

/// Lines with the reasons for cells without numbers, each once.
pub(super) fn reasons<'a>(missing: impl Iterator<Item = &'a str>) -> String {
    let mut told = BTreeSet::new();
    missing.filter(|why| told.insert(*why)).map(|why| format!("-: {why}\n")).collect()
}

fn shown_of(finished: &Finished<'_>, metric: &str, what: usize, base: Option<usize>) -> Option<Shown> {
    let values: Vec<f64> = finished.values(what, metric).into_values().collect();
    let change = base.map(|base| finished.pairs([base, what], metric)).filter(|(base, _)| !base.is_empty());
    let change = change.map(|(base, other)| Change::of(&base, &other));
    let of = finished.metric(what, metric)?;
    let percent = change.zip(of.better).map(|(change, better)| better.of(&change));
    let (change_pct, change_ci) = percent.unwrap_or_default();
    Some(Shown {
        metric: metric.to_owned(),
        unit: of.unit,
        better: of.better,
        mean: mean(&values),
        ci: interval(&values),
        ratio: change.and_then(|change| change.ratio),
        change_pct,
        change_ci,
        significant: change.is_some_and(|change| change.is_significant()),
    })
}

fn mark(place: usize, shown: &Shown, compare: Option<usize>) -> Option<Mark> {
    let (y, interval) = match compare {
        // Where neither direction is better, up is more.
        Some(_) if shown.better.is_none() => ((shown.ratio? - 1.0) * 100.0, None),
        Some(_) => (shown.change_pct?, shown.change_ci),
        None => (shown.mean, shown.ci),
    };
    Some(Mark { x: place as f64, y, interval, dots: Vec::new() })
}

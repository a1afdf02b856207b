//! Points with their numbers.

use super::{Done, Key, Sweep};
use crate::grid::Grid;
use crate::human;
use crate::plot::{Axis, Panel, Point as Mark, render as plot};
use crate::record::RunRecord;
use crate::statistics::{Change, Interval, interval, mean};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Version of the JSON document.
const SCHEMA: u32 = 1;

/// A metric at a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Its name.
    pub metric: String,
    /// Of what it is a number.
    pub unit: String,
    /// Mean over the seeds.
    pub mean: f64,
    /// Its interval; `null` of one run.
    pub ci: Option<Interval>,
    /// Change in per cent against the first value of the axis that is compared; `null` at that value, or without one.
    pub change_pct: Option<f64>,
    /// Its interval, of pairs of runs with the same seed.
    pub change_ci: Option<Interval>,
}

/// A point of the sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Of which cut, from 0.
    pub cut: usize,
    /// A value for each axis.
    pub values: BTreeMap<String, String>,
    /// Seeds that are done.
    pub runs: usize,
    /// What is shown; empty if a run is missing.
    pub shown: Vec<Shown>,
    /// Why there are no numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// The result; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Version of this document.
    pub schema: u32,
    /// Of Pagefold.
    pub version: String,
    /// Of Pagefold's source.
    pub commit: String,
    /// Always `sweep`.
    pub command: String,
    /// The file's.
    pub title: String,
    /// The first seed.
    pub seed: u64,
    /// Seeds for each point.
    pub runs: u32,
    /// Names of the axes.
    pub axes: Vec<String>,
    /// The axis whose values are compared.
    pub compare: Option<String>,
    /// Probability of intervals.
    pub confidence: f64,
    /// Runs that are not done.
    pub left: usize,
    /// All points.
    pub rows: Vec<Row>,
    #[serde(skip)]
    sweep: Sweep,
}

/// A run of a point that is there: its seed and what became of it.
type Runs<'a> = Vec<(u64, &'a Done)>;

impl Outcome {
    /// Of what is done.
    pub fn of(sweep: &Sweep, done: &BTreeMap<Key, Done>) -> Outcome {
        let all: Vec<Runs<'_>> = sweep.whats.iter().map(|what| runs_of(sweep, what, done)).collect();
        let rows = sweep.points.iter().map(|point| {
            let base = sweep.points[point.base].what;
            let values = sweep.axes.iter().cloned().zip(point.values.iter().cloned()).collect();
            let (runs, base) = (&all[point.what], (base != point.what).then(|| &all[base]));
            let missing = runs.iter().chain(base.into_iter().flatten()).find_map(|(_, done)| match done {
                Done::Missing(why) => Some(why.clone()),
                Done::Record(_) => None,
            });
            let some = missing.is_none() && !runs.is_empty();
            let shown =
                sweep.metrics.iter().filter(|_| some).map(|metric| shown(metric, runs, base)).collect();
            Row { cut: point.cut, values, runs: runs.len(), shown, missing }
        });
        Outcome {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("PAGEFOLD_COMMIT").to_owned(),
            command: "sweep".to_owned(),
            title: sweep.title.clone(),
            seed: sweep.seed,
            runs: sweep.runs,
            axes: sweep.axes.clone(),
            compare: sweep.compare.map(|axis| sweep.axes[axis].clone()),
            confidence: crate::statistics::CONFIDENCE,
            left: sweep.whats.len() * sweep.runs as usize - all.iter().map(Vec::len).sum::<usize>(),
            rows: rows.collect(),
            sweep: sweep.clone(),
        }
    }

    /// For people.
    pub fn render(&self) -> String {
        let mut text = format!("{}\n", if self.title.is_empty() { "sweep" } else { &self.title });
        text += &format!(
            "{} for each point; means, and changes of means\n",
            human::plural(self.runs.into(), "run", "runs")
        );
        for cut in 0..self.sweep.cuts.len() {
            text.push('\n');
            text += &self.render_cut(cut);
        }
        let reasons: BTreeSet<&str> = self.rows.iter().filter_map(|row| row.missing.as_deref()).collect();
        for why in reasons {
            text += &format!("-: {why}\n");
        }
        if self.compare.is_some() {
            text += "\nchange: of the value, of pairs of runs with the same seed; * = its 95% interval excludes no change\n";
        }
        text
    }

    fn render_cut(&self, cut: usize) -> String {
        let (varied, fixed) = self.axes_of(cut);
        let fixed: Vec<String> = fixed
            .iter()
            .map(|&axis| format!("{} {}", self.axes[axis], self.sweep.cuts[cut].values[axis][0]))
            .collect();
        let columns = self.compared(cut);
        let headings = varied.iter().map(|&axis| self.axes[axis].clone());
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
            let values = varied.iter().map(|&axis| self.rows[first].values[&self.axes[axis]].clone());
            let cells = (0..self.sweep.metrics.len())
                .flat_map(|metric| group.iter().map(move |&row| cell(&self.rows[row], metric)));
            grid.row(values.chain(cells));
        }
        let count = varied.len();
        let fixed = if fixed.is_empty() { String::new() } else { format!("{}\n", fixed.join(", ")) };
        fixed + &grid.render(|column| column < count)
    }

    /// Axes that vary in a cut, and those that do not; that which is compared is neither.
    fn axes_of(&self, cut: usize) -> (Vec<usize>, Vec<usize>) {
        let axes = (0..self.axes.len()).filter(|&axis| self.sweep.compare != Some(axis));
        axes.partition(|&axis| self.sweep.cuts[cut].values[axis].len() > 1)
    }

    /// The values that are compared in a cut; `None` if nothing is.
    fn compared(&self, cut: usize) -> Vec<Option<String>> {
        match self.sweep.compare {
            Some(axis) => self.sweep.cuts[cut].values[axis].iter().cloned().map(Some).collect(),
            None => vec![None],
        }
    }

    /// Rows of a cut that differ in what is compared alone, together.
    fn groups(&self, cut: usize) -> Vec<Vec<usize>> {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (row, point) in self.sweep.points.iter().enumerate().filter(|(_, point)| point.cut == cut) {
            groups.entry(point.base).or_default().push(row);
        }
        groups.into_values().collect()
    }

    /// As a picture: for each cut and metric a panel over the first axis that varies; lines for what is compared, and
    /// for all other axes that vary. `None`: nothing varies.
    pub fn svg(&self) -> Option<String> {
        let cuts: Vec<(usize, usize)> =
            (0..self.sweep.cuts.len()).filter_map(|cut| Some((cut, *self.axes_of(cut).0.first()?))).collect();
        let marks: Vec<Vec<f64>> = cuts
            .iter()
            .map(|&(cut, axis)| (0..self.sweep.cuts[cut].values[axis].len()).map(|at| at as f64).collect())
            .collect();
        let names: Vec<_> = cuts
            .iter()
            .map(|&(cut, axis)| {
                let values = &self.sweep.cuts[cut].values[axis];
                move |at: f64| values[at as usize].clone()
            })
            .collect();
        let axes: Vec<Axis<'_>> = cuts
            .iter()
            .zip(marks.iter().zip(&names))
            .map(|(&(_, axis), (marks, show))| Axis { marks, show, label: &self.axes[axis] })
            .collect();
        let lines: Vec<(usize, usize, String, Vec<Line>)> = cuts
            .iter()
            .zip(0..)
            .flat_map(|(&(cut, axis), at)| {
                (0..self.sweep.metrics.len()).map(move |metric| {
                    (at, metric, self.title_of(cut, axis, metric), self.lines(cut, axis, metric))
                })
            })
            .collect();
        let percent = |value: f64| format!("{value:+.1}%");
        let units: Vec<_> = self.sweep.metrics.iter().map(|metric| self.unit(metric)).collect();
        let plain: Vec<_> = units.iter().map(|unit| move |value: f64| human::number(value, unit)).collect();
        let panels = lines.iter().map(|(at, metric, title, lines)| Panel {
            title,
            axis: &axes[*at],
            lines: lines.iter().map(|(name, marks)| (name.as_str(), marks.clone())).collect(),
            show: if self.sweep.compare.is_some() { &percent } else { &plain[*metric] },
        });
        let panels: Vec<_> = panels.collect();
        (!panels.is_empty()).then(|| plot(&self.title, &panels))
    }

    fn title_of(&self, cut: usize, axis: usize, metric: usize) -> String {
        let metric = &self.sweep.metrics[metric];
        let over = &self.axes[axis];
        match (self.sweep.compare, &self.compared(cut)[0]) {
            (Some(_), Some(base)) => format!("{metric} over {over}: change against {base}"),
            _ => format!("{metric} over {over}"),
        }
    }

    fn unit(&self, metric: &str) -> String {
        let mut shown = self.rows.iter().flat_map(|row| &row.shown);
        shown.find(|shown| shown.metric == metric).map(|shown| shown.unit.clone()).unwrap_or_default()
    }

    fn lines(&self, cut: usize, axis: usize, metric: usize) -> Vec<Line> {
        let (varied, _) = self.axes_of(cut);
        let values = &self.sweep.cuts[cut].values;
        let mut lines: Vec<Line> = Vec::new();
        for (row, point) in self.sweep.points.iter().enumerate().filter(|(_, point)| point.cut == cut) {
            if self.sweep.compare.is_some() && point.base == row {
                continue;
            }
            let others = varied.iter().filter(|&&other| other != axis);
            let others = others.map(|&other| format!("{} {}", self.axes[other], point.values[other]));
            let compared = self.sweep.compare.map(|axis| point.values[axis].clone());
            let name = compared.into_iter().chain(others).collect::<Vec<_>>().join(", ");
            let place =
                values[axis].iter().position(|value| *value == point.values[axis]).expect("one of them");
            let mark =
                self.rows[row].shown.get(metric).and_then(|shown| mark(place, shown, self.sweep.compare));
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, marks)) => marks.push(mark),
                None => lines.push((name, vec![mark])),
            }
        }
        lines
    }

    /// All runs with all that was measured, a line each; the first names the columns.
    pub fn csv(&self, done: &BTreeMap<Key, Done>) -> String {
        let records = || done.values().filter_map(record);
        let counters: BTreeSet<&str> =
            records().flat_map(|run| run.counters.keys().map(String::as_str)).collect();
        let metrics: BTreeSet<&str> =
            records().flat_map(|run| run.metrics.iter().map(|one| &one.name[..])).collect();
        let names: Vec<&str> = ["run_time"].into_iter().chain(metrics).chain(counters).collect();
        let mut csv = csv::Writer::from_writer(Vec::new());
        let written = "a row is written to memory";
        let axes = self.axes.iter().map(String::as_str);
        csv.write_record(
            ["cut"].into_iter().chain(axes).chain(["seed", "missing"]).chain(names.iter().copied()),
        )
        .expect(written);
        for point in &self.sweep.points {
            for (seed, done) in runs_of(&self.sweep, &self.sweep.whats[point.what], done) {
                let head = [point.cut.to_string()].into_iter().chain(point.values.iter().cloned());
                let missing = if let Done::Missing(why) = done { why.clone() } else { String::new() };
                let value = |name: &&str| {
                    record(done)
                        .and_then(|run| run.value(name))
                        .map_or(String::new(), |value| value.to_string())
                };
                csv.write_record(head.chain([seed.to_string(), missing]).chain(names.iter().map(value)))
                    .expect(written);
            }
        }
        String::from_utf8(csv.into_inner().expect(written)).expect("it was made of text")
    }
}

/// A name and its points.
type Line = (String, Vec<Option<Mark>>);

fn record(done: &Done) -> Option<&RunRecord> {
    match done {
        Done::Record(run) => Some(run),
        Done::Missing(_) => None,
    }
}

fn runs_of<'a>(sweep: &Sweep, what: &super::What, done: &'a BTreeMap<Key, Done>) -> Runs<'a> {
    let seeds = sweep.seed..sweep.seed + u64::from(sweep.runs);
    let find = |seed| Some((seed, done.get(&Key { what: what.clone(), seed })?));
    seeds.filter_map(find).collect()
}

fn shown(metric: &str, runs: &Runs<'_>, base: Option<&Runs<'_>>) -> Shown {
    let value = |done: &Done| record(done).and_then(|run| run.value(metric)).unwrap_or(0.0);
    let values: Vec<f64> = runs.iter().map(|(_, done)| value(done)).collect();
    let change = base.map(|base| {
        let other = |seed: u64| base.iter().find(|(of, _)| *of == seed).map(|(_, done)| value(done));
        let pairs = runs.iter().filter_map(|&(seed, done)| Some((other(seed)?, value(done))));
        let (before, after): (Vec<f64>, Vec<f64>) = pairs.unzip();
        Change::of(&before, &after)
    });
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let unit = runs.iter().find_map(|(_, done)| {
        let measured = record(done)?.metrics.iter().find(|one| one.name == metric)?;
        Some(measured.unit.clone())
    });
    Shown {
        metric: metric.to_owned(),
        unit: unit.unwrap_or_else(|| if metric == "run_time" { "ns".to_owned() } else { String::new() }),
        mean: mean(&values),
        ci: interval(&values),
        change_pct: change.and_then(|change| change.ratio).map(percent),
        change_ci: change.and_then(|change| change.ratio_interval).map(|ends| ends.map(percent)),
    }
}

fn cell(row: &Row, metric: usize) -> String {
    let Some(shown) = row.shown.get(metric) else { return "-".to_owned() };
    match (shown.change_pct, shown.change_ci) {
        (Some(change), ci) => {
            let told = ci.is_some_and(|[low, high]| low > 0.0 || high < 0.0);
            human::percent(change) + if told { "*" } else { "" }
        }
        _ => human::number(shown.mean, &shown.unit),
    }
}

fn mark(place: usize, shown: &Shown, compare: Option<usize>) -> Option<Mark> {
    let (y, interval) = match compare {
        Some(_) => (shown.change_pct?, shown.change_ci),
        None => (shown.mean, shown.ci),
    };
    Some(Mark { x: place as f64, y, interval })
}

//! How a program's rate grows with the CPUs that run it, and for which locks and cache lines they wait.

use crate::document::Document;
use crate::grid::Grid;
use crate::human;
use crate::locks::{self, LineRecord, LockRecord};
use crate::plot::{Axis, Panel, Point, render as plot};
use crate::record::{Better, RunRecord};
use crate::statistics::mean;
use serde::Serialize;

/// Locks and lines for which CPUs wait less of their time than this are not shown in the table.
const SMALL: f64 = 0.005;

/// What the shares are of.
const WAITING: &str = "waiting at locks and for lines, of the tasks' time";

/// A program with one number of tasks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Tasks, each on a CPU of its own.
    pub cpus: u32,
    /// Units of the program's own work a second; the mean of the runs.
    pub rate: f64,
    /// The rate of each run, in the order of seeds.
    pub runs: Vec<f64>,
    /// The rate of a task, as a share of that of the first row.
    pub efficiency: f64,
    /// Of the tasks' time, what they wait at the locks of a class; the most first.
    pub waiting: Vec<Waiting>,
    /// Of the tasks' time, what lines of a kind took to come from other CPUs; the most first.
    pub lines: Vec<Fetching>,
}

impl Row {
    /// What CPUs wait for, by name, with its share of their time.
    fn shares(&self) -> impl Iterator<Item = (&str, f64)> {
        let locks = self.waiting.iter().map(|lock| (&*lock.lock, lock.share));
        locks.chain(self.lines.iter().map(|line| (&*line.line, line.share)))
    }

    /// The same without what is too little to be shown.
    fn shown(&self) -> impl Iterator<Item = (&str, f64)> {
        self.shares().filter(|&(_, share)| share >= SMALL)
    }
}

/// Waiting at the locks of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waiting {
    /// The class.
    pub lock: String,
    /// Its share of the tasks' time.
    pub share: f64,
}

/// Fetching cache lines of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fetching {
    /// The kind.
    pub line: String,
    /// Its share of the tasks' time.
    pub share: f64,
}

/// The rates of a program with more and more CPUs; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scale {
    /// As on the command line.
    pub program: String,
    /// A preset or a file.
    pub machine: String,
    /// The profile.
    pub profile: String,
    /// The first seed.
    pub seed: u64,
    /// Seeds for each row.
    pub runs: u32,
    /// From the fewest CPUs to the most.
    pub rows: Vec<Row>,
    /// Seconds on this computer.
    pub host_seconds: f64,
}

/// The rows of runs, which come with their numbers of CPUs, in order. `measured`: the nanoseconds in which a run's
/// progress was counted, if that is not all of the run: what the tasks need to begin grows with their number.
pub fn rows<'a>(cpus: &[u32], measured: Option<u64>, of: impl Fn(u32) -> Vec<&'a RunRecord>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for &cpus in cpus {
        let records = of(cpus);
        let seconds = |run: &RunRecord| measured.unwrap_or(run.nanos).max(1) as f64 / 1e9;
        let runs: Vec<f64> = records.iter().map(|run| run.work.progress as f64 / seconds(run)).collect();
        let rate = mean(&runs);
        let alone = rows.first().map_or(rate / f64::from(cpus), |first| first.rate / f64::from(first.cpus));
        let time: f64 = records.iter().map(|run| run.nanos as f64 * f64::from(cpus)).sum();
        let waiting = locks::sum(records.iter().map(|run| &run.locks[..]));
        let waiting = waiting.into_iter().filter(|lock| lock.waited > 0);
        let waiting = waiting
            .map(|LockRecord { lock, waited, .. }| Waiting { lock, share: waited as f64 / time.max(1.0) });
        let lines = locks::sum_lines(records.iter().map(|run| &run.lines[..]));
        let lines = lines.into_iter().filter(|line| line.took > 0);
        let lines =
            lines.map(|LineRecord { line, took, .. }| Fetching { line, share: took as f64 / time.max(1.0) });
        let efficiency = rate / f64::from(cpus) / alone;
        rows.push(Row { cpus, rate, runs, efficiency, waiting: waiting.collect(), lines: lines.collect() });
    }
    rows
}

impl Document for Scale {
    const COMMAND: &'static str = "scale";

    fn text(&self, width: usize) -> String {
        let mut grid = Grid::new(["CPUs", "rate", "of one", WAITING]);
        for row in &self.rows {
            let waiting = row.shown().map(|(name, share)| format!("{name} {:.1} %", share * 100.0));
            grid.row([
                row.cpus.to_string(),
                human::number(row.rate, "/s"),
                format!("{:.0} %", row.efficiency * 100.0),
                waiting.collect::<Vec<_>>().join(", "),
            ]);
        }
        format!(
            "program  {}\nmachine  {}\nprofile  {}\nruns     {} (seeds {})\n\n{}",
            self.program,
            self.machine,
            self.profile,
            self.runs,
            human::seeds(self.seed, self.runs),
            grid.render(|column| column == 3, width)
        )
    }

    fn svg(&self) -> Option<String> {
        (self.rows.len() > 1).then(|| self.picture())
    }
}

impl Scale {
    fn picture(&self) -> String {
        let marks = self.rows.iter().map(|row| (f64::from(row.cpus), row.cpus.to_string())).collect();
        let axis = Axis { marks, label: "CPUs".to_owned() };
        let points = |value: &dyn Fn(&Row) -> f64| {
            let point = |row: &Row| {
                let (x, y) = (f64::from(row.cpus), value(row));
                Some(Point { x, y, interval: None, dots: Vec::new() })
            };
            self.rows.iter().map(point).collect::<Vec<_>>()
        };
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.rows.iter().flat_map(Row::shown) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let share = |name: &str, row: &Row| {
            100.0 * row.shares().find(|&(other, _)| other == name).map_or(0.0, |(_, share)| share)
        };
        let rate = Panel {
            title: "units of work a second".to_owned(),
            better: Some(Better::Higher),
            axis: &axis,
            lines: vec![(self.program.clone(), points(&|row| row.rate))],
            show: Box::new(|value| human::number(value, "")),
        };
        let waiting = Panel {
            title: WAITING.to_owned(),
            better: Some(Better::Lower),
            axis: &axis,
            lines: names.iter().map(|&name| (name.to_owned(), points(&|row| share(name, row)))).collect(),
            show: Box::new(|value| format!("{value:.0} %")),
        };
        let mut panels = vec![rate];
        panels.extend(Some(waiting).filter(|panel| !panel.lines.is_empty()));
        let title = format!("{} with more CPUs", self.program);
        let about = format!(
            "{} under {}; {}",
            self.machine,
            self.profile,
            human::plural(u64::from(self.runs), "run", "runs")
        );
        plot((&title, &about), &panels, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::run;

    #[test]
    fn rates_waiting_and_efficiency_come_from_the_runs() {
        let record = |cpus: u64, progress: u64, waited: u64| {
            let mut record = run("classic", 1, 1_000_000_000, &[]);
            record.work.progress = progress;
            let lock = LockRecord { lock: "zone_lock".to_owned(), waited, ..LockRecord::default() };
            record.locks = vec![lock];
            let line =
                LineRecord { line: "frame_line".to_owned(), took: waited / 10, ..LineRecord::default() };
            record.lines = vec![line];
            (cpus, record)
        };
        let runs = [record(1, 100, 0), record(4, 200, 2_000_000_000)];
        let of = |cpus: u32| runs.iter().filter(|run| run.0 == u64::from(cpus)).map(|run| &run.1).collect();
        // Of each run a tenth is measured.
        let measured = rows(&[1, 4], Some(100_000_000), of);
        assert_eq!((measured[0].rate, measured[1].rate, measured[1].efficiency), (1000.0, 2000.0, 0.5));
        let rows = rows(&[1, 4], None, of);
        assert_eq!((rows[0].rate, rows[0].efficiency, rows[0].shares().count()), (100.0, 1.0, 0));
        assert_eq!((rows[1].rate, rows[1].efficiency, rows[1].waiting[0].share), (200.0, 0.5, 0.5));
        let scale = Scale {
            program: "mmap1_threads".into(),
            machine: "laptop".into(),
            profile: "classic".into(),
            seed: 1,
            runs: 1,
            rows,
            host_seconds: 0.0,
        };
        assert!(scale.text(100).contains("zone_lock 50.0 %, frame_line 5.0 %"), "{}", scale.text(100));
        assert!(scale.svg().is_some_and(|svg| svg.contains("zone_lock")));
    }
}

//! The curve of a program: a sweep over sizes of memory.

use super::plan::{Sweep, What};
use super::result::reasons;
use super::store::{Done, Finished, Key};
use crate::document::Document;
use crate::error::Result;
use crate::grid::Grid;
use crate::human;
use crate::plot::{Axis, Panel, Point, render as plot};
use crate::record::{Better, RunRecord};
use crate::statistics::median::median;
use crate::statistics::{CONFIDENCE, Interval, interval, mean};
use mm::stat::Stat;
use serde::Serialize;
use std::collections::BTreeMap;

/// The metrics that are shown: name, unit, and what it is.
const SHOWN: [(&str, &str, &str); 3] = [
    ("run_time", "s", "run time"),
    ("pgmajfault", "", "major faults: pages that came from a disk for an access"),
    ("refaults", "", "refaults: pages that had been evicted and were needed again"),
];

/// A metric over the runs with one size and profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Value {
    /// Mean over the runs.
    pub mean: f64,
    /// Its interval; `null` for one run.
    pub interval: Option<Interval>,
    /// The value of each run, in the order of seeds.
    pub runs: Vec<f64>,
}

impl Value {
    fn text(&self, unit: &str) -> String {
        let half = self.interval.map(|[low, high]| (high - low) / 2.0).filter(|&half| half > 0.0);
        let half = half.map(|half| format!(" ±{:.1}%", 100.0 * half / self.mean)).unwrap_or_default();
        human::number(self.mean, unit) + &half
    }
}

/// One profile with one size of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Bytes of memory.
    pub memory: u64,
    /// The same as a share of the most that the program has at once.
    pub share: f64,
    /// The profile.
    pub profile: String,
    /// Bytes that are left to the program and its page tables; kswapd keeps the others free. `null` if it cannot run.
    pub left: Option<u64>,
    /// Seconds of the run; this and the following are `null` if the program cannot run.
    pub run_time: Option<Value>,
    /// Pages that came from a disk for an access.
    pub pgmajfault: Option<Value>,
    /// Pages that had been evicted and were needed again.
    pub refaults: Option<Value>,
    /// Whether the size was added because its neighbours are unclear.
    pub added: bool,
    /// Why there are no numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Runs differ much, and points between two sizes are worth their time, from this share of the median on.
const UNCLEAR: f64 = 0.2;
/// Sizes are at least this share of the program's most apart.
const APART: f64 = 0.01;

impl Row {
    /// How far apart run times are, as a share of their median.
    fn spread(&self) -> f64 {
        let Some(value) = &self.run_time else { return 0.0 };
        let (low, high) =
            value.runs.iter().fold((f64::MAX, f64::MIN), |(low, high), &run| (low.min(run), high.max(run)));
        (high - low) / median(&value.runs)
    }

    /// By how much the program takes longer than with less memory, as a share of the median there.
    fn rise(&self, less: &Row) -> f64 {
        match (&less.run_time, &self.run_time) {
            (Some(less), Some(value)) => median(&value.runs) / median(&less.runs) - 1.0,
            _ => 0.0,
        }
    }

    fn values(&self) -> [Option<&Value>; SHOWN.len()] {
        [&self.run_time, &self.pgmajfault, &self.refaults].map(Option::as_ref)
    }
}

/// The curve; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// As on the command line.
    pub program: String,
    /// A preset or a file.
    pub machine: String,
    /// The most bytes that the program has at once: shares are of it.
    pub peak_live: u64,
    /// The first seed.
    pub seed: u64,
    /// Seeds for each row.
    pub runs: u32,
    /// What differs between seeds besides what the machine draws, as `--vary` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vary: Option<String>,
    /// The profiles that are compared.
    pub profiles: Vec<String>,
    /// Probability of intervals.
    pub confidence: f64,
    /// From the least memory to the most, and for each size the profiles in order.
    pub rows: Vec<Row>,
    /// What the numbers of a sampled program stand for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<String>,
    /// Seconds on this computer.
    pub host_seconds: f64,
}

/// The sweep of a program over `sizes`, ascending, each with all `profiles`.
pub fn sweep(of: &What, sizes: &[u64], profiles: &[String], seeds: (u64, u32)) -> Sweep {
    let memory: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let axes = [("memory", memory.clone()), ("profile", profiles.to_vec())];
    Sweep::product(axes, seeds, &SHOWN.map(|(name, ..)| name), |[size, profile]| What {
        memory: Some(memory[size].clone()),
        profile: profiles[profile].clone(),
        ..of.clone()
    })
}

/// The outcome of a run. A program that was killed for want of memory, even one that may be, has no numbers here.
pub fn outcome(run: Result<RunRecord>) -> Result<Done> {
    match run {
        Ok(record) if record.counter(Stat::OomKill) > 0.0 => Ok(Done::Missing("out of memory".to_owned())),
        other => Done::of(other),
    }
}

impl Curve {
    /// The curve of the runs that are done; a size without all of its runs is left out.
    pub fn of(sweep: &Sweep, done: &BTreeMap<Key, Done>, peak_live: u64, host_seconds: f64) -> Curve {
        let finished = Finished::of(sweep, done);
        let What { program, machine, vary, .. } = sweep.whats[0].clone();
        let mut curve = Curve {
            program,
            machine,
            peak_live,
            seed: sweep.seed,
            runs: sweep.runs,
            vary,
            profiles: sweep.cuts[0].values[1].clone(),
            confidence: CONFIDENCE,
            rows: Vec::new(),
            sampled: None,
            host_seconds,
        };
        for size in sweep.points.chunks(curve.profiles.len()) {
            if size.iter().all(|point| finished.runs(point.what).len() == sweep.runs as usize) {
                let rows = size.iter().map(|point| curve.row(&finished, point.what, &point.values));
                curve.rows.append(&mut rows.collect());
            }
        }
        curve
    }

    fn row(&self, finished: &Finished<'_>, what: usize, values: &[String]) -> Row {
        let missing = finished.missing(what);
        let memory = values[0].parse().expect("the values of the axis are bytes");
        let [run_time, pgmajfault, refaults] = SHOWN.map(|(metric, ..)| {
            let values: Vec<f64> = finished.values(what, metric).into_values().collect();
            missing.is_none().then(|| Value {
                mean: mean(&values),
                interval: interval(&values),
                runs: values,
            })
        });
        let share = memory as f64 / self.peak_live.max(1) as f64;
        let run = finished.runs(what).iter().find_map(|(_, done)| done.record());
        let left = run.filter(|_| missing.is_none()).and_then(|run| run.left_of(memory));
        Row {
            memory,
            share,
            profile: values[1].clone(),
            left,
            run_time,
            pgmajfault,
            refaults,
            added: false,
            missing,
        }
    }

    /// Up to `most` sizes between neighbours of which it is not clear what happens between them: run times of one size
    /// differ much, or more memory takes longer. The most unclear ones come first.
    pub fn between(&self, most: usize) -> Vec<u64> {
        let sizes: Vec<&[Row]> = self.rows.chunks(self.profiles.len()).collect();
        let mut found: Vec<(f64, u64)> = Vec::new();
        for pair in sizes.windows(2) {
            let (less, more) = (pair[0][0].memory, pair[1][0].memory);
            let rows = pair[0].iter().zip(pair[1]);
            let unclear = rows.map(|(less, more)| less.spread().max(more.spread()).max(more.rise(less)));
            let unclear = unclear.fold(0.0, f64::max);
            if unclear > UNCLEAR && (more - less) as f64 >= 2.0 * APART * self.peak_live as f64 {
                found.push((unclear, less.midpoint(more)));
            }
        }
        found.sort_by(|one, other| other.0.total_cmp(&one.0));
        found.into_iter().take(most).map(|(_, size)| size).collect()
    }

    /// Say which sizes were added.
    pub fn mark_added(&mut self, sizes: &[u64]) {
        self.rows.iter_mut().for_each(|row| row.added = sizes.contains(&row.memory));
    }

    /// The number of sizes that are finished.
    pub fn sizes(&self) -> usize {
        self.rows.len() / self.profiles.len()
    }
}

impl Document for Curve {
    const COMMAND: &'static str = "curve";
    const SCHEMA: u32 = 2;

    fn text(&self, width: usize) -> String {
        let mut text = format!(
            "program  {} ({} at once at most)\nmachine  {}\n{}runs     {} for each size and profile; means, ± half of the 95 % interval\n\n",
            self.program,
            human::bytes(self.peak_live as f64),
            self.machine,
            self.vary.iter().map(|what| format!("varies   {what}\n")).collect::<String>(),
            self.runs
        );
        for (shown, (_, unit, what)) in SHOWN.iter().enumerate() {
            let headings =
                ["memory", "share", "left"].into_iter().chain(self.profiles.iter().map(String::as_str));
            let mut grid = Grid::new(headings);
            grid.keys(3);
            for size in self.rows.chunks(self.profiles.len()) {
                let mut left = size.iter().filter_map(|row| row.left);
                let first = left.next();
                let left = match first {
                    Some(_) if left.any(|other| Some(other) != first) => "differs".to_owned(),
                    Some(bytes) => human::bytes(bytes as f64),
                    None => "-".to_owned(),
                };
                let added = if size[0].added { "+ " } else { "" };
                let head = [
                    added.to_owned() + &human::bytes(size[0].memory as f64),
                    human::share(size[0].share),
                    left,
                ];
                let value = |row: &Row| row.values()[shown].map_or("-".to_owned(), |value| value.text(unit));
                grid.row(head.into_iter().chain(size.iter().map(value)));
            }
            text += &format!("{what}\n{}\n", grid.render(|_| false, width));
        }
        if self.rows.iter().any(|row| row.added) {
            text += &format!(
                "+: added, as run times beside it differ by more than {:.0} % of their median, or more memory takes longer by \
                 that\n",
                100.0 * UNCLEAR
            );
        }
        text += &self.sampled.iter().map(|text| format!("note: {text}\n")).collect::<String>();
        text += "left: to the program and its page tables; kswapd keeps the others free\n";
        text + &reasons(self.rows.iter().filter_map(|row| row.missing.as_deref()))
    }

    fn svg(&self) -> Option<String> {
        let percent = |row: &Row| row.share * 100.0;
        let label = format!("memory, of the program's {}", human::bytes(self.peak_live as f64));
        let mark = |row: &Row| match row.added {
            true => (percent(row), String::new()),
            false => (percent(row), human::share(row.share).replace(' ', "")),
        };
        let axis = Axis { marks: self.rows.iter().step_by(self.profiles.len()).map(mark).collect(), label };
        let panels = SHOWN.iter().enumerate().map(|(shown, (_, unit, what))| {
            let point = |row: &Row| {
                let value = row.values()[shown]?;
                // The runs show more than their interval: whether there is one value or there are two.
                let dots = value.runs.clone();
                Some(Point { x: percent(row), y: value.mean, interval: None, dots })
            };
            let line = |(at, name): (usize, &String)| {
                let rows = self.rows.iter().skip(at).step_by(self.profiles.len());
                (name.clone(), rows.map(point).collect())
            };
            let lines = self.profiles.iter().enumerate().map(line).collect();
            let show = Box::new(|value| human::number(value, unit));
            Panel { title: (*what).to_owned(), better: Some(Better::Lower), axis: &axis, lines, show }
        });
        let title = format!("{} on {}", self.program, self.machine);
        let mut about = format!("Each of {} runs is a dot; lines join their means.", self.runs);
        if self.rows.iter().any(|row| row.added) {
            about += " Marks above an axis: sizes that were added, as those beside them are unclear.";
        }
        Some(plot((&title, &about), &panels.collect::<Vec<_>>(), 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::metrics::tests::run;

    fn curve() -> Curve {
        let of = What { program: "redis".into(), machine: "laptop".into(), ..What::default() };
        let profiles = ["classic", "mglru"].map(str::to_owned);
        let sweep = sweep(&of, &[50 << 20, 100 << 20], &profiles, (1, 2));
        let refaults = [(Stat::WorkingsetRefaultAnon, 4), (Stat::WorkingsetRefaultFile, 5)];
        let counters = [&refaults[..], &[(Stat::Pgmajfault, 7)]].concat();
        let mut done = BTreeMap::new();
        for (what, millis) in sweep.whats.iter().zip([80, 90, 10, 20]) {
            for seed in [1, 2] {
                let record = run(&what.profile, seed, (millis + 2 * (seed - 1)) * 1_000_000, &counters);
                done.insert(Key { what: what.clone(), seed }, outcome(Ok(record)).unwrap());
            }
        }
        let killed = run("mglru", 1, 1, &[(Stat::OomKill, 1)]);
        done.insert(Key { what: sweep.whats[1].clone(), seed: 1 }, outcome(Ok(killed)).unwrap());
        Curve::of(&sweep, &done, 100 << 20, 0.0)
    }

    #[test]
    fn table_has_a_row_for_each_size_and_a_column_for_each_profile() {
        let text = curve().text(100);
        let row = |share: &str| text.lines().find(|line| line.contains(share)).unwrap().to_owned();
        assert!(row("50 %").contains("81.0 ms") && row("50 %").ends_with("-"), "{text}");
        assert!(row("100 %").contains("11.0 ms") && row("100 %").contains("21.0 ms"));
        assert!(text.ends_with("-: out of memory\n"));
        assert_eq!(text.matches("pages that").count(), 2);
    }

    #[test]
    fn picture_has_a_gap_for_a_size_that_cannot_run() {
        let svg = curve().svg().unwrap();
        assert_eq!(svg.matches("<circle").count(), 3 * 3 * 2);
        assert!(!svg.contains("NaN") && svg.contains(">50%<"));
    }

    #[test]
    fn sizes_are_added_where_runs_differ_or_more_memory_takes_longer() {
        let of = What { program: "redis".into(), machine: "laptop".into(), ..What::default() };
        // At 50 %, one run takes a quarter longer; at 80 % all take longer than at 70.
        let millis = [
            (40, [100, 100, 100]),
            (50, [80, 80, 100]),
            (60, [80, 80, 80]),
            (70, [50, 50, 50]),
            (80, [90, 90, 90]),
        ];
        let sizes = millis.map(|(size, _)| size << 20);
        let sweep = sweep(&of, &sizes, &["classic".to_owned()], (1, 3));
        let mut done = BTreeMap::new();
        for (what, (_, millis)) in sweep.whats.iter().zip(millis) {
            for (seed, millis) in (1..).zip(millis) {
                let record = run(&what.profile, seed, millis * 1_000_000, &[]);
                done.insert(Key { what: what.clone(), seed }, outcome(Ok(record)).unwrap());
            }
        }
        let mut curve = Curve::of(&sweep, &done, 100 << 20, 0.0);
        assert_eq!(curve.between(9), [75, 45, 55].map(|size| size << 20));
        assert_eq!(curve.between(1), [75 << 20]);
        assert!(Curve { peak_live: 1000 << 20, ..curve.clone() }.between(9).is_empty(), "they are near");
        assert!(!curve.text(100).contains('+') && !curve.svg().unwrap().contains("Marks above"));
        curve.mark_added(&[50 << 20]);
        let text = curve.text(100);
        assert!(text.contains("+ 50.0 MiB") && text.contains("+: added") && !text.contains("+ 60"), "{text}");
        let svg = curve.svg().unwrap();
        assert!(svg.contains("Marks above") && svg.contains(">60%<") && !svg.contains(">50%<"), "{svg}");
        let json = serde_json::to_value(&curve).unwrap();
        assert_eq!((&json["rows"][1]["added"], &json["rows"][2]["added"]), (&true.into(), &false.into()));
    }

    #[test]
    fn only_bad_input_makes_a_gap() {
        assert_eq!(outcome(Err(Error::input("small"))).unwrap(), Done::Missing("small".into()));
        assert!(outcome(Err(Error::Failed("oracle".into()))).is_err());
    }
}

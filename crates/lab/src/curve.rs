//! How a program fares with more and less memory: the first question that anyone has of it.

use crate::grid::Grid;
use crate::human;
use crate::plot::{Axis, Panel, Point, render as plot};
use crate::statistics::{Interval, interval, mean};
use serde::Serialize;

/// Version of the JSON document.
const SCHEMA: u32 = 1;

/// What is shown of a run: its name in [`crate::record::RunRecord::value`], the unit, what it is.
pub const SHOWN: [(&str, &str, &str); 3] = [
    ("run_time", "ns", "run time"),
    ("pgmajfault", "", "major faults: pages that came from a disk for an access"),
    ("refaults", "", "refaults: pages that had been evicted and were needed again"),
];

/// One of [`SHOWN`] over the runs of a size and a profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Value {
    /// Mean over the runs.
    pub mean: f64,
    /// Its interval; `null` of one run.
    pub interval: Option<Interval>,
}

impl Value {
    fn of(values: &[f64]) -> Value {
        Value { mean: mean(values), interval: interval(values) }
    }

    fn text(&self, unit: &str) -> String {
        let half = self.interval.map(|[low, high]| (high - low) / 2.0).filter(|&half| half > 0.0);
        let half = half.map(|half| format!(" ±{:.1}%", 100.0 * half / self.mean)).unwrap_or_default();
        human::number(self.mean, unit) + &half
    }
}

/// One profile with so much memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Bytes of memory.
    pub memory: u64,
    /// The same as a share of what the program has at once at most.
    pub share: f64,
    /// The profile.
    pub profile: String,
    /// Nanoseconds of the run; this and what follows is `null` if it cannot run.
    pub run_time: Option<Value>,
    /// Pages that came from a disk for an access.
    pub pgmajfault: Option<Value>,
    /// Pages that had been evicted and were needed again.
    pub refaults: Option<Value>,
    /// Why there are no numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// What a run has shown, in the order of [`SHOWN`], or why there is nothing.
pub type Shown = Result<[f64; SHOWN.len()], String>;

impl Row {
    /// From its runs.
    pub fn of(memory: u64, peak_live: u64, profile: &str, runs: &[Shown]) -> Row {
        let share = memory as f64 / peak_live.max(1) as f64;
        let complete: Result<Vec<_>, String> = runs.iter().cloned().collect();
        let (complete, missing) = match complete {
            Ok(complete) => (complete, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let value = |shown: usize| {
            let values: Vec<f64> = complete.iter().map(|run| run[shown]).collect();
            (!values.is_empty()).then(|| Value::of(&values))
        };
        let [run_time, pgmajfault, refaults] = [value(0), value(1), value(2)];
        Row { memory, share, profile: profile.to_owned(), run_time, pgmajfault, refaults, missing }
    }

    fn values(&self) -> [Option<Value>; SHOWN.len()] {
        [self.run_time, self.pgmajfault, self.refaults]
    }
}

/// The curve; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Version of this document.
    pub schema: u32,
    /// Of Pagefold.
    pub version: String,
    /// Of Pagefold's source.
    pub commit: String,
    /// Always `curve`.
    pub command: String,
    /// As on the command line.
    pub program: String,
    /// Preset or file.
    pub machine: String,
    /// Bytes that the program has at once at most: what shares are of.
    pub peak_live: u64,
    /// The first seed.
    pub seed: u64,
    /// Seeds for each row.
    pub runs: u32,
    /// What is compared.
    pub profiles: Vec<String>,
    /// Probability of intervals.
    pub confidence: f64,
    /// From the least memory to the most, and in each the profiles in order.
    pub rows: Vec<Row>,
    /// How long it took on this computer.
    pub host_seconds: f64,
}

impl Curve {
    /// Without rows.
    pub fn new((program, machine): (&str, &str), peak_live: u64, profiles: &[String]) -> Curve {
        Curve {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("PAGEFOLD_COMMIT").to_owned(),
            command: "curve".to_owned(),
            program: program.to_owned(),
            machine: machine.to_owned(),
            peak_live,
            seed: 1,
            runs: 1,
            profiles: profiles.to_vec(),
            confidence: crate::statistics::CONFIDENCE,
            rows: Vec::new(),
            host_seconds: 0.0,
        }
    }

    /// For people.
    pub fn render(&self) -> String {
        let mut text = format!(
            "program  {} ({} at once at most)\nmachine  {}\nruns     {} for each size and profile; means, ± half of the 95 % interval\n\n",
            self.program,
            human::bytes(self.peak_live as f64),
            self.machine,
            self.runs
        );
        for (shown, (_, unit, what)) in SHOWN.iter().enumerate() {
            text += &format!("{what}\n");
            let headings = ["memory", "share"].into_iter().chain(self.profiles.iter().map(String::as_str));
            let mut grid = Grid::new(headings);
            for size in self.rows.chunks(self.profiles.len()) {
                let head = [human::bytes(size[0].memory as f64), format!("{:.0} %", size[0].share * 100.0)];
                let value = |row: &Row| row.values()[shown].map_or("-".to_owned(), |value| value.text(unit));
                grid.row(head.into_iter().chain(size.iter().map(value)));
            }
            text += &grid.render(|_| false);
            text.push('\n');
        }
        let mut reasons: Vec<&str> = self.rows.iter().filter_map(|row| row.missing.as_deref()).collect();
        reasons.dedup();
        for why in reasons {
            text += &format!("-: {why}\n");
        }
        text
    }

    /// As a picture.
    pub fn svg(&self) -> String {
        let marks: Vec<f64> =
            self.rows.chunks(self.profiles.len()).map(|size| size[0].share * 100.0).collect();
        let percent = |share: f64| format!("{share:.0}%");
        let shows: Vec<_> =
            SHOWN.iter().map(|(_, unit, _)| move |value: f64| human::number(value, unit)).collect();
        let label = format!("memory, of the program's {}", human::bytes(self.peak_live as f64));
        let axis = Axis { marks: &marks, show: &percent, label: &label };
        let panels = SHOWN.iter().enumerate().map(|(shown, (_, _, what))| {
            let line = |profile: usize| {
                let rows = self.rows.iter().skip(profile).step_by(self.profiles.len());
                let point = |row: &Row| {
                    let value = row.values()[shown]?;
                    Some(Point { x: row.share * 100.0, y: value.mean, interval: value.interval })
                };
                (self.profiles[profile].as_str(), rows.map(point).collect())
            };
            let lines = (0..self.profiles.len()).map(line).collect();
            Panel { title: what, axis: &axis, lines, show: &shows[shown] }
        });
        let title = format!("{} on {}, {} runs", self.program, self.machine, self.runs);
        plot(&title, &panels.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve() -> Curve {
        let profiles = ["classic".to_owned(), "mglru".to_owned()];
        let mut curve = Curve::new(("redis", "laptop"), 100 << 20, &profiles);
        let runs = |time: f64| [Ok([time, 7.0, 9.0]), Ok([time + 2e6, 7.0, 9.0])];
        curve.rows = vec![
            Row::of(50 << 20, 100 << 20, "classic", &runs(80e6)),
            Row::of(50 << 20, 100 << 20, "mglru", &[Err("out of memory".to_owned()), runs(1.0)[0].clone()]),
            Row::of(100 << 20, 100 << 20, "classic", &runs(10e6)),
            Row::of(100 << 20, 100 << 20, "mglru", &runs(20e6)),
        ];
        curve.runs = 2;
        curve
    }

    #[test]
    fn sizes_stand_in_rows_and_profiles_in_columns() {
        let text = curve().render();
        let row = |share: &str| text.lines().find(|line| line.contains(share)).unwrap().to_owned();
        assert!(row("50 %").contains("81.0 ms") && row("50 %").ends_with("-"), "{text}");
        assert!(row("100 %").contains("11.0 ms") && row("100 %").contains("21.0 ms"));
        assert!(text.ends_with("-: out of memory\n"));
        assert_eq!(text.matches("pages that").count(), 2);
    }

    #[test]
    fn what_could_not_run_is_a_gap() {
        let svg = curve().svg();
        assert_eq!(svg.matches("<circle").count(), 3 * 3);
        assert!(!svg.contains("NaN") && svg.contains(">50%<"));
    }
}

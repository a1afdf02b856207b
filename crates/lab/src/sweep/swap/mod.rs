//! How programs fare with each kind of swap, and which suits them best: a sweep over programs, sizes of memory, kinds
//! of swap and swappiness.
//!
//! ```text
//! kinds    kinds of swap
//! row      the runs of one kind and one swappiness
//! turn     where the choice turns
//! ```

pub mod kinds;
mod row;
pub mod turn;

pub use row::Row;

use super::plan::{Sweep, What};
use super::store::{Done, Finished, Key};
use crate::document::Document;
use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::human;
use crate::plot::{Axis, Panel, Point, render as plot};
use crate::record::{Better, RunRecord};
use crate::statistics::{Change, interval, mean};
use kinds::Kind;
use mm::stat::Stat;
use row::{OUT_OF_MEMORY, TOO_LONG};
use serde::Serialize;
use std::collections::BTreeMap;
use turn::{Search, Turn};

/// A program with a size of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// As on the command line.
    pub program: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Memory as on the command line.
    pub size: String,
}

/// What is compared.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Programs, each with each size of memory.
    pub cases: Vec<Case>,
    /// Kinds of swap.
    pub kinds: Vec<Kind>,
    /// How zram and zswap compress.
    pub algorithm: String,
    /// Values of `vm.swappiness`.
    pub swappiness: Vec<u64>,
}

impl Choices {
    /// The sweep of all cases over kinds of swap and swappiness. Without a swap area swappiness means nothing, so
    /// there it is left as it is.
    pub fn sweep(&self, of: &What, seeds: (u64, u32)) -> Sweep {
        let named = |case: &Case| format!("{} {}", case.program, case.size);
        let axes = [
            ("program", self.cases.iter().map(named).collect()),
            ("swap", self.kinds.iter().map(|kind| kind.name.clone()).collect()),
            ("swappiness", self.swappiness.iter().map(u64::to_string).collect()),
        ];
        Sweep::product(axes, seeds, &["run_time", "pgmajfault"], |[case, kind, value]| {
            self.what(of, &self.cases[case], &self.kinds[kind], self.swappiness[value])
        })
    }

    fn what(&self, of: &What, case: &Case, kind: &Kind, swappiness: u64) -> What {
        let swappiness = kind.swaps().then(|| format!("vm.swappiness={swappiness}"));
        let zswap = ["zswap.enabled=1".to_owned(), format!("zswap.compressor={}", self.algorithm)];
        let more = swappiness.into_iter().chain(zswap.into_iter().filter(|_| kind.zswap));
        What {
            program: case.program.clone(),
            memory: Some(case.memory.to_string()),
            set: of.set.iter().cloned().chain(more).collect(),
            swap: kind.areas.clone(),
            ..of.clone()
        }
    }

    /// The searches for where the choices of `found` turn.
    pub fn searches(&self, of: &What, found: &Swappings) -> Vec<Search> {
        let of_case = |(at, swapping): (usize, &Swapping)| {
            let Swapping { program, memory, size, .. } = swapping.clone();
            let case = Case { program, memory, size };
            let kind =
                |row: &Row| self.kinds.iter().find(|kind| kind.name == row.swap).expect("rows are of kinds");
            Search::of(at, swapping, |row| {
                self.what(of, &case, kind(row), row.swappiness.unwrap_or_default())
            })
        };
        found.cases.iter().enumerate().flat_map(of_case).collect()
    }
}

/// The outcome of a run. That memory ran out, or that the program thrashed until its time was over, is a result here;
/// bad input is an error, as everywhere.
pub fn outcome(run: Result<RunRecord>) -> Result<Done> {
    match run {
        Ok(record) if record.counter(Stat::OomKill) > 0.0 => Ok(Done::Missing(OUT_OF_MEMORY.to_owned())),
        Err(Error::OutOfMemory(_)) => Ok(Done::Missing(OUT_OF_MEMORY.to_owned())),
        Err(Error::TimeLimit(_)) => Ok(Done::Missing(TOO_LONG.to_owned())),
        other => other.map(|record| Done::Record(Box::new(record))),
    }
}

/// A program with a size of memory and all kinds of swap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Swapping {
    /// As on the command line.
    pub program: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Memory as on the command line.
    pub size: String,
    /// Kinds of swap, each with all values of swappiness.
    pub rows: Vec<Row>,
    /// The row with the shortest mean run time; `null` if all ran out of memory.
    pub best: Option<usize>,
    /// What the numbers say.
    pub advice: String,
    /// Lines that make Linux do so.
    pub apply: Vec<String>,
    /// Where the choice turns, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<Turn>,
}

/// All cases; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Swappings {
    /// A preset or a file.
    pub machine: String,
    /// The profile.
    pub profile: String,
    /// How zram and zswap compress.
    pub algorithm: String,
    /// The first seed.
    pub seed: u64,
    /// Seeds for each row.
    pub runs: u32,
    /// Each program with each size of memory; those whose runs are all done.
    pub cases: Vec<Swapping>,
    /// Seconds on this computer.
    pub host_seconds: f64,
}

impl Swappings {
    /// The cases of a sweep whose runs are all done.
    pub fn of(sweep: &Sweep, done: &BTreeMap<Key, Done>, choices: &Choices, host_seconds: f64) -> Swappings {
        let Choices { cases, kinds, algorithm, swappiness } = choices;
        let finished = Finished::of(sweep, done);
        let What { machine, profile, .. } = sweep.whats[0].clone();
        let whole = |what: usize| finished.runs(what).len() == sweep.runs as usize;
        let case = |(case, points): (&Case, &[super::Point])| {
            points.iter().all(|point| whole(point.what)).then(|| {
                let (mut rows, mut of): (Vec<Row>, Vec<usize>) = Default::default();
                for (kind, points) in points.chunks(swappiness.len()).enumerate() {
                    let swaps = kinds[kind].swaps();
                    for (point, &value) in
                        points.iter().zip(swappiness).take(if swaps { points.len() } else { 1 })
                    {
                        let value = swaps.then_some(value);
                        rows.push(Row::new(&kinds[kind].name, value, finished.runs(point.what)));
                        of.push(kind);
                    }
                }
                let best = best(&rows);
                let apply = best.map(|at| apply(&rows[at], &kinds[of[at]])).unwrap_or_default();
                let Case { program, memory, size } = case.clone();
                Swapping {
                    program,
                    memory,
                    size,
                    advice: advice(&rows),
                    best,
                    apply,
                    rows,
                    turns: Vec::new(),
                }
            })
        };
        let points = sweep.points.chunks(kinds.len() * swappiness.len());
        Swappings {
            machine,
            profile,
            algorithm: algorithm.clone(),
            seed: sweep.seed,
            runs: sweep.runs,
            cases: cases.iter().zip(points).filter_map(case).collect(),
            host_seconds,
        }
    }
}

/// Lines that make Linux do as in a row.
fn apply(row: &Row, kind: &Kind) -> Vec<String> {
    let swappiness = row.swappiness.map(|swappiness| format!("sysctl vm.swappiness={swappiness}"));
    swappiness.into_iter().chain(kind.apply.iter().cloned()).collect()
}

/// The row with the shortest mean run time among those whose runs all ended.
pub fn best(rows: &[Row]) -> Option<usize> {
    let ended = rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.mean_time()?)));
    ended.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
}

/// A sentence about the best row, beside the best row of each other kind of swap.
pub fn advice(rows: &[Row]) -> String {
    let Some(at) = best(rows) else {
        return format!("With no kind of swap the program came to its end in every run.{}", not_ended(rows));
    };
    let best_row = &rows[at];
    let mut text = format!("{} took the least time", best_row.name());
    let mut others: Vec<&Row> = Vec::new();
    for row in rows.iter().filter(|row| row.swap != best_row.swap && row.ended()) {
        match others.iter_mut().find(|other| other.swap == row.swap) {
            Some(other) if other.mean_time() > row.mean_time() => *other = row,
            Some(_) => {}
            None => others.push(row),
        }
    }
    let compared = others.iter().map(|other| {
        let change = Change::of(&other.run_time, &best_row.run_time);
        let less = |ratio: f64| (1.0 - ratio) * 100.0;
        let interval = change
            .ratio_interval
            .map(|[low, high]| format!(" (95 % interval: {:.1} to {:.1} % less)", less(high), less(low)));
        let interval = interval.unwrap_or_default();
        match change.ratio {
            Some(ratio) if change.is_significant() => {
                format!("{:.1} % less than {}{interval}", less(ratio), other.name())
            }
            _ => format!("no different from {}{interval}", other.name()),
        }
    });
    let compared: Vec<String> = compared.collect();
    if !compared.is_empty() {
        text += &format!(": {}", compared.join("; "));
    }
    text += ".";
    text + &not_ended(rows)
}

/// Sentences about the kinds of swap with which the program did not come to its end.
fn not_ended(rows: &[Row]) -> String {
    let mut text = String::new();
    let killed = kinds_of(rows, |row| row.killed > 0);
    if !killed.is_empty() {
        text += &format!(" The program ran out of memory with {}.", killed.join("; "));
    }
    let too_long = kinds_of(rows, |row| row.too_long > 0);
    if !too_long.is_empty() {
        text += &format!(" It thrashed until its time was over with {}.", too_long.join("; "));
    }
    text
}

/// The kinds of swap of which a row `is` so; with its swappiness if this is true of some of its values only.
fn kinds_of(rows: &[Row], is: impl Fn(&Row) -> bool) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| is(row)) {
        let whole = rows.iter().filter(|other| other.swap == row.swap).all(&is);
        let name = if whole { row.swap.clone() } else { row.name() };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

impl Swapping {
    fn table(&self, width: usize) -> String {
        let p99 = self.rows.iter().any(|row| row.operation_time_p99.is_some());
        let headings = ["swap", "swappiness", "run time", "major faults", "file refaults", "compression"];
        let more = ["memory for it", "written"].into_iter().chain(p99.then_some("p99"));
        let mut grid = Grid::new(headings.into_iter().chain(more));
        for row in &self.rows {
            let swappiness = row.swappiness.map_or("-".to_owned(), |value| value.to_string());
            let mut cells = vec![row.swap.clone(), swappiness, row.time_text()];
            if row.run_time.is_empty() {
                cells.extend(std::iter::repeat_n(String::new(), 5 + usize::from(p99)));
            } else {
                cells.extend([
                    human::number(row.pgmajfault, ""),
                    human::number(row.refaults_file, ""),
                    human::number(row.compression, "ns"),
                    human::bytes(row.compressed_max),
                    human::number(row.pswpout, ""),
                ]);
                let slow = row.operation_time_p99.map(|nanos| human::number(nanos, "ns"));
                cells.extend(p99.then(|| slow.unwrap_or_default()));
            }
            grid.row(cells);
        }
        grid.render(|column| column == 0, width)
    }

    fn text(&self, width: usize) -> String {
        let apply: String = self.apply.iter().map(|line| format!("  {line}\n")).collect();
        format!(
            "{} with {} ({})\n\n{}\n{}\n{apply}",
            self.program,
            human::bytes(self.memory as f64),
            self.size,
            self.table(width),
            human::wrapped(&self.said(), 0, width),
        )
    }

    /// The advice, and where it turns.
    fn said(&self) -> String {
        let turns: String = self.turns.iter().map(|turn| format!(" {}", turn.text)).collect();
        format!("{}{turns}", self.advice)
    }

    /// The row of this kind with the shortest mean run time.
    pub(super) fn best_of(&self, swap: &str) -> Option<&Row> {
        Row::fastest(self.rows.iter().filter(|row| row.swap == swap))
    }
}

impl Swappings {
    /// The same with where choices turn.
    pub fn with_turns(mut self, searches: Vec<Search>) -> Swappings {
        for search in searches {
            self.cases[search.case].turns.push(search.into_turn());
        }
        self
    }

    /// For each kind of swap, in how many cases its best row is the best of all, and in how many no other kind is
    /// faster by more than chance.
    fn wins(&self, width: usize) -> String {
        let Some(first) = self.cases.first() else { return String::new() };
        let mut kinds: Vec<&str> = first.rows.iter().map(|row| &row.swap[..]).collect();
        kinds.dedup();
        let mut grid = Grid::new(["swap", "shortest run time", "not slower than the best", "did not end"]);
        for kind in kinds {
            let of = |is: &dyn Fn(&Swapping) -> bool| self.cases.iter().filter(|case| is(case)).count();
            let best = of(&|case| case.best.is_some_and(|at| case.rows[at].swap == kind));
            let level = of(&|case| {
                let Some((mine, at)) = case.best_of(kind).zip(case.best) else { return false };
                let change = Change::of(&mine.run_time, &case.rows[at].run_time);
                case.rows[at].swap == kind || !change.is_significant()
            });
            let unended = of(&|case| case.best_of(kind).is_none());
            grid.row([kind.to_owned(), best.to_string(), level.to_string(), unended.to_string()]);
        }
        format!(
            "Of {} cases, each kind with its best swappiness:\n\n{}",
            self.cases.len(),
            grid.render(|column| column == 0, width)
        )
    }

    /// A line for each row.
    pub fn csv(&self) -> String {
        let mut csv = csv::Writer::from_writer(Vec::new());
        let written = "a row is written to memory";
        let heading = [
            "program",
            "memory",
            "size",
            "swap",
            "swappiness",
            "killed",
            "too_long",
            "runs",
            "run_time",
            "run_time_low",
            "run_time_high",
            "pgmajfault",
            "refaults_file",
            "compression",
            "compressed_max",
            "pswpout",
            "operation_time_p99",
        ];
        csv.write_record(heading).expect(written);
        for (case, row) in self.cases.iter().flat_map(|case| case.rows.iter().map(move |row| (case, row))) {
            let runs = row.run_time.len();
            let [low, high] = interval(&row.run_time).map_or([None; 2], |ends| ends.map(Some));
            let of = |value: f64| (runs > 0).then_some(value);
            let text = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.0}"));
            let head = [case.program.clone(), case.memory.to_string(), case.size.clone(), row.swap.clone()];
            let swappiness = row.swappiness.map_or(String::new(), |value| value.to_string());
            let counts = [swappiness, row.killed.to_string(), row.too_long.to_string(), runs.to_string()];
            let values = [
                of(mean(&row.run_time)),
                low,
                high,
                of(row.pgmajfault),
                of(row.refaults_file),
                of(row.compression),
                of(row.compressed_max),
                of(row.pswpout),
                row.operation_time_p99,
            ];
            csv.write_record(head.into_iter().chain(counts).chain(values.map(text))).expect(written);
        }
        let bytes = csv.into_inner().expect(written);
        String::from_utf8(bytes).expect("all fields are text")
    }

    /// Panels over memory: a program's run time with each kind at its best swappiness. `None`: there is one size only.
    fn over_memory(&self) -> Option<Vec<Drawn>> {
        let mut programs: Vec<&str> = self.cases.iter().map(|case| &case.program[..]).collect();
        programs.dedup();
        let drawn = programs.into_iter().map(|program| {
            let mut cases: Vec<&Swapping> =
                self.cases.iter().filter(|case| case.program == program).collect();
            cases.sort_by_key(|case| case.memory);
            let x = |case: &Swapping| case.memory as f64;
            let marks = cases.iter().map(|case| (x(case), case.size.clone())).collect();
            let axis = Axis { marks, label: "memory".to_owned() };
            let line = |kind: &str| {
                cases.iter().map(|case| case.best_of(kind).map(|row| row.point(x(case)))).collect()
            };
            (cases.len() > 1).then(|| Drawn::new(program, axis, &cases[0].rows, line))
        });
        drawn.collect()
    }

    /// Panels over swappiness.
    fn over_swappiness(&self) -> Option<Vec<Drawn>> {
        let drawn = self.cases.iter().map(|case| {
            let mut values: Vec<u64> = case.rows.iter().filter_map(|row| row.swappiness).collect();
            values.sort_unstable();
            values.dedup();
            let marks = values.iter().map(|&value| (value as f64, value.to_string())).collect();
            let axis = Axis { marks, label: "vm.swappiness".to_owned() };
            let of = |kind: &str, value: u64| {
                let is = |row: &&Row| row.swap == kind && row.swappiness.is_none_or(|own| own == value);
                case.rows.iter().find(is).filter(|row| row.ended()).map(|row| row.point(value as f64))
            };
            let line = |kind: &str| values.iter().map(|&value| of(kind, value)).collect();
            let title = format!("{} with {}", case.program, case.size);
            (values.len() > 1).then(|| Drawn::new(&title, axis, &case.rows, line))
        });
        drawn.collect()
    }
}

/// What a panel is made of.
struct Drawn {
    title: String,
    axis: Axis,
    lines: Vec<(String, Vec<Option<Point>>)>,
}

impl Drawn {
    fn new(title: &str, axis: Axis, rows: &[Row], line: impl Fn(&str) -> Vec<Option<Point>>) -> Drawn {
        let mut kinds: Vec<&str> = rows.iter().map(|row| &row.swap[..]).collect();
        kinds.dedup();
        let lines = kinds.into_iter().map(|kind| (kind.to_owned(), line(kind))).collect();
        Drawn { title: title.to_owned(), axis, lines }
    }

    fn panel(&self) -> Panel<'_> {
        Panel {
            title: self.title.clone(),
            better: Some(Better::Lower),
            axis: &self.axis,
            lines: self.lines.clone(),
            show: Box::new(|value| human::number(value, "ns")),
        }
    }
}

impl Document for Swappings {
    const COMMAND: &'static str = "swap";
    const SCHEMA: u32 = 2;

    fn text(&self, width: usize) -> String {
        let mut text = format!(
            "machine    {}\nprofile    {}\nalgorithm  {}\nruns       {} ({}); means, ± half of the 95 % interval\n",
            self.machine,
            self.profile,
            self.algorithm,
            self.runs,
            human::seeds(self.seed, self.runs),
        );
        for case in &self.cases {
            text += &format!("\n{}", case.text(width));
        }
        if self.cases.len() > 1 {
            text += &format!("\n{}", self.wins(width));
        }
        text
    }

    fn svg(&self) -> Option<String> {
        let drawn =
            self.over_memory().or_else(|| self.over_swappiness()).filter(|drawn| !drawn.is_empty())?;
        let panels: Vec<Panel<'_>> = drawn.iter().map(Drawn::panel).collect();
        let title = format!("Run time with each kind of swap on {}", self.machine);
        let about = format!(
            "{}, {}. Each of {} runs is a dot; lines join their means, and have gaps where memory ran out.{}",
            self.profile,
            self.algorithm,
            self.runs,
            if self.over_memory().is_some() { " Each kind has its best swappiness." } else { "" }
        );
        Some(plot((&title, &about), &panels, if panels.len() > 1 { 2 } else { 1 }))
    }
}

#[cfg(test)]
mod tests {
    use super::kinds::kinds;
    use super::*;
    use crate::metrics::tests::run;

    fn done(seed: u64, nanos: Option<u64>) -> Done {
        let killed = Err(Error::OutOfMemory("too small".to_owned()));
        outcome(nanos.map_or(killed, |nanos| Ok(run("classic", seed, nanos, &[])))).unwrap()
    }

    pub(super) fn row(swap: &str, swappiness: Option<u64>, times: &[Option<u64>]) -> Row {
        let runs: Vec<(u64, Done)> =
            (1..).zip(times).map(|(seed, &nanos)| (seed, done(seed, nanos))).collect();
        let runs: Vec<(u64, &Done)> = runs.iter().map(|(seed, done)| (*seed, done)).collect();
        Row::new(swap, swappiness, &runs)
    }

    #[test]
    fn the_best_kind_is_compared_with_the_best_of_each_other_kind() {
        let rows = [
            row("none", None, &[Some(900), None, Some(905)]),
            row("disk", Some(60), &[Some(2000), Some(2010), Some(2005)]),
            row("disk", Some(180), &[Some(3000), Some(3010), Some(3005)]),
            row("zram 50%", Some(60), &[Some(1010), Some(1000), Some(1005)]),
            row("zswap", Some(60), &[Some(1000), Some(1012), Some(1006)]),
            Row { too_long: 1, ..row("zram 25%", Some(60), &[]) },
        ];
        assert_eq!((best(&rows), rows[0].killed), (Some(3), 1));
        let text = advice(&rows);
        let disk = "zram 50% at swappiness 60 took the least time: 49.9 % less than disk at swappiness 60 (95 % interval: ";
        assert!(text.starts_with(disk), "{text}");
        assert!(text.contains("no different from zswap at swappiness 60"), "{text}");
        let not_ended =
            "The program ran out of memory with none. It thrashed until its time was over with zram 25%.";
        assert!(text.ends_with(not_ended), "{text}");
        assert!(!text.contains("180"), "{text}");
        assert_eq!(best(&rows[..1]), None);
    }

    fn choices(cases: Vec<Case>) -> Choices {
        let kinds = kinds(Some(&"nvme0:8G".parse().unwrap()), &[50], "lz4");
        Choices { cases, kinds, algorithm: "lz4".into(), swappiness: vec![60, 180] }
    }

    /// Two sizes, of which the second is not finished, a disk and zram, two values of swappiness.
    fn swappings(sizes: usize) -> Swappings {
        let case = |size: &str, memory| Case { program: "redis".into(), memory, size: size.into() };
        let choices = choices(vec![case("50%", 50 << 20), case("75%", 75 << 20)]);
        let sweep = choices.sweep(&What::default(), (1, 2));
        let mut runs = BTreeMap::new();
        for (at, point) in sweep.points[..sizes * 10].iter().enumerate() {
            for seed in [1, 2] {
                let key = Key { what: sweep.whats[point.what].clone(), seed };
                let nanos = Some(1000 * (20 - at as u64) + seed).filter(|_| point.values[1] != "none");
                runs.insert(key, done(seed, nanos));
            }
        }
        Swappings::of(&sweep, &runs, &choices, 0.0)
    }

    #[test]
    fn a_case_has_a_row_for_each_kind_and_swappiness_and_one_without_swap() {
        let half = swappings(1);
        assert_eq!(half.cases.len(), 1);
        let rows: Vec<_> = half.cases[0].rows.iter().map(|row| (&row.swap[..], row.swappiness)).collect();
        assert_eq!(rows[..3], [("none", None), ("disk", Some(60)), ("disk", Some(180))]);
        assert_eq!((rows.len(), half.cases[0].rows[0].killed), (9, 2));
        let best = &half.cases[0].rows[half.cases[0].best.unwrap()];
        assert_eq!((&best.swap[..], best.swappiness), ("zram 50%, disk", Some(180)));
        assert_eq!(half.cases[0].apply[0], "sysctl vm.swappiness=180");
    }

    #[test]
    fn several_cases_are_drawn_over_memory_and_counted() {
        let [one, two] = [swappings(1), swappings(2)];
        assert!(one.svg().unwrap().contains("vm.swappiness"));
        assert!(two.svg().unwrap().contains("Each kind has its best swappiness"));
        let text = two.text(100);
        assert!(text.contains("Of 2 cases") && !one.text(100).contains("cases"), "{text}");
        let csv = two.csv();
        assert_eq!(csv.lines().count(), 1 + 2 * 9);
        assert!(csv.lines().nth(1).unwrap().starts_with("redis,52428800,50%,none,,2,0,0,,"), "{csv}");
    }

    #[test]
    fn zswap_is_switched_on_where_it_is_the_kind() {
        let case = Case { program: "redis".into(), memory: 1 << 20, size: "1M".into() };
        let sweep = choices(vec![case]).sweep(&What::default(), (1, 1));
        let on: Vec<bool> =
            sweep.whats.iter().map(|what| what.set.contains(&"zswap.enabled=1".into())).collect();
        assert_eq!(on, [false, false, false, false, false, true, true, false, false]);
        assert_eq!(sweep.whats[0].set, [""; 0]);
    }
}

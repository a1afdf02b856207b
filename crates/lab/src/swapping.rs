//! How a program fares with each kind of swap, and which suits it best.

use crate::document::Document;
use crate::grid::Grid;
use crate::human;
use crate::record::RunRecord;
use crate::statistics::{Change, mean};
use mm::stat::Stat;
use serde::Serialize;

/// Work that compressing and decompressing is.
const COMPRESSION: [&str; 2] = ["compress_", "decompress_"];

/// A program with one kind of swap and one swappiness.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The kind of swap.
    pub swap: String,
    /// `vm.swappiness`.
    pub swappiness: u64,
    /// Runs in which the program ran out of memory; the other numbers are those of the others.
    pub killed: u32,
    /// Nanoseconds of each run that ended, in the order of seeds.
    pub run_time: Vec<f64>,
    /// Major faults; the mean, as are the next ones.
    pub pgmajfault: f64,
    /// Pages of files that came back.
    pub refaults_file: f64,
    /// Nanoseconds of CPU time that compressing and decompressing took.
    pub compression: f64,
    /// The most bytes that compressed pages took.
    pub compressed_max: f64,
    /// Pages written to devices' swap space.
    pub pswpout: f64,
    /// Nanoseconds of the slowest 1 % of the program's operations; `null` if it reports none.
    pub operation_time_p99: Option<f64>,
}

impl Row {
    /// The row of runs; `None`: the program ran out of memory in that one.
    pub fn new(swap: &str, swappiness: u64, runs: &[Option<RunRecord>]) -> Row {
        let ended: Vec<&RunRecord> = runs.iter().flatten().collect();
        let of =
            |value: &dyn Fn(&RunRecord) -> f64| mean(&ended.iter().map(|run| value(run)).collect::<Vec<_>>());
        let largest = |run: &RunRecord| {
            let taken = run.metrics.iter().filter(|metric| {
                metric.name.ends_with("_mem_used_max") || metric.name == "zswap_pool_max_size"
            });
            taken.map(|metric| metric.value).sum()
        };
        let reports = ended.iter().any(|run| run.metric("operation_time_count") > 0.0);
        Row {
            swap: swap.to_owned(),
            swappiness,
            killed: (runs.len() - ended.len()) as u32,
            run_time: ended.iter().map(|run| run.nanos as f64).collect(),
            pgmajfault: of(&|run| run.counter(Stat::Pgmajfault)),
            refaults_file: of(&|run| run.counter(Stat::WorkingsetRefaultFile)),
            compression: of(&compression),
            compressed_max: of(&largest),
            pswpout: of(&|run| run.counter(Stat::PswpOut)),
            operation_time_p99: reports.then(|| of(&|run| run.metric("operation_time_p99"))),
        }
    }

    fn name(&self) -> String {
        format!("{} at swappiness {}", self.swap, self.swappiness)
    }

    fn mean_time(&self) -> Option<f64> {
        (self.killed == 0).then(|| mean(&self.run_time))
    }
}

/// CPU time of compressing and decompressing.
fn compression(run: &RunRecord) -> f64 {
    let is = |name: &str| COMPRESSION.iter().any(|prefix| name.starts_with(prefix));
    run.costs.iter().filter(|(name, _)| is(name)).map(|(_, cost)| cost.nanos as f64).sum()
}

/// A program with all kinds of swap; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Swapping {
    /// As on the command line.
    pub program: String,
    /// A preset or a file.
    pub machine: String,
    /// Bytes of memory.
    pub memory: u64,
    /// The first seed.
    pub seed: u64,
    /// Seeds for each row.
    pub runs: u32,
    /// Kinds of swap, each with all values of swappiness.
    pub rows: Vec<Row>,
    /// The row with the shortest mean run time; `null` if all ran out of memory.
    pub best: Option<usize>,
    /// What the numbers say.
    pub advice: String,
    /// Lines that make Linux do so.
    pub apply: Vec<String>,
    /// Seconds on this computer.
    pub host_seconds: f64,
}

/// The row with the shortest mean run time among those whose runs all ended.
pub fn best(rows: &[Row]) -> Option<usize> {
    let ended = rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.mean_time()?)));
    ended.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
}

/// A sentence about the best row, beside the best row of each other kind of swap.
pub fn advice(rows: &[Row]) -> String {
    let Some(at) = best(rows) else {
        return "With every kind of swap the program ran out of memory in some run.".to_owned();
    };
    let best_row = &rows[at];
    let mut text = format!("{} took the least time", best_row.name());
    let mut others: Vec<&Row> = Vec::new();
    for row in rows.iter().filter(|row| row.swap != best_row.swap && row.killed == 0) {
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
    let killed = killed(rows);
    if !killed.is_empty() {
        text += &format!(" The program ran out of memory with {}.", killed.join("; "));
    }
    text
}

/// Kinds of swap with which the program ran out of memory; with its swappiness where it did so with some values alone.
fn killed(rows: &[Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| row.killed > 0) {
        let whole = rows.iter().filter(|other| other.swap == row.swap).all(|other| other.killed > 0);
        let name = if whole { row.swap.clone() } else { row.name() };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

impl Document for Swapping {
    const COMMAND: &'static str = "swap";

    fn text(&self, width: usize) -> String {
        let p99 = self.rows.iter().any(|row| row.operation_time_p99.is_some());
        let headings = ["swap", "swappiness", "run time", "major faults", "file refaults", "compression"];
        let more = ["memory for it", "written"].into_iter().chain(p99.then_some("p99"));
        let mut grid = Grid::new(headings.into_iter().chain(more));
        for row in &self.rows {
            let time = match (row.killed, &row.run_time[..]) {
                (0, times) => human::number(mean(times), "ns"),
                (killed, _) => format!("out of memory in {killed}"),
            };
            let mut cells = vec![row.swap.clone(), row.swappiness.to_string(), time];
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
        let apply: String = self.apply.iter().map(|line| format!("  {line}\n")).collect();
        format!(
            "program  {}\nmachine  {}\nmemory   {}\nruns     {} ({})\n\n{}\n{}\n{apply}",
            self.program,
            self.machine,
            human::bytes(self.memory as f64),
            self.runs,
            human::seeds(self.seed, self.runs),
            grid.render(|column| column == 0, width),
            human::wrapped(&self.advice, 0, width),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::run;

    fn row(swap: &str, swappiness: u64, times: &[Option<u64>]) -> Row {
        let record = |(seed, nanos): (u64, u64)| run("classic", seed, nanos, &[]);
        let runs: Vec<Option<RunRecord>> =
            (1..).zip(times).map(|(seed, nanos)| nanos.map(|nanos| record((seed, nanos)))).collect();
        Row::new(swap, swappiness, &runs)
    }

    #[test]
    fn the_best_kind_is_compared_with_the_best_of_each_other_kind() {
        let rows = [
            row("none", 60, &[Some(900), None, Some(905)]),
            row("disk", 60, &[Some(2000), Some(2010), Some(2005)]),
            row("disk", 180, &[Some(3000), Some(3010), Some(3005)]),
            row("zram 50%", 60, &[Some(1010), Some(1000), Some(1005)]),
            row("zswap", 60, &[Some(1000), Some(1012), Some(1006)]),
        ];
        assert_eq!((best(&rows), rows[0].killed), (Some(3), 1));
        let text = advice(&rows);
        let disk = "zram 50% at swappiness 60 took the least time: 49.9 % less than disk at swappiness 60 (95 % interval: ";
        assert!(text.starts_with(disk), "{text}");
        assert!(text.contains("no different from zswap at swappiness 60"), "{text}");
        assert!(text.ends_with("The program ran out of memory with none."), "{text}");
        assert!(!text.contains("180"), "{text}");
        assert_eq!(best(&rows[..1]), None);
    }
}

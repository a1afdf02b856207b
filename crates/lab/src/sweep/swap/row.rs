//! The runs of a program with one kind of swap and one swappiness.

use super::super::store::Done;
use crate::human;
use crate::plot::Point;
use crate::record::RunRecord;
use crate::statistics::{interval, mean};
use mm::stat::Stat;
use serde::Serialize;

/// Work that compressing and decompressing is.
const COMPRESSION: [&str; 2] = ["compress_", "decompress_"];

/// Why a run has no numbers.
pub(super) const OUT_OF_MEMORY: &str = "out of memory";
pub(super) const TOO_LONG: &str = "too long";

/// A program with one kind of swap and one swappiness.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The kind of swap.
    pub swap: String,
    /// `vm.swappiness`; `null` where there is no swap area.
    pub swappiness: Option<u64>,
    /// Runs in which the program ran out of memory.
    pub killed: u32,
    /// Runs in which it had not ended when its time was over. The other numbers are those of the other runs.
    pub too_long: u32,
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
    pub(super) fn new(swap: &str, swappiness: Option<u64>, runs: &[(u64, &Done)]) -> Row {
        let ended: Vec<&RunRecord> = runs.iter().filter_map(|(_, done)| done.record()).collect();
        let missing = |reason: &str| {
            runs.iter().filter(|(_, done)| matches!(done, Done::Missing(why) if why == reason)).count() as u32
        };
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
            killed: missing(OUT_OF_MEMORY),
            too_long: missing(TOO_LONG),
            run_time: ended.iter().map(|run| run.nanos as f64).collect(),
            pgmajfault: of(&|run| run.counter(Stat::Pgmajfault)),
            refaults_file: of(&|run| run.counter(Stat::WorkingsetRefaultFile)),
            compression: of(&compression),
            compressed_max: of(&largest),
            pswpout: of(&|run| run.counter(Stat::PswpOut)),
            operation_time_p99: reports.then(|| of(&|run| run.metric("operation_time_p99"))),
        }
    }

    pub(super) fn name(&self) -> String {
        match self.swappiness {
            Some(swappiness) => format!("{} at swappiness {swappiness}", self.swap),
            None => "no swap".to_owned(),
        }
    }

    /// Whether the program came to its end in all runs.
    pub(super) fn ended(&self) -> bool {
        self.killed + self.too_long == 0
    }

    pub(super) fn mean_time(&self) -> Option<f64> {
        self.ended().then(|| mean(&self.run_time))
    }

    pub(super) fn time_text(&self) -> String {
        let runs = self.run_time.len() + (self.killed + self.too_long) as usize;
        let reasons = [(self.killed, OUT_OF_MEMORY), (self.too_long, TOO_LONG)];
        if let Some((times, why)) = reasons.into_iter().find(|(times, _)| *times > 0) {
            return format!("{why} in {times} of {runs}");
        }
        let mean = mean(&self.run_time);
        let half = interval(&self.run_time).map(|[low, high]| (high - low) / 2.0);
        let half = half.map(|half| format!(" ±{:.1}%", 100.0 * half / mean)).unwrap_or_default();
        human::number(mean, "ns") + &half
    }

    /// A point of a picture.
    pub(super) fn point(&self, x: f64) -> Point {
        Point { x, y: mean(&self.run_time), interval: None, dots: self.run_time.clone() }
    }

    /// The row with the shortest mean run time among those whose runs all ended.
    pub(super) fn fastest<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
        rows.filter_map(|row| Some((row, row.mean_time()?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(row, _)| row)
    }
}

/// CPU time of compressing and decompressing.
fn compression(run: &RunRecord) -> f64 {
    let is = |name: &str| COMPRESSION.iter().any(|prefix| name.starts_with(prefix));
    run.costs.iter().filter(|(name, _)| is(name)).map(|(_, cost)| cost.nanos as f64).sum()
}

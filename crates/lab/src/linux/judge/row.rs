//! One count of both sides, and its verdict.

use super::copies::OWN_WORK;
use super::counts::{Count, Source};
use crate::record::RunRecord;
use crate::statistics::{Interval, interval, mean};
use serde::{Deserialize, Serialize};

/// How far a total may be off, in per cent.
const TOLERANCE: f64 = 10.0;
/// The widest spread of Linux's boots, in per cent, that a count is judged by: with a wider one, nothing would miss.
const WIDEST: f64 = 25.0;
/// Counts below which a share says nothing.
pub const FEW: f64 = 100.0;

/// What a count is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agreement {
    /// The program alone decides it.
    Exact,
    /// Near in total, whichever task did it.
    Total,
    /// It depends on timing.
    Timing,
}

/// One count of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What is counted.
    pub metric: String,
    /// Its unit; empty for a count.
    pub unit: String,
    /// What it is judged by.
    pub agreement: Agreement,
    /// Mean over Linux's runs.
    pub linux: f64,
    /// Its interval; `null` with one run.
    pub linux_ci: Option<Interval>,
    /// From Linux's smallest to its largest boot with one seed, on average over the seeds, in per cent of the mean;
    /// `null` with one boot of each seed, or if the mean is 0.
    pub linux_spread_pct: Option<f64>,
    /// From the smallest to the largest seed, likewise; `null` with one seed.
    #[serde(default)]
    pub linux_seeds_pct: Option<f64>,
    /// Mean over the simulated runs.
    pub simulated: f64,
    /// As Linux's, of the simulated machine.
    #[serde(default)]
    pub simulated_spread_pct: Option<f64>,
    /// As Linux's, of the simulated machine.
    #[serde(default)]
    pub simulated_seeds_pct: Option<f64>,
    /// Mean over the booted machine's runs; `null` if it did not run.
    pub booted: Option<f64>,
    /// Simulated against Linux in per cent of Linux's; `null` if that is 0 and the simulated is not.
    pub error_pct: Option<f64>,
    /// Whether it is far from Linux's, by its kind; `null`: not judged.
    pub missed: Option<bool>,
    /// Why it is not judged; `null` if it is.
    #[serde(default)]
    pub unjudged: Option<Unjudged>,
    /// The earlier rows that it repeats.
    #[serde(default)]
    pub copy_of: Option<String>,
    /// Why it is a matter of timing, if it is.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Why a row is not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unjudged {
    /// Both sides count 0.
    Zero,
    /// Both count too little for a share to say something.
    Few,
    /// It repeats other rows.
    Copy,
    /// Timing decides.
    Timing,
    /// Linux's own boots are too far apart.
    Noisy,
}

/// Values of a count on one side: by seed, then by boot.
pub struct Values(Vec<Vec<f64>>);

impl Values {
    /// Of runs in the order of seeds, each with this many boots.
    pub fn of(runs: &[RunRecord], boots: usize, of: Source<'_>) -> Values {
        let values = |runs: &[RunRecord]| runs.iter().map(|run| of.value(run)).collect();
        Values(runs.chunks(boots.max(1)).map(values).collect())
    }

    /// All values.
    pub fn all(&self) -> impl Iterator<Item = f64> {
        self.0.iter().flatten().copied()
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        mean(&self.all().collect::<Vec<f64>>())
    }

    fn by_seed(&self) -> Vec<f64> {
        self.0.iter().map(|boots| mean(boots)).collect()
    }

    /// The interval of the mean: of seeds, if there are several, else of boots.
    fn interval(&self) -> Option<Interval> {
        interval(&self.by_seed()).or_else(|| interval(self.0.first()?))
    }

    /// From the smallest to the largest boot with one seed.
    fn of_boots(&self) -> Option<f64> {
        let ranges: Vec<f64> =
            self.0.iter().filter(|boots| boots.len() > 1).map(|boots| range(boots)).collect();
        (!ranges.is_empty()).then(|| mean(&ranges))
    }

    /// From the smallest to the largest seed.
    fn of_seeds(&self) -> Option<f64> {
        (self.0.len() > 1).then(|| range(&self.by_seed()))
    }
}

fn range(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    most - values.iter().copied().fold(f64::MAX, f64::min)
}

/// Whether a count is too far from the one that it is compared with, or why that is not judged. A total may be off by
/// `spread`, too; by one that is too wide, nothing can be told.
pub fn verdict(
    agreement: Agreement,
    reference: f64,
    here: f64,
    spread: f64,
) -> (Option<bool>, Option<Unjudged>) {
    let off = (here - reference).abs();
    match agreement {
        _ if reference == 0.0 && here == 0.0 => (None, Some(Unjudged::Zero)),
        Agreement::Timing => (None, Some(Unjudged::Timing)),
        Agreement::Exact => (Some(off > OWN_WORK.max(reference / 1000.0)), None),
        Agreement::Total if reference.max(here) < FEW => (None, Some(Unjudged::Few)),
        Agreement::Total if spread > reference * WIDEST / 100.0 => (None, Some(Unjudged::Noisy)),
        Agreement::Total => (Some(off > (reference * TOLERANCE / 100.0).max(spread)), None),
    }
}

impl Row {
    /// The row of a count. `calm`: only the program did anything.
    pub fn of(count: &Count<'_>, calm: bool, linux: &Values, simulated: &Values, booted: Option<f64>) -> Row {
        let (reference, here) = (linux.mean(), simulated.mean());
        let agreement = match (count.timing, calm) {
            (Some(_), _) => Agreement::Timing,
            (None, true) => Agreement::Exact,
            (None, false) => Agreement::Total,
        };
        let (missed, unjudged) = verdict(agreement, reference, here, linux.of_boots().unwrap_or(0.0));
        let share = |part: f64, whole: f64| (whole != 0.0).then(|| part / whole * 100.0);
        let spread = |of: Option<f64>, whole| of.and_then(|part| share(part, whole));
        Row {
            metric: count.metric.to_owned(),
            unit: count.unit.to_owned(),
            agreement,
            linux: reference,
            linux_ci: linux.interval(),
            linux_spread_pct: spread(linux.of_boots(), reference),
            linux_seeds_pct: spread(linux.of_seeds(), reference),
            simulated: here,
            simulated_spread_pct: spread(simulated.of_boots(), here),
            simulated_seeds_pct: spread(simulated.of_seeds(), here),
            booted,
            error_pct: if here == reference { Some(0.0) } else { share(here - reference, reference) },
            missed,
            unjudged,
            copy_of: None,
            reason: count.timing.map(str::to_owned),
        }
    }

    /// Say that it repeats other rows, and is not judged.
    pub fn copy(&mut self, of: String) {
        (self.missed, self.unjudged, self.copy_of) = (None, Some(Unjudged::Copy), Some(of));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_of_boots_and_of_seeds_are_kept_apart() {
        let values = Values(vec![vec![100.0, 110.0], vec![200.0, 230.0]]);
        assert_eq!((values.mean(), values.of_boots(), values.of_seeds()), (160.0, Some(20.0), Some(110.0)));
        let seeds = Values(vec![vec![100.0], vec![200.0]]);
        assert_eq!((seeds.of_boots(), seeds.of_seeds()), (None, Some(100.0)));
        let boots = Values(vec![vec![100.0, 130.0]]);
        assert_eq!((boots.of_boots(), boots.of_seeds()), (Some(30.0), None));
    }
}

//! Rounds of a probe, and estimates of them.

use super::quantity::Estimate;
use crate::statistics::median::{interval, median};
use std::io;
use std::time::{Duration, Instant};

/// The fewest rounds, however long they take, and the most.
const LEAST: usize = 7;
const MOST: usize = 401;
/// The share of rounds that must show a quantity, and the fewest: less have no interval.
const SHOWN: f64 = 0.6;
const FEWEST: usize = 6;

/// Does one round: a value for each quantity of the group; NaN: the round did not show it.
pub type Round = Box<dyn FnMut() -> io::Result<Vec<f64>>>;
/// Sets a probe up.
pub type Start = Box<dyn FnOnce() -> io::Result<Round>>;

/// What came of a probe.
pub enum Ended {
    /// Its rounds.
    Done(Vec<Vec<f64>>),
    /// Why it cannot measure.
    Failed(String),
    /// It was stopped.
    Stopped,
}

/// Do rounds for about `time`.
pub fn run(start: Start, time: Duration, stop: &dyn Fn() -> bool) -> Ended {
    if stop() {
        return Ended::Stopped;
    }
    let rounds = start().and_then(|mut round| {
        // The first one warms caches up, and is no measurement.
        round()?;
        let (begun, mut rounds) = (Instant::now(), Vec::new());
        while rounds.len() < LEAST || (begun.elapsed() < time && rounds.len() < MOST) {
            if stop() {
                return Ok(None);
            }
            rounds.push(round()?);
        }
        Ok(Some(rounds))
    });
    match rounds {
        Ok(Some(rounds)) => Ended::Done(rounds),
        Ok(None) => Ended::Stopped,
        Err(error) => Ended::Failed(error.to_string()),
    }
}

/// The estimate of one column of rounds.
///
/// # Errors
/// Most rounds do not show it.
pub fn estimate(rounds: &[Vec<f64>], column: usize) -> Result<Estimate, String> {
    let shown: Vec<f64> =
        rounds.iter().map(|round| round[column]).filter(|value| value.is_finite()).collect();
    if (shown.len() as f64) < SHOWN * rounds.len() as f64 || shown.len() < FEWEST {
        return Err(format!("{} of {} rounds showed it", shown.len(), rounds.len()));
    }
    Ok(Estimate { median: median(&shown), interval: interval(&shown), rounds: shown.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(value: f64) -> Start {
        Box::new(move || Ok(Box::new(move || Ok(vec![value]))))
    }

    #[test]
    fn there_are_enough_rounds_for_an_interval_without_time() {
        let Ended::Done(rounds) = run(constant(3.0), Duration::ZERO, &|| false) else { panic!("it ends") };
        assert_eq!(rounds.len(), LEAST);
        let estimate = estimate(&rounds, 0).unwrap();
        assert_eq!((estimate.median, estimate.interval, estimate.rounds), (3.0, Some([3.0, 3.0]), LEAST));
    }

    #[test]
    fn probe_that_fails_or_is_stopped_has_no_rounds() {
        let fails: Start = Box::new(|| Err(io::Error::other("no large pages")));
        assert!(
            matches!(run(fails, Duration::ZERO, &|| false), Ended::Failed(why) if why == "no large pages")
        );
        assert!(matches!(run(constant(1.0), Duration::ZERO, &|| true), Ended::Stopped));
    }

    #[test]
    fn quantity_that_few_rounds_show_is_not_measured() {
        let rounds = |shown: usize| -> Vec<Vec<f64>> {
            (0..20).map(|at| vec![if at < shown { 1.0 } else { f64::NAN }]).collect()
        };
        assert_eq!(estimate(&rounds(12), 0).unwrap().rounds, 12);
        assert_eq!(estimate(&rounds(11), 0).unwrap_err(), "11 of 20 rounds showed it");
        assert_eq!(estimate(&rounds(20)[..5], 0).unwrap_err(), "5 of 5 rounds showed it");
    }
}

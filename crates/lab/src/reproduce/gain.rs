//! Published gains, where a publication gives only per cent and no figures.

use super::{Count, KSWAPD, Measure, Setting};
use crate::record::{Better, RunRecord};
use crate::statistics::{Change, Interval};
use serde::Serialize;

/// The published gain of a profile against the first side.
#[derive(Debug)]
pub struct Gain {
    /// The profile.
    pub profile: &'static str,
    /// The measure; less of a time is better.
    pub measure: Measure,
    /// As published, in per cent: an interval, or the same number twice.
    pub percent: [f64; 2],
}

/// Counts that explain gains of replacement policies.
pub(super) const COUNTS: &[Count] = &[
    Count::plain(&["pgscan_kswapd"]),
    Count::plain(&["pgscan_direct"]),
    Count::plain(&["pgsteal_kswapd"]),
    Count::plain(&["pgsteal_direct"]),
    Count::plain(&["workingset_refault_anon"]),
    Count::plain(&["workingset_refault_file"]),
    Count::plain(&["pgmajfault"]),
    Count::plain(&["pswpout"]),
    KSWAPD,
];

/// A published gain and the simulated one.
#[derive(Debug, Serialize)]
pub struct GainOutcome {
    /// The profile.
    pub profile: String,
    /// The measure.
    pub measure: String,
    /// As published, in per cent.
    pub published_pct: [f64; 2],
    /// The simulated gain.
    pub pct: Option<f64>,
    /// Its interval.
    pub ci_pct: Option<Interval>,
    /// Whether the simulated gain differs from 0. (Not printed, because the interval shows it.)
    #[serde(skip)]
    pub told: bool,
    /// The simulated gain of each profile, in the same measure.
    pub all_pct: std::collections::BTreeMap<String, Option<f64>>,
}

impl GainOutcome {
    /// Whether both are gains or both are losses; `None` if the simulated gain does not differ from 0.
    pub fn agrees(&self) -> Option<bool> {
        let pct = self.pct?;
        (self.told && pct != 0.0).then_some((pct > 0.0) == (self.published_pct[1] > 0.0))
    }

    /// Whether the intervals overlap.
    pub fn overlaps(&self) -> Option<bool> {
        let [low, high] = self.ci_pct?;
        Some(low <= self.published_pct[1] && high >= self.published_pct[0])
    }
}

fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::Rate => "operations/s",
        Measure::P99 => "99 % of operations",
        _ => "time",
    }
}

/// Which direction of a measure is a gain.
fn better(measure: Measure) -> Better {
    match measure {
        Measure::Rate => Better::Higher,
        _ => Better::Lower,
    }
}

/// The gains of a setting, from its runs.
pub(super) fn outcomes<'a>(
    setting: &Setting,
    profiles: &[String],
    runs: &dyn Fn(&str) -> Vec<&'a RunRecord>,
) -> Vec<GainOutcome> {
    let outcome = |gain: &Gain| {
        let values =
            |profile: &str| runs(profile).into_iter().map(|run| gain.measure.of(run)).collect::<Vec<_>>();
        let change = |profile: &str| Change::of(&values(&profiles[0]), &values(profile));
        let better = better(gain.measure);
        let own = change(gain.profile);
        let (pct, ci_pct) = better.of(&own);
        GainOutcome {
            profile: gain.profile.to_owned(),
            measure: name(gain.measure).to_owned(),
            published_pct: gain.percent,
            told: runs(gain.profile).len() == 1 || own.is_significant(),
            pct,
            ci_pct,
            all_pct: profiles[1..].iter().map(|name| (name.clone(), better.of(&change(name)).0)).collect(),
        }
    };
    setting.gains.iter().map(outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;
    use crate::reproduce::{Case, Outcome, Reproduction};

    fn outcome(times: [[u64; 2]; 2]) -> Outcome {
        let one = Reproduction::find("mglru").unwrap();
        let mut outcome = Outcome::new(one, one.scale, 1, 2);
        let case = Case::new(&one.settings[0], one.scale).unwrap();
        let mut runs = Vec::new();
        for (profile, times) in ["classic", "mglru"].into_iter().zip(times) {
            for (seed, millis) in times.into_iter().enumerate() {
                let mut run = crate::metrics::tests::run(profile, seed as u64, millis * 1_000_000, &[]);
                run.counters.insert("pgsteal_kswapd".to_owned(), 100);
                run.counters.insert("pgscan_direct".to_owned(), if profile == "mglru" { 150 } else { 300 });
                runs.push(run);
            }
        }
        outcome.add(&case, &runs);
        outcome.complete = true;
        outcome
    }

    #[test]
    fn less_time_and_more_operations_are_gains() {
        assert_eq!(better(Measure::Rate).percent(1.25), 25.0);
        assert_eq!(better(Measure::Elapsed).percent(0.75), 25.0);
        assert_eq!(better(Measure::P99).percent(2.0), -100.0);
    }

    #[test]
    fn gain_may_agree_and_overlap() {
        let first = |times| outcome(times).settings.remove(0).gains.remove(0);
        // The published gain is 9.28 to 11.19 % less time.
        let near = first([[1000, 1010], [900, 910]]);
        assert_eq!((near.agrees(), near.overlaps()), (Some(true), Some(true)));
        let far = first([[1000, 1000], [500, 500]]);
        assert_eq!((far.agrees(), far.overlaps(), far.pct), (Some(true), Some(false), Some(50.0)));
        let worse = first([[1000, 1000], [1100, 1101]]);
        assert_eq!((worse.agrees(), worse.overlaps()), (Some(false), Some(false)));
        let unknown = first([[1000, 2000], [1500, 1000]]);
        assert_eq!(unknown.agrees(), None);
    }

    #[test]
    fn tables_show_gains_and_counts() {
        let text = Document::text(&outcome([[1000, 1000], [500, 500]]), 200);
        assert!(
            text.contains("1 of 1 in the same direction, 0 in the opposite; 0 intervals overlap"),
            "{text}"
        );
        let lines: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("Spark"))
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0].last_chunk(), Some(&["+50.00%", "+50.00%", "same", "apart"]), "{text}");
        assert_eq!(lines[1].last_chunk(), Some(&["3.00", "1.50"]), "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()));
    }
}

//! Policies for deferred flushes compared with the fewest flushes that can be safe (docs/bound.md).

use crate::grid::Grid;
use crate::human;
use crate::profile::PRESETS;
use crate::record::{BoundRecord, CauseRecord, LevelRecord, RunRecord};
use crate::summary::Setup;
use crate::table::{failures, heading};
use mm::knobs::{FlushPolicy, Knob};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The presets that differ only in when they flush, one for each value of the knob.
pub fn policies() -> impl Iterator<Item = &'static str> {
    (0..FlushPolicy::COUNT).filter_map(|policy| {
        let is_it = |knobs: &[(Knob, u64)]| match knobs {
            [] => policy == Knob::TlbUnmap.info().default,
            knobs => knobs == [(Knob::TlbUnmap, policy)],
        };
        PRESETS.iter().find(|preset| is_it(preset.knobs)).map(|preset| preset.name)
    })
}

/// The result of `pagefold bound`; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoundSummary {
    /// What was run.
    #[serde(flatten)]
    pub setup: Setup,
    /// By profile, in order.
    pub bounds: Vec<ProfileBound>,
    /// Seconds on this computer.
    pub host_seconds: f64,
    /// Simulated accesses of all runs.
    pub accesses: u64,
    /// Warnings for readers of the numbers, one sentence each.
    pub warnings: Vec<String>,
}

/// One profile and its bounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileBound {
    /// The profile.
    pub profile: String,
    /// Flush requests that were sent.
    pub rounds: u64,
    /// CPUs that flushed for a request.
    pub receptions: u64,
    /// The bound with the latest safe moments as deadlines.
    pub l1: LevelBound,
    /// The bound with the moments at which the memory manager checks as deadlines.
    pub l2: LevelBound,
    /// Translations that became stale while a CPU could hold them.
    pub stale: u64,
    /// The most of them that were outstanding at once.
    pub open_max: u64,
}

/// The bound at one level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelBound {
    /// The fewest rounds.
    pub rounds: u64,
    /// The profile's rounds divided by the fewest; `null` if none are needed.
    pub rounds_ratio: Option<f64>,
    /// The fewest receptions.
    pub receptions: u64,
    /// The profile's receptions divided by the fewest; `null` if none are needed.
    pub receptions_ratio: Option<f64>,
    /// What made flushes necessary.
    pub causes: BTreeMap<String, CauseRecord>,
}

impl BoundSummary {
    /// Sum up one run of each profile.
    pub fn of(setup: Setup, runs: &[RunRecord], host_seconds: f64) -> BoundSummary {
        let of = |run: &RunRecord| run.bound.as_ref().map(|bound| profile_bound(&run.profile, bound));
        let warnings: BTreeSet<String> = runs.iter().flat_map(|run| run.warnings.clone()).collect();
        BoundSummary {
            bounds: runs.iter().filter_map(of).collect(),
            host_seconds,
            accesses: runs.iter().map(|run| run.work.accesses).sum(),
            warnings: warnings.into_iter().collect(),
            setup,
        }
    }
}

fn profile_bound(profile: &str, bound: &BoundRecord) -> ProfileBound {
    let ratio = |own: u64, least: u64| (least > 0).then(|| own as f64 / least as f64);
    let level = |level: &LevelRecord| LevelBound {
        rounds: level.rounds,
        rounds_ratio: ratio(bound.rounds, level.rounds),
        receptions: level.receptions,
        receptions_ratio: ratio(bound.receptions, level.receptions),
        causes: level.causes.clone(),
    };
    ProfileBound {
        profile: profile.to_owned(),
        rounds: bound.rounds,
        receptions: bound.receptions,
        l1: level(&bound.l1),
        l2: level(&bound.l2),
        stale: bound.stale,
        open_max: bound.open_max,
    }
}

/// The result as text.
pub fn render(summary: &BoundSummary, width: usize) -> String {
    let rounds =
        grid("rounds", summary, |level| (level.rounds, level.rounds_ratio), |bound| bound.rounds, width);
    let receptions = grid(
        "receptions",
        summary,
        |level| (level.receptions, level.receptions_ratio),
        |bound| bound.receptions,
        width,
    );
    let mut text = format!("{}\n{rounds}\n{receptions}\n", heading(&summary.setup));
    if let Some(causes) = causes(summary, width) {
        text.push_str(&causes);
        text.push('\n');
    }
    text += &failures(&summary.setup);
    text.extend(summary.warnings.iter().map(|warning| format!("note: {warning}\n")));
    text.push_str(
        "L1: fewest that can be safe; L2: fewest if what is due is paid where the memory manager looks; x: by that\n",
    );
    text
}

/// The profile's own numbers, then each bound with the ratio to it.
fn grid(
    what: &str,
    summary: &BoundSummary,
    least: impl Fn(&LevelBound) -> (u64, Option<f64>),
    own: impl Fn(&ProfileBound) -> u64,
    width: usize,
) -> String {
    let mut grid = Grid::new(["profile", what, "L1", "x L1", "L2", "x L2"]);
    for bound in &summary.bounds {
        let mut cells = vec![bound.profile.clone(), human::grouped(own(bound))];
        for level in [&bound.l1, &bound.l2] {
            let (least, ratio) = least(level);
            cells.push(human::grouped(least));
            cells.push(ratio.map_or("n/a".to_owned(), |ratio| format!("{ratio:.2}")));
        }
        grid.row(cells);
    }
    grid.render(|column| column == 0, width)
}

/// What forced the rounds of L1, if anything did.
fn causes(summary: &BoundSummary, width: usize) -> Option<String> {
    let all: BTreeSet<&String> = summary.bounds.iter().flat_map(|bound| bound.l1.causes.keys()).collect();
    let profiles = summary.bounds.iter().map(|bound| bound.profile.clone());
    let mut grid = Grid::new(["L1 rounds forced by".to_owned()].into_iter().chain(profiles));
    for &cause in &all {
        let rounds = summary.bounds.iter().map(|bound| bound.l1.causes.get(cause).map_or(0, |of| of.rounds));
        grid.row([cause.clone()].into_iter().chain(rounds.map(human::grouped)));
    }
    (!all.is_empty()).then(|| grid.render(|column| column == 0, width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::run;
    use crate::summary::tests::setup;

    fn level(rounds: u64, receptions: u64) -> LevelRecord {
        let causes = [("reuse".to_owned(), CauseRecord { deadlines: 5, rounds })].into();
        LevelRecord { rounds, receptions, causes }
    }

    #[test]
    fn every_policy_has_a_preset() {
        let words = FlushPolicy::WORDS;
        assert_eq!(policies().count(), words.len());
        assert!(policies().zip(words).all(|(preset, &word)| preset == word || word == "batch"));
    }

    #[test]
    fn ratios_use_the_bound_of_the_same_run() {
        let (mut some, mut none) = (run("a", 1, 1, &[]), run("b", 1, 1, &[]));
        some.bound = Some(BoundRecord {
            rounds: 1500,
            receptions: 4000,
            l1: level(1000, 4000),
            l2: level(1200, 4000),
            stale: 9,
            open_max: 3,
        });
        none.bound = Some(BoundRecord { rounds: 7, ..BoundRecord::default() });
        let summary = BoundSummary::of(setup(&["a", "b"]), &[some, none], 0.0);
        let text = render(&summary, 100);
        let rows = |name: &str| -> Vec<Vec<&str>> {
            let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            rows.filter(|row| row.first() == Some(&name)).collect()
        };
        assert_eq!(rows("a")[0], ["a", "1,500", "1,000", "1.50", "1,200", "1.25"]);
        assert_eq!(rows("a")[1], ["a", "4,000", "4,000", "1.00", "4,000", "1.00"]);
        assert_eq!(rows("b")[0], ["b", "7", "0", "n/a", "0", "n/a"]);
        assert_eq!(rows("reuse")[0], ["reuse", "1,000", "0"]);
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["bounds"][0]["l1"]["rounds_ratio"], 1.5);
        assert!(json["bounds"][1]["l1"]["rounds_ratio"].is_null());
        assert_eq!(json["bounds"][0]["l2"]["causes"]["reuse"]["deadlines"], 5);
    }
}

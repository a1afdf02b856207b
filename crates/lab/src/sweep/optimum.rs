//! The optimum of replacement: a sweep over programs, sizes of memory and policies, compared with the fewest refaults
//! that are possible (docs/optimum.md).

use super::plan::{Sweep, What};
use super::store::{Done, Finished, Key};
use crate::document::Document;
use crate::grid::Grid;
use crate::human;
use crate::profile::PRESETS;
use crate::record::OptimumRecord;
use mm::knobs::Knob;
use serde::Serialize;
use std::collections::BTreeMap;

/// The presets that differ only in the replacement policy: classic, then one for each other value of the knob.
pub fn policies() -> impl Iterator<Item = &'static str> {
    let is_one = |knobs: &[(Knob, u64)]| matches!(knobs, [] | [(Knob::ReclaimPolicy, _)]);
    PRESETS.iter().filter(move |preset| is_one(preset.knobs)).map(|preset| preset.name)
}

/// A program with a size of memory, which runs under all profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// As on the command line.
    pub program: String,
    /// Its footprint in bytes.
    pub footprint: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// The same as text: a share or bytes.
    #[serde(skip)]
    pub size: String,
}

/// The result; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// The machine.
    pub machine: String,
    /// The seed of all runs.
    pub seed: u64,
    /// The profiles that are compared.
    pub profiles: Vec<String>,
    /// Case by case, and for each the profiles in order.
    pub rows: Vec<Row>,
    /// By profile, over the cases that ran under all profiles.
    pub means: BTreeMap<String, Mean>,
    /// Seconds on this computer.
    pub host_seconds: f64,
}

/// One profile in one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// The profile.
    pub profile: String,
    /// The counts; `null` if it could not run.
    #[serde(flatten)]
    pub counts: Option<OptimumRecord>,
    /// `refaults` divided by `optimum`; `null` if none are needed.
    pub ratio_optimum: Option<f64>,
    /// `refaults` divided by `young`; `null` if none are needed.
    pub ratio_young: Option<f64>,
    /// Why there are no numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// One profile over all cases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mean {
    /// Cases with refaults that ran under all profiles.
    pub cases: u64,
    /// Those of them in which all profiles need refaults; the ratios are over these.
    pub needed: u64,
    /// Geometric mean of `ratio_optimum`.
    pub ratio_optimum: f64,
    /// Geometric mean of `ratio_young`.
    pub ratio_young: f64,
    /// The largest `ratio_optimum`.
    pub worst: f64,
    /// Geometric mean, over all cases, of the pages that were read for a use, the first time or again, divided by those
    /// of the optimum.
    pub ratio_pages: f64,
    /// Cases in which no policy had fewer refaults.
    pub fewest: u64,
}

/// Refaults divided by the fewest.
fn ratio(own: u64, least: u64) -> Option<f64> {
    (least > 0).then(|| own as f64 / least as f64)
}

/// Geometric mean; 1 without values.
fn mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = ratios.fold((0.0, 0), |(sum, count), ratio| (sum + ratio.ln(), count + 1));
    (sum / f64::from(count.max(1))).exp()
}

/// The sweep of `cases` over all `profiles`, with one seed.
pub fn sweep(cases: &[Case], of: &What, profiles: &[String], seed: u64) -> Sweep {
    let names = cases.iter().map(|case| format!("{} at {}", case.program, case.size)).collect();
    Sweep::product([("case", names), ("profile", profiles.to_vec())], (seed, 1), &[], |[case, profile]| {
        What {
            program: cases[case].program.clone(),
            memory: Some(cases[case].memory.to_string()),
            profile: profiles[profile].clone(),
            ..of.clone()
        }
    })
}

impl Table {
    /// The table of the sweep over `cases`, whose runs are all done.
    pub fn of(sweep: &Sweep, cases: &[Case], done: &BTreeMap<Key, Done>, host_seconds: f64) -> Table {
        let finished = Finished::of(sweep, done);
        let profiles = sweep.cuts[0].values[1].clone();
        let row = |(at, point): (usize, &super::Point)| {
            let counts = finished.runs(point.what).iter().find_map(|(_, done)| done.record()?.optimum);
            Row {
                case: cases[at / profiles.len()].clone(),
                profile: point.values[1].clone(),
                counts,
                ratio_optimum: counts.and_then(|of| ratio(of.refaults, of.optimum)),
                ratio_young: counts.and_then(|of| ratio(of.refaults, of.young)),
                missing: finished.missing(point.what),
            }
        };
        let rows: Vec<Row> = sweep.points.iter().enumerate().map(row).collect();
        Table {
            machine: sweep.whats[0].machine.clone(),
            seed: sweep.seed,
            means: means(&profiles, &rows),
            profiles,
            rows,
            host_seconds,
        }
    }

    /// The rows of each case.
    fn by_case(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunks(self.profiles.len())
    }
}

fn means(profiles: &[String], rows: &[Row]) -> BTreeMap<String, Mean> {
    let complete = |case: &&[Row]| {
        case.iter().all(|row| row.counts.is_some())
            && case.iter().any(|row| row.counts.is_some_and(|of| of.refaults > 0))
    };
    let cases: Vec<&[Row]> = rows.chunks(profiles.len()).filter(complete).collect();
    let needed: Vec<&[Row]> =
        cases.iter().copied().filter(|case| case.iter().all(|row| row.ratio_optimum.is_some())).collect();
    let counts = |row: &Row| row.counts.unwrap_or_default();
    let of = |i: usize| {
        let ratios = |ratio: fn(&Row) -> Option<f64>| needed.iter().filter_map(move |case| ratio(&case[i]));
        let pages = |case: &&[Row]| {
            let OptimumRecord { pages, refaults, optimum, .. } = counts(&case[i]);
            (pages + refaults) as f64 / (pages + optimum) as f64
        };
        let is_fewest =
            |case: &&&[Row]| case.iter().all(|row| counts(&case[i]).refaults <= counts(row).refaults);
        Mean {
            cases: cases.len() as u64,
            needed: needed.len() as u64,
            ratio_optimum: mean(ratios(|row| row.ratio_optimum)),
            ratio_young: mean(ratios(|row| row.ratio_young)),
            worst: ratios(|row| row.ratio_optimum).fold(1.0, f64::max),
            ratio_pages: mean(cases.iter().map(pages)),
            fewest: cases.iter().filter(is_fewest).count() as u64,
        }
    };
    profiles.iter().cloned().zip((0..).map(of)).collect()
}

impl Document for Table {
    const COMMAND: &'static str = "optimum";

    fn text(&self, width: usize) -> String {
        let mut text = format!(
            "machine  {}\nseed     {}\n\nrefaults divided by the fewest possible (1.00: as few)\n{}\n",
            self.machine,
            self.seed,
            ratios(self, width, |of| of.optimum)
        );
        text += "refaults divided by the fewest of a policy that learns only from young bits that uses have ended\n";
        text += &ratios(self, width, |of| of.young);
        text += "\nover all cases in which there are refaults\n";
        let headings = ["profile", "x optimum", "x young", "worst", "pages x optimum", "no policy better"];
        let mut grid = Grid::new(headings);
        for (profile, mean) in self.profiles.iter().map(|profile| (profile, &self.means[profile])) {
            let Mean { ratio_optimum, ratio_young, worst, ratio_pages, fewest, cases, .. } = *mean;
            let ratios = [ratio_optimum, ratio_young, worst, ratio_pages].map(|ratio| format!("{ratio:.2}"));
            let fewest = format!("{fewest} of {cases}");
            grid.row([profile.clone()].into_iter().chain(ratios).chain([fewest]));
        }
        text += &grid.render(|column| column == 0, width);
        let missing = self.rows.iter().filter_map(|row| row.missing.as_ref().map(|why| (row, why)));
        for (row, why) in missing {
            text += &format!("note: {} at {}, {}: {why}\n", row.case.program, row.case.size, row.profile);
        }
        let needed = self.means.values().next().map_or(0, |mean| mean.needed);
        text + &format!(
            "fewest: in the run of the first profile; +N: N refaults where none are needed; n/a: could not run\n\
         x: geometric means of refaults divided by the fewest of the same run, over the {needed} cases in which all need some\n\
         pages x: the same for all pages that were read for a use, the first time or again, over all cases\n"
        )
    }
}

/// A row for each case: the fewest refaults of the first profile, then the ratio of each profile to its own fewest.
fn ratios(table: &Table, width: usize, least: impl Fn(&OptimumRecord) -> u64) -> String {
    let words = ["program", "memory", "fewest"].map(str::to_owned);
    let mut grid = Grid::new(words.into_iter().chain(table.profiles.iter().cloned()));
    grid.keys(3);
    let cell = |row: &Row| match row.counts.as_ref().map(|of| (of.refaults, least(of))) {
        None => "n/a".to_owned(),
        Some((0, 0)) => "1.00".to_owned(),
        Some((own, 0)) => format!("+{own}"),
        Some((own, least)) => format!("{:.2}", own as f64 / least as f64),
    };
    for case in table.by_case() {
        let first = &case[0];
        let fewest = first.counts.as_ref().map_or("n/a".to_owned(), |of| human::grouped(least(of)));
        let name = first.case.program.clone();
        grid.row([name, first.case.size.clone(), fewest].into_iter().chain(case.iter().map(cell)));
    }
    grid.render(|column| column == 0, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::tests::words;
    use crate::metrics::tests::run;
    use crate::record::RunRecord;

    #[test]
    fn every_policy_has_a_preset() {
        // The last value is for external policies.
        assert_eq!(policies().count() as u64, Knob::ReclaimPolicy.info().max);
        assert!(policies().next() == Some("classic"));
    }

    #[test]
    fn ratios_use_the_same_run_and_means_the_cases_of_all_profiles() {
        let counted = |refaults, optimum, young| {
            let counts = OptimumRecord { uses: 0, pages: 100, frames: 0, refaults, optimum, young };
            Done::Record(Box::new(RunRecord { optimum: Some(counts), ..run("", 1, 1, &[]) }))
        };
        let case = |program: &str| Case {
            program: program.to_owned(),
            footprint: 1 << 20,
            memory: 1 << 19,
            size: "50%".to_owned(),
        };
        let profiles = ["a", "b"].map(str::to_owned);
        let cases = ["one", "two", "three", "none"].map(case);
        let runs = [
            counted(100, 50, 100),
            counted(50, 50, 50),
            counted(4, 0, 2),
            counted(8, 4, 8),
            counted(1, 1, 1),
            Done::Missing("too small".to_owned()),
            counted(0, 0, 0),
            counted(0, 0, 0),
        ];
        let sweep = sweep(&cases, &What { machine: "small".into(), ..What::default() }, &profiles, 1);
        let key = |what: &What| Key { what: what.clone(), seed: 1 };
        let done = sweep.whats.iter().map(key).zip(runs).collect();
        let table = Table::of(&sweep, &cases, &done, 0.0);
        let mean = |name: &str| {
            let Mean { cases, needed, ratio_optimum, ratio_young, worst, ratio_pages, fewest } =
                table.means[name];
            let ratios = [ratio_optimum, ratio_young, worst, ratio_pages];
            (cases, needed, ratios.map(|ratio| (ratio * 1000.0).round()), fewest)
        };
        assert_eq!(mean("a"), (2, 1, [2000.0, 1000.0, 2000.0, 1178.0], 1));
        assert_eq!(mean("b"), (2, 1, [1000.0, 1000.0, 1000.0, 1019.0], 1));
        let text = table.text(200);
        assert_eq!(words(&text, "one"), ["one", "50%", "50", "2.00", "1.00"]);
        assert_eq!(words(&text, "two"), ["two", "50%", "0", "+4", "2.00"]);
        assert_eq!(words(&text, "none"), ["none", "50%", "0", "1.00", "1.00"]);
        assert_eq!(words(&text, "three"), ["three", "50%", "1", "1.00", "n/a"]);
        assert!(text.contains("note: three at 50%, b: too small"), "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
        let json = serde_json::to_value(&table).unwrap();
        assert_eq!(
            (&json["rows"][0]["refaults"], &json["rows"][0]["ratio_optimum"]),
            (&100.into(), &2.0.into())
        );
        assert!(json["rows"][5]["ratio_young"].is_null() && json["rows"][5]["missing"] == "too small");
    }
}

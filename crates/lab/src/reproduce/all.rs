//! Every published figure beside ours, from the results of all reproductions.

use super::{Outcome, Reproduction, SettingOutcome};
use crate::document::Document;
use crate::grid::Grid;
use crate::human;
use crate::statistics::Interval;
use serde::Serialize;

/// The result of `pagefold reproduce all`; its keys are a promise (docs/json.md).
#[derive(Debug, Default, Serialize)]
pub struct Overview {
    /// Reproduction by reproduction.
    pub reproductions: Vec<Totals>,
    /// Every judged figure.
    pub figures: Vec<Figure>,
    /// Whether all runs are finished.
    pub complete: bool,
}

/// How often a reproduction agrees.
#[derive(Debug, PartialEq, Serialize)]
pub struct Totals {
    /// Its name.
    pub reproduction: String,
    /// Share of full size.
    pub scale: f64,
    /// Seeds for each setting.
    pub runs: u32,
    /// Judged figures.
    pub figures: usize,
    /// With the published sign.
    pub same: usize,
    /// With the opposite one.
    pub opposite: usize,
    /// Whose interval has the published value, or a part of the published interval, in it.
    pub overlap: usize,
}

/// A published change and the simulated one.
#[derive(Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The reproduction.
    pub reproduction: String,
    /// The setting.
    pub setting: String,
    /// What is measured.
    pub figure: String,
    /// The profile that is compared with the first side.
    pub profile: String,
    /// The published change in per cent: an interval, or the same number twice. Of gains + is better, of other figures
    /// more.
    pub published_pct: [f64; 2],
    /// Ours.
    pub pct: Option<f64>,
    /// Its interval.
    pub ci_pct: Option<Interval>,
    /// Whether both have one sign; `null` if ours does not differ from 0.
    pub agrees: Option<bool>,
    /// Whether the intervals have values in common; `null` without an interval.
    pub overlaps: Option<bool>,
}

impl Figure {
    /// The judged figures of a setting.
    fn of<'a>(outcome: &'a Outcome, setting: &'a SettingOutcome) -> impl Iterator<Item = Figure> + use<'a> {
        let figure = |name: &str, profile: &str| Figure {
            reproduction: outcome.reproduction.clone(),
            setting: setting.title.clone(),
            figure: name.to_owned(),
            profile: profile.to_owned(),
            published_pct: [0.0; 2],
            pct: None,
            ci_pct: None,
            agrees: None,
            overlaps: None,
        };
        let gains = setting.gains.iter().map(move |gain| Figure {
            published_pct: gain.published_pct,
            pct: gain.pct,
            ci_pct: gain.ci_pct,
            agrees: gain.agrees(),
            overlaps: gain.overlaps(),
            ..figure(&gain.measure, &gain.profile)
        });
        let judged = setting.rows.iter().filter(|row| row.judged);
        let changes = judged.flat_map(|row| row.changes.iter().map(move |change| (row, change)));
        let changes = changes.filter_map(move |(row, change)| {
            let pct = |ratio: f64| (ratio - 1.0) * 100.0;
            let published = change.published_ratio?;
            Some(Figure {
                published_pct: [pct(published); 2],
                pct: change.ratio.map(pct),
                ci_pct: change.ratio_ci.map(|ends| ends.map(pct)),
                agrees: change.agrees(),
                overlaps: change.ratio_ci.map(|[low, high]| (low..=high).contains(&published)),
                ..figure(&row.name, &change.profile)
            })
        });
        gains.chain(changes)
    }
}

impl Overview {
    /// Add the result of a reproduction.
    pub fn add(&mut self, outcome: &Outcome) {
        let settings = outcome.settings.iter();
        let figures: Vec<Figure> = settings.flat_map(|setting| Figure::of(outcome, setting)).collect();
        let count = |is: fn(&Figure) -> bool| figures.iter().filter(|figure| is(figure)).count();
        self.reproductions.push(Totals {
            reproduction: outcome.reproduction.clone(),
            scale: outcome.scale,
            runs: outcome.runs,
            figures: figures.len(),
            same: count(|figure| figure.agrees == Some(true)),
            opposite: count(|figure| figure.agrees == Some(false)),
            overlap: count(|figure| figure.overlaps == Some(true)),
        });
        self.figures.extend(figures);
    }
}

impl Document for Overview {
    const COMMAND: &'static str = "reproduce-all";

    fn text(&self, width: usize) -> String {
        let partial = if self.complete { "" } else { "INTERRUPTED: not all runs were finished\n\n" };
        format!("{partial}{}\n{}\n{}", totals(self, width), figures(self, width), explanations(width))
    }
}

fn totals(of: &Overview, width: usize) -> String {
    let mut grid = Grid::new([
        "reproduction",
        "scale",
        "runs",
        "figures",
        "same sign",
        "opposite",
        "unclear",
        "overlap",
    ]);
    let mut sums = [0; 4];
    let mut row = |name: &str, scale: String, runs: String, counts: [usize; 4]| {
        let [figures, same, opposite, overlap] = counts;
        let unclear = figures - same - opposite;
        let counts = [figures, same, opposite, unclear, overlap].map(|count| count.to_string());
        grid.row([name.to_owned(), scale, runs].into_iter().chain(counts));
    };
    for one in &of.reproductions {
        let counts = [one.figures, one.same, one.opposite, one.overlap];
        sums = std::array::from_fn(|i| sums[i] + counts[i]);
        row(&one.reproduction, super::text::fraction(one.scale), one.runs.to_string(), counts);
    }
    row("all", String::new(), String::new(), sums);
    grid.render(|column| column == 0, width)
}

fn figures(of: &Overview, width: usize) -> String {
    let headings =
        ["reproduction", "setting", "figure", "profile", "published", "ours", "95% interval", "sign", ""];
    let mut grid = Grid::new(headings);
    let mut before = "";
    for one in &of.figures {
        let sign = match one.agrees {
            Some(true) => "same",
            Some(false) => "opposite",
            None => "unclear",
        };
        // A name that is the same as above is not repeated.
        let name = if one.reproduction == before { "" } else { &one.reproduction };
        before = &one.reproduction;
        grid.row([
            name.to_owned(),
            one.setting.clone(),
            one.figure.clone(),
            one.profile.clone(),
            human::percents(one.published_pct),
            one.pct.map_or("n/a".into(), human::percent),
            one.ci_pct.map_or("n/a".into(), human::percents),
            sign.to_owned(),
            if one.overlaps == Some(true) { "overlap".to_owned() } else { String::new() },
        ]);
    }
    grid.render(|column| !(4..=6).contains(&column), width)
}

fn explanations(width: usize) -> String {
    let sources = super::ALL.iter().map(|Reproduction { name, source, .. }| format!("{name}: {source}"));
    let notes = [
        "Changes in per cent against the first side. Of gains (operations, times of applications) + is better; of other figures + is more.",
        "unclear: our interval has no change in it. overlap: the published value, or a part of its interval, is within ours.",
    ];
    let notes = notes.into_iter().map(str::to_owned).chain(sources);
    notes.map(|note| format!("- {}", human::wrapped(&note, 2, width).trim_start())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_gains_are_judged_alike() {
        let mut overview = Overview { complete: true, ..Overview::default() };
        overview.add(&crate::reproduce::result::tests::outcome());
        let [totals] = &overview.reproductions[..] else { panic!("{overview:?}") };
        assert_eq!((totals.figures, totals.same, totals.opposite), (4, 1, 1));
        let user = &overview.figures[0];
        assert_eq!((user.figure.as_str(), user.profile.as_str(), user.agrees), ("User", "list", Some(true)));
        assert!((user.published_pct[0] - 4.62).abs() < 0.01 && user.pct.is_some_and(|pct| pct > 9.0));
        let text = overview.text(200);
        let sum = text.lines().find(|line| line.starts_with("all ")).unwrap();
        assert_eq!(sum.split_whitespace().collect::<Vec<_>>()[..5], ["all", "4", "1", "1", "2"], "{text}");
        assert!(text.contains("opposite") && text.contains("Mel Gorman"), "{text}");
    }
}

//! A reproduction as text.

mod gains;

use super::{Change, Outcome, Row, SettingOutcome};
use crate::document::Document;
use crate::grid::Grid;
use crate::human;
use std::collections::BTreeMap;
use std::fmt::Write;

/// More settings than this share one table.
const MANY: usize = 4;

impl Document for Outcome {
    const COMMAND: &'static str = "reproduce";
    const SCHEMA: u32 = 3;

    fn text(&self, width: usize) -> String {
        render(self, width)
    }
}

/// The whole result.
fn render(outcome: &Outcome, width: usize) -> String {
    let mut text = heading(outcome);
    text.push_str(&gains::render(outcome, width));
    let settings: Vec<_> = outcome.settings.iter().filter(|setting| setting.gains.is_empty()).collect();
    if settings.len() > MANY {
        let _ = write!(text, "\n{}", values(outcome, &settings, width));
        let _ = write!(text, "\n{}", counts(outcome, &settings, width));
    } else {
        for setting in &settings {
            let _ = write!(text, "\n{}\n{}", title(setting), values(outcome, &[setting], width));
            let _ = write!(text, "\n{}", counts(outcome, &[setting], width));
        }
    }
    for setting in settings.iter().filter(|setting| setting.same_work == Some(false)) {
        let _ = writeln!(
            text,
            "WARNING: {}: the profiles did not do the same work, so the ratios are meaningless",
            setting.title
        );
    }
    text.push('\n');
    for note in explanations(outcome).iter().chain(&outcome.notes) {
        let _ = write!(text, "- {}", human::wrapped(note, 2, width).trim_start());
    }
    if outcome.host_seconds > 0.0 {
        let (took, speed) = (human::number(outcome.host_seconds, "s"), human::number(outcome.speed, ""));
        let _ =
            writeln!(text, "\ntook {took} on this computer; a run does {speed} simulated seconds a second");
    }
    text
}

fn heading(outcome: &Outcome) -> String {
    let sides = outcome.profiles.iter().zip(&outcome.published_sides);
    let sides: Vec<String> =
        sides.map(|(profile, published)| format!("{profile} (published: {published})")).collect();
    let sides = sides.join(if sides.len() > 2 { "\n              " } else { " against " });
    let seeds = human::seeds(outcome.seed, outcome.runs);
    let knobs: Vec<String> = outcome.knobs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let knobs =
        if knobs.is_empty() { String::new() } else { format!("\nknobs         {}", knobs.join(", ")) };
    let partial = if outcome.complete { "" } else { "; INTERRUPTED, not all were finished" };
    format!(
        "reproduction  {}\nsource        {}\nsides         {sides}\nscale         {}{knobs}\n\
         runs          {} ({seeds}){partial}\n",
        outcome.reproduction,
        outcome.source,
        scale(outcome.scale),
        outcome.runs,
    )
}

fn scale(value: f64) -> String {
    if value == 1.0 { "full size".to_owned() } else { format!("{} of full size", fraction(value)) }
}

/// A scale as a fraction, if it is one over a whole number.
pub(super) fn fraction(value: f64) -> String {
    let parts = 1.0 / value;
    match (parts - parts.round()).abs() < 1e-9 {
        true if parts.round() == 1.0 => "1".to_owned(),
        true => format!("1/{parts:.0}"),
        false => value.to_string(),
    }
}

fn title(setting: &SettingOutcome) -> String {
    format!(
        "{} ({}): {} of memory, {} read",
        setting.title,
        setting.machine,
        human::bytes(setting.memory as f64),
        human::bytes(setting.footprint as f64)
    )
}

/// Values and ratios: a line for each profile but the first. With several settings each line names its setting.
fn values(outcome: &Outcome, settings: &[&SettingOutcome], width: usize) -> String {
    let many = settings.len() > 1;
    let mut headings = if many { vec!["".to_owned()] } else { Vec::new() };
    let first = (&outcome.published_sides[0], &outcome.profiles[0]);
    headings.extend(["", "unit", "profile", first.0, "published", "ratio"].map(str::to_owned));
    headings.extend([first.1, "ours", "ratio", "95% interval", "miss", "direction"].map(str::to_owned));
    let (words, last) = (headings.len() - 9, headings.len() - 1);
    let mut grid = Grid::new(headings);
    let mut directions = Directions::default();
    for (setting, row) in settings.iter().flat_map(|one| one.rows.iter().map(move |row| (one, row))) {
        // Two published rows may have the same measure.
        let earlier = setting.rows.iter().take_while(|other| !std::ptr::eq(*other, row));
        let again = earlier.into_iter().any(|other| other.values == row.values);
        let shown = |change: &Change| change.published_ratio.is_some() || !again;
        for (i, change) in row.changes.iter().enumerate().filter(|(_, change)| shown(change)) {
            let title = (if many { Some(setting.title.clone()) } else { None }).into_iter();
            let published = |i: usize| row.published.get(i).map_or(String::new(), |&known| value(row, known));
            let ratio =
                |ratio: Option<f64>, none: &str| ratio.map_or(none.to_owned(), |it| format!("{it:.3}"));
            grid.row(title.chain([
                row.name.clone(),
                row.unit.clone(),
                change.profile.clone(),
                published(0),
                published(i + 1),
                ratio(change.published_ratio, ""),
                value(row, row.values[&outcome.profiles[0]]),
                value(row, row.values[&change.profile]),
                ratio(change.ratio, "n/a"),
                change.ratio_ci.map_or("n/a".into(), |[low, high]| format!("{low:.3} .. {high:.3}")),
                change.miss_pct.map_or(String::new(), human::percent),
                directions.count(row, change).to_owned(),
            ]));
        }
    }
    grid.render(|column| column < words || column == last, width) + &directions.to_text()
}

/// The number of changes that have the published direction.
#[derive(Default)]
struct Directions {
    all: u32,
    same: u32,
    opposite: u32,
}

impl Directions {
    fn count(&mut self, row: &Row, change: &Change) -> &'static str {
        if change.published_ratio.is_none() {
            return "";
        }
        if !row.judged {
            return "not judged";
        }
        self.all += 1;
        match change.agrees() {
            Some(true) => {
                self.same += 1;
                "same"
            }
            Some(false) => {
                self.opposite += 1;
                "opposite"
            }
            None => "unclear",
        }
    }

    fn to_text(&self) -> String {
        format!("{} of {} in the same direction, {} in the opposite\n", self.same, self.all, self.opposite)
    }
}

/// A value of a row, without its unit.
fn value(row: &Row, value: f64) -> String {
    if ["loops", "KiB/s"].contains(&row.unit.as_str()) {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

fn counts(outcome: &Outcome, settings: &[&SettingOutcome], width: usize) -> String {
    let many = settings.len() > 1;
    let mut headings = if many { vec!["".to_owned()] } else { Vec::new() };
    headings.push("counts (at this scale)".to_owned());
    headings.extend(outcome.profiles.iter().cloned());
    let words = headings.len() - outcome.profiles.len();
    let mut grid = Grid::new(headings);
    let rows = settings.iter().flat_map(|one| one.counts.iter().map(move |of| (one, of)));
    // A program has no folios of most sizes.
    let none = |name: &str, values: &BTreeMap<String, f64>| {
        name.starts_with("alloc_order") && values.values().all(|&value| value == 0.0)
    };
    for (setting, (name, values)) in rows.filter(|(_, (name, values))| !none(name, values)) {
        let unit = if name.ends_with("_seconds") { "s" } else { "" };
        let title = (if many { Some(setting.title.clone()) } else { None }).into_iter();
        let cells = outcome.profiles.iter().map(|profile| human::number(values[profile], unit));
        grid.row(title.chain(std::iter::once(name.clone())).chain(cells));
    }
    grid.render(|column| column < words, width)
}

fn explanations(outcome: &Outcome) -> Vec<String> {
    let first = &outcome.profiles[0];
    let figures = if outcome.settings.iter().any(|setting| !setting.gains.is_empty()) {
        format!(
            "A gain is more work a second or less time than {first}; + is better. Refaults are the memory manager's count \
             (workingset_refault_*). No number of machines or programs is tuned so that a published result comes out."
        )
    } else {
        format!(
            "Ratios are to {first}. miss = our ratio against the published one. Our times and loops are divided by the \
             scale. No number of the machines is tuned so that a published result comes out."
        )
    };
    let periods = "Where memory is a share of full size, Linux's periods are the same share: of the groups' statistics (2 s), \
                   of write-back (5 and 30 s), of khugepaged (10 and 60 s), of NUMA balancing (1 and 60 s) and tiers (0.5 s).";
    let shrunk = (outcome.scale < 1.0).then(|| periods.to_owned());
    std::iter::once(figures).chain(shrunk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::tests::words;
    use crate::reproduce::result::tests::outcome;

    #[test]
    fn line_has_published_and_simulated_values() {
        let mut outcome = outcome();
        let text = outcome.text(200);
        let line = |start| words(&text, start);
        assert_eq!(
            line("User"),
            [
                "User", "s", "list", "58.02", "60.70", "1.046", "20.01", "22.00", "1.099", "1.093", "..",
                "1.106", "+5.09%", "same"
            ]
        );
        assert_eq!(line("System").last(), Some(&"opposite"));
        assert_eq!(line("Elapsed")[8..13], ["1.000", "1.000", "..", "1.000", "-4.40%"]);
        assert!(text.contains("1 of 4 in the same direction, 1 in the opposite"), "{text}");
        let eager = text.lines().find(|line| line.starts_with("System") && line.contains("eager")).unwrap();
        assert_eq!(
            eager.split_whitespace().collect::<Vec<_>>()[2..],
            ["eager", "77.57", "40.00", "80.00", "2.000", "2.000", "..", "2.000"]
        );
        assert_eq!(line("ipis_received"), ["ipis_received", "5", "5", "5"]);
        assert_eq!(line("scale"), ["scale", "1/2", "of", "full", "size"]);
        assert!(text.contains("INTERRUPTED") && text.contains("INVLPG"));
        assert!(text.lines().all(|line| line == line.trim_end()));
        outcome.complete = true;
        assert!(!outcome.text(200).contains("INTERRUPTED"));
    }

    #[test]
    fn scale_is_shown_as_a_fraction_if_it_is_one() {
        assert_eq!([1.0, 0.0625, 0.3].map(scale), ["full size", "1/16 of full size", "0.3 of full size"]);
    }
}

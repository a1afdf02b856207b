//! A reproduction for people.

use super::{Outcome, Row, SettingOutcome};
use crate::human;
use crate::table::Grid;
use std::fmt::Write;

/// Columns of running text.
const WIDTH: usize = 110;

/// The whole result.
pub fn render(outcome: &Outcome) -> String {
    let mut text = heading(outcome);
    text.push_str(&super::gain::render(outcome));
    for setting in outcome.settings.iter().filter(|setting| setting.gains.is_empty()) {
        let _ = write!(text, "\n{}\n{}", title(setting), values(outcome, setting));
        let _ = write!(text, "\n{}", counts(outcome, setting));
        if setting.same_work == Some(false) {
            text.push_str("WARNING: the profiles did not do the same work, so the ratios mean nothing\n");
        }
    }
    text.push('\n');
    for note in explanations(outcome).iter().chain(&outcome.notes) {
        text.push_str(&wrapped(note));
    }
    if outcome.host_seconds > 0.0 {
        let _ = writeln!(text, "\ntook {} on this computer", human::number(outcome.host_seconds, "s"));
    }
    text
}

fn heading(outcome: &Outcome) -> String {
    let [first, second] =
        [0, 1].map(|i| format!("{} (published: {})", outcome.profiles[i], outcome.published_sides[i]));
    let seeds = match outcome.runs {
        0 | 1 => format!("seed {}", outcome.seed),
        runs => format!("seeds {}..{}", outcome.seed, outcome.seed + u64::from(runs) - 1),
    };
    let knobs: Vec<String> = outcome.knobs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let knobs =
        if knobs.is_empty() { String::new() } else { format!("\nknobs         {}", knobs.join(", ")) };
    let partial = if outcome.complete { "" } else { "; INTERRUPTED, not all were finished" };
    format!(
        "reproduction  {}\nsource        {}\nsides         {first} against {second}\nscale         {}{knobs}\n\
         runs          {} ({seeds}){partial}\n",
        outcome.reproduction,
        outcome.source,
        scale(outcome.scale),
        outcome.runs,
    )
}

/// A scale as one over a whole number, if it is one.
fn scale(value: f64) -> String {
    let parts = 1.0 / value;
    match (parts - parts.round()).abs() < 1e-9 {
        true if parts.round() == 1.0 => "full size".to_owned(),
        true => format!("1/{parts:.0} of full size"),
        false => format!("{value} of full size"),
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

fn values(outcome: &Outcome, setting: &SettingOutcome) -> String {
    let [first, second] = &outcome.published_sides;
    let mut headings =
        vec!["".to_owned(), "unit".to_owned(), first.clone(), second.clone(), "ratio".to_owned()];
    headings.extend(outcome.profiles[..2].iter().cloned());
    headings.extend(["ratio", "95% interval", "miss", "direction"].map(str::to_owned));
    headings.extend(outcome.profiles[2..].iter().cloned());
    let words = headings.len() - 1 - outcome.profiles[2..].len();
    let mut grid = Grid::new(headings);
    for row in &setting.rows {
        let ours = |name: &String| value(row, row.values[name]);
        let mut cells = vec![row.name.clone(), row.unit.clone()];
        cells.extend(row.published.map(|published| value(row, published)));
        cells.push(format!("{:.3}", row.published_ratio));
        cells.extend(outcome.profiles[..2].iter().map(ours));
        cells.push(row.ratio.map_or("n/a".into(), |ratio| format!("{ratio:.3}")));
        cells.push(row.ratio_ci.map_or("n/a".into(), |[low, high]| format!("{low:.3} .. {high:.3}")));
        cells.push(row.miss_pct.map_or("n/a".into(), human::percent));
        cells.push(direction(row).to_owned());
        cells.extend(outcome.profiles[2..].iter().map(ours));
        grid.row(cells);
    }
    grid.render(|column| column < 2 || column == words)
}

/// A value of a row, without its unit.
fn value(row: &Row, value: f64) -> String {
    if row.unit == "loops" { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn direction(row: &Row) -> &'static str {
    match row.agrees() {
        Some(true) => "same",
        Some(false) => "opposite",
        None => "none told",
    }
}

fn counts(outcome: &Outcome, setting: &SettingOutcome) -> String {
    let headings =
        std::iter::once("counts (at this scale)").chain(outcome.profiles.iter().map(String::as_str));
    let mut grid = Grid::new(headings);
    for (name, values) in &setting.counts {
        let unit = if name.ends_with("_seconds") { "s" } else { "" };
        let cells = outcome.profiles.iter().map(|profile| human::number(values[profile], unit));
        grid.row(std::iter::once(name.clone()).chain(cells));
    }
    grid.render(|column| column == 0)
}

fn explanations(outcome: &Outcome) -> Vec<String> {
    let [first, second] = [0, 1].map(|i| outcome.profiles[i].as_str());
    if outcome.settings.iter().any(|setting| !setting.gains.is_empty()) {
        return vec![format!(
            "A gain is more work a second or less time than {first}; + is better. Refaults are the memory manager's count \
             (workingset_refault_*). No number of machines or programs is tuned so that a published result comes out."
        )];
    }
    vec![format!(
        "Ratios are {second} / {first}. miss = our ratio against the published one. Our times and loops are divided by the \
         scale. No number of the machines is tuned so that a published result comes out."
    )]
}

/// A note: `- ` and lines of at most [`WIDTH`] characters.
fn wrapped(note: &str) -> String {
    let (mut text, mut width) = ("-".to_owned(), 1);
    for word in note.split_whitespace() {
        let length = word.chars().count();
        if width + 1 + length > WIDTH {
            text.push_str("\n ");
            width = 1;
        }
        text.push(' ');
        text.push_str(word);
        width += 1 + length;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::result::tests::outcome;

    #[test]
    fn ours_stands_beside_what_was_published() {
        let mut outcome = outcome();
        let text = render(&outcome);
        let line = |start: &str| -> Vec<&str> {
            let line = text.lines().find(|line| line.starts_with(start)).expect(start);
            line.split_whitespace().collect()
        };
        assert_eq!(
            line("User"),
            [
                "User", "s", "58.02", "60.70", "1.046", "20.01", "22.00", "1.099", "1.093", "..", "1.106",
                "+5.09%", "same", "20.00"
            ]
        );
        assert_eq!(line("System").last_chunk(), Some(&["opposite", "80.00"]));
        assert_eq!(line("Elapsed")[7..12], ["1.000", "1.000", "..", "1.000", "-4.40%"]);
        assert_eq!(line("ipis_received"), ["ipis_received", "5", "5", "5"]);
        assert_eq!(line("scale"), ["scale", "1/2", "of", "full", "size"]);
        assert!(text.contains("INTERRUPTED") && text.contains("INVLPG"));
        assert!(text.lines().all(|line| line == line.trim_end()));
        outcome.complete = true;
        assert!(!render(&outcome).contains("INTERRUPTED"));
    }

    #[test]
    fn scales_that_are_no_fractions_stand_as_they_are() {
        assert_eq!([1.0, 0.0625, 0.3].map(scale), ["full size", "1/16 of full size", "0.3 of full size"]);
    }
}

//! The page of a sweep's directory.

use super::parts::{notes, picture, table, verbatim};
use super::{Section, page};
use crate::document::{Document, Origin};
use crate::human;
use crate::sweep::Outcome;
use maud::{Markup, html};

/// The page of a sweep with this plan. `made`: the build that did its runs. `command` made the page.
pub fn sweep(outcome: &Outcome, plan: &str, (command, made): (&str, Option<&Origin>)) -> String {
    let sections = [
        Section { id: "result", title: "Result", body: result(outcome) },
        Section {
            id: "plan",
            title: "What was run",
            body: html! {
                (verbatim(plan))
                p { "A sweep keeps what runs counted. For a point over time, run it: pagefold run ... --html FILE." }
            },
        },
    ];
    page(outcome.title(), &lead(outcome), &sections, (command, made))
}

fn result(outcome: &Outcome) -> Markup {
    html! {
        @for cut in 0..outcome.cuts() {
            @let (fixed, words, grid) = outcome.cut_grid(cut);
            @let caption = if fixed.is_empty() { outcome.about() } else { format!("{fixed}; {}", outcome.about()) };
            (table(&caption, &grid, 0, |column| column < words))
        }
        (notes(&outcome.notes()))
        @if let Some(svg) = outcome.svg() { (picture(&svg)) }
    }
}

/// How many points there are, and what the comparison says of the first metric.
fn lead(outcome: &Outcome) -> Vec<String> {
    let (points, missing) =
        (outcome.rows.len(), outcome.rows.iter().filter(|row| row.missing.is_some()).count());
    let mut first = human::plural(points as u64, "point", "points");
    if missing > 0 {
        first += &format!(", {missing} of which could not run");
    }
    if outcome.left > 0 {
        first += &format!("; {} not done", human::plural(outcome.left as u64, "run is", "runs are"));
    }
    [first + "."].into_iter().chain(extremes(outcome)).collect()
}

/// Where the first metric changes most, for better and for worse.
fn extremes(outcome: &Outcome) -> Option<String> {
    let (axis, base) = (outcome.compare.as_ref()?, outcome.base()?);
    let changes = outcome.rows.iter().filter_map(|row| Some((row, row.shown.first()?)));
    let mut changes: Vec<_> =
        changes.filter_map(|(row, shown)| Some((row, shown, shown.change_pct?))).collect();
    changes.sort_by(|a, b| a.2.total_cmp(&b.2));
    let place = |row: &crate::sweep::Row| {
        let values: Vec<String> = row.values.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
        values.join(", ")
    };
    let ((worst, shown, low), (best, _, high)) = (changes.first()?, changes.last()?);
    let [low, high] = [low, high].map(|change| human::percent(*change));
    Some(format!(
        "Against {axis} {base}, {} changes from {low} ({}) to {high} ({}); positive is better.",
        shown.metric,
        place(worst),
        place(best)
    ))
}

//! What pages are made of.

use crate::grid::Grid;
use maud::{Markup, PreEscaped, html};

/// A table. Column `key` says what a row is, and `words` which columns besides it hold words.
pub(super) fn table(caption: &str, grid: &Grid, key: usize, words: impl Fn(usize) -> bool) -> Markup {
    let (headings, rows) = grid.contents();
    let class = |column: usize| if column == key || words(column) { Some("w") } else { None };
    html! {
        div.scroll role="region" tabindex="0" aria-label=(caption) {
            table {
                caption { span { (caption) } }
                thead {
                    tr { @for (at, heading) in headings.iter().enumerate() {
                        th scope="col" class=[class(at)] { (heading) }
                    } }
                }
                tbody {
                    @for row in rows {
                        tr { @for (at, cell) in row.iter().enumerate() {
                            @if at == key {
                                th.w scope="row" { (cell) }
                            } @else {
                                td class=[class(at).or_else(|| tone(cell))] { (cell) }
                            }
                        } }
                    }
                }
            }
        }
    }
}

/// How a cell looks: changes that are significant are better (`+`) or worse.
fn tone(cell: &str) -> Option<&'static str> {
    match (cell.ends_with('*'), cell.as_bytes().first()) {
        (true, Some(b'+')) => Some("good"),
        (true, Some(b'-')) => Some("bad"),
        _ => None,
    }
}

/// Names and values.
pub(super) fn facts(facts: &[(impl AsRef<str>, String)]) -> Markup {
    html! { dl { @for (name, value) in facts { dt { (name.as_ref()) } dd { (value) } } } }
}

/// Lines of a text, one below the other.
pub(super) fn notes(text: &str) -> Markup {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    html! { @if !lines.is_empty() { ul.notes { @for line in lines { li { (line) } } } } }
}

/// A text with its line breaks, as a table of Linux is.
pub(super) fn verbatim(text: &str) -> Markup {
    html! { pre tabindex="0" { (text) } }
}

/// A finished picture. In a page it needs no name of its format, which looks like an address of the network.
pub(super) fn picture(svg: &str) -> Markup {
    html! { figure { (PreEscaped(svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1))) } }
}

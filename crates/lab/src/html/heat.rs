//! Accesses by address and time.

use super::parts::table;
use crate::grid::Grid;
use crate::history::{UsedRow, Uses};
use crate::human;
use maud::{Markup, PreEscaped, html};
use mm::units::PAGE_SIZE;
use std::fmt::Write;

/// The most rows of the picture, of its table, and of its labels.
const ROWS: usize = 96;
const TABLE: usize = 24;
const LABELS: usize = 14;
/// Shades of cells with accesses.
const SHADES: u32 = 6;

/// Consecutive rows that are drawn as one.
struct Band {
    process: u32,
    /// The first page, and the one behind the last.
    pages: (u64, u64),
    counts: Vec<u64>,
    /// Whether pages are left out between this one and the band before.
    gap: bool,
}

impl Band {
    fn accesses(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Its addresses.
    fn range(&self) -> String {
        format!("{:#x}\u{2013}{:#x}", self.pages.0 * PAGE_SIZE, self.pages.1 * PAGE_SIZE)
    }
}

/// The picture, what its shades mean, and a table of where accesses went.
pub(super) fn heat(uses: &Uses, end: u64) -> Markup {
    let columns = (end / uses.column.max(1)) as usize + 1;
    let bands = bands(uses, ROWS);
    let most = bands.iter().flat_map(|band| &band.counts).copied().max().unwrap_or(0);
    if most == 0 {
        return html! { p { "The program accessed no memory." } };
    }
    let several = bands.iter().any(|band| band.process != bands[0].process);
    let place = |row: usize| format!("top:{:.2}%", row as f64 * 100.0 / bands.len() as f64);
    html! {
        figure {
            div.heat {
                div.at aria-hidden="true" {
                    @for (row, text) in labels(&bands, several) { span style=(place(row)) { (text) } }
                }
                svg viewBox={ "0 0 " (columns) " " (bands.len()) } preserveAspectRatio="none" role="img"
                    shape-rendering="crispEdges" aria-label=(in_words(uses, &bands, most)) {
                    (PreEscaped(cells(&bands, most)))
                    path.gap d=(gaps(&bands, columns)) {}
                }
                div.when aria-hidden="true" {
                    @for part in 0..=4u64 { span { (human::number((end * part / 4) as f64, "ns")) } }
                }
            }
            figcaption {
                "Addresses from top to bottom, time from left to right. Only pages that were accessed have a place; a \
                 line is where others are left out. System calls that read and write files are not in it."
            }
            ul.key {
                @for shade in 1..=SHADES {
                    li {
                        svg viewBox="0 0 1 1" aria-hidden="true" { path class={ "h" (shade) } d="M0 0h1v1h-1z" {} }
                        " " (shade_in_words(shade, most))
                    }
                }
                li { "accesses to a cell of " (human::number(uses.column as f64, "ns")) }
            }
        }
        details {
            summary { "Accesses by address" }
            (by_address(uses, several))
        }
    }
}

/// Rows joined to at most `most` bands. Those of different processes are never joined.
fn bands(uses: &Uses, most: usize) -> Vec<Band> {
    let together = uses.rows.len().div_ceil(most).max(1);
    let mut bands: Vec<Band> = Vec::new();
    for process in uses.rows.chunk_by(|a, b| a.process == b.process) {
        for rows in process.chunks(together) {
            let first = rows[0].page;
            let gap =
                bands.last().is_some_and(|last| last.process != rows[0].process || last.pages.1 != first);
            bands.push(Band {
                process: rows[0].process,
                pages: (first, rows[rows.len() - 1].page + uses.pages),
                counts: sum(rows),
                gap,
            });
        }
    }
    bands
}

fn sum(rows: &[UsedRow]) -> Vec<u64> {
    let columns = rows.iter().map(|row| row.counts.len()).max().unwrap_or(0);
    (0..columns).map(|at| rows.iter().filter_map(|row| row.counts.get(at)).sum()).collect()
}

/// The shade of a cell, on a logarithmic scale; 0 without accesses.
fn shade(count: u64, most: u64) -> u32 {
    let share = (count as f64).ln_1p() / (most as f64).ln_1p();
    (share * f64::from(SHADES)).ceil() as u32
}

/// The fewest and the most accesses of a shade.
fn shade_in_words(number: u32, most: u64) -> String {
    let end = |number: u32| ((most as f64).ln_1p() * f64::from(number) / f64::from(SHADES)).exp_m1();
    let [from, to] = [(end(number - 1) + 1e-6).floor() + 1.0, (end(number) + 1e-6).floor()];
    let show = |value: f64| human::number(value, "");
    if from >= to { show(to) } else { format!("{}\u{2013}{}", show(from), show(to)) }
}

/// A path for each shade; cells of a shade that are beside each other are one rectangle.
fn cells(bands: &[Band], most: u64) -> String {
    let mut paths = vec![String::new(); SHADES as usize + 1];
    for (row, band) in bands.iter().enumerate() {
        let mut column = 0;
        let shades: Vec<u32> = band.counts.iter().map(|&count| shade(count, most)).collect();
        for same in shades.chunk_by(|a, b| a == b) {
            let width = same.len();
            if let Some(path) = paths.get_mut(same[0] as usize).filter(|_| same[0] > 0) {
                let _ = write!(path, "M{column} {row}h{width}v1h-{width}z");
            }
            column += width;
        }
    }
    let mut text = String::new();
    for (shade, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let _ = writeln!(text, "<path class=\"h{shade}\" d=\"{path}\"/>");
    }
    text
}

/// A line at each gap.
fn gaps(bands: &[Band], columns: usize) -> String {
    let rows = bands.iter().enumerate().filter(|(_, band)| band.gap);
    rows.map(|(row, _)| format!("M0 {row}h{columns}")).collect()
}

/// Addresses at some rows: where a range begins, as long as there is room.
fn labels(bands: &[Band], several: bool) -> Vec<(usize, String)> {
    let room = bands.len().div_ceil(LABELS).max(1);
    let mut labels: Vec<(usize, String)> = Vec::new();
    for (row, band) in bands.iter().enumerate().filter(|(row, band)| *row == 0 || band.gap) {
        if labels.last().is_none_or(|(last, _)| row >= last + room) && row + room / 2 < bands.len() {
            let process = if several { format!("{}: ", band.process) } else { String::new() };
            labels.push((row, format!("{process}{:#x}", band.pages.0 * PAGE_SIZE)));
        }
    }
    labels
}

fn in_words(uses: &Uses, bands: &[Band], most: u64) -> String {
    let pages = uses.pages * uses.rows.len() as u64;
    let hottest = bands.iter().max_by_key(|band| band.counts.iter().max());
    let (range, column) = hottest.map_or((String::new(), 0), |band| {
        let column = band.counts.iter().position(|&count| count == most).unwrap_or(0);
        (band.range(), column as u64 * uses.column)
    });
    format!(
        "Accesses by address and time, {} of addresses in {} rows. The most in one cell are {} at {}, from {} on. A table \
         follows.",
        human::bytes((pages * PAGE_SIZE) as f64),
        bands.len(),
        human::grouped(most),
        range,
        human::number(column as f64, "ns"),
    )
}

/// Where accesses went.
fn by_address(uses: &Uses, several: bool) -> Markup {
    let bands = bands(uses, TABLE);
    let all: u64 = bands.iter().map(Band::accesses).sum();
    let process = several.then_some("process");
    let mut grid = Grid::new(["addresses"].into_iter().chain(process).chain(["accesses", "share"]));
    for band in &bands {
        let process = several.then(|| band.process.to_string());
        let share = format!("{:.2} %", band.accesses() as f64 * 100.0 / all.max(1) as f64);
        grid.row([band.range()].into_iter().chain(process).chain([human::grouped(band.accesses()), share]));
    }
    table("Accesses by address; pages between the first and the last may be left out", &grid, 0, |_| false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses() -> Uses {
        let row = |process, page, counts: &[u64]| UsedRow { process, page, counts: counts.to_vec() };
        let rows =
            vec![row(0, 16, &[1, 1, 1]), row(0, 17, &[0, 900]), row(0, 64, &[0, 0, 7]), row(1, 16, &[2])];
        Uses { column: 1000, pages: 1, rows }
    }

    #[test]
    fn cells_beside_each_other_are_one_rectangle_and_gaps_are_lines() {
        let uses = uses();
        let bands = bands(&uses, ROWS);
        assert_eq!(bands.iter().map(|band| band.gap).collect::<Vec<_>>(), [false, false, true, true]);
        assert_eq!(gaps(&bands, 3), "M0 2h3M0 3h3");
        let text = cells(&bands, 900);
        assert!(text.contains("class=\"h1\" d=\"M0 0h3v1h-3zM0 3h1v1h-1z\""), "{text}");
        assert!(text.contains("class=\"h6\" d=\"M1 1h1v1h-1z\""), "{text}");
        assert_eq!(labels(&bands, true)[2].1, "1: 0x10000");
    }

    #[test]
    fn joined_rows_lose_no_access_and_stay_in_their_process() {
        let bands = bands(&uses(), 2);
        let counts: Vec<u64> = bands.iter().map(Band::accesses).collect();
        assert_eq!((counts, bands[1].pages, bands[2].process), (vec![903, 7, 2], (64, 65), 1));
    }

    #[test]
    fn shades_are_logarithmic() {
        assert_eq!([0, 1, 30, 900].map(|count| shade(count, 900)), [0, 1, 4, 6]);
        assert_eq!(shade(1, 1), SHADES, "one access is the most there is");
        assert_eq!(
            [1, 2, 6].map(|number| shade_in_words(number, 900)),
            ["1\u{2013}2", "3\u{2013}8", "289\u{2013}900"]
        );
        for count in 1..=900 {
            let words = shade_in_words(shade(count, 900), 900);
            let (from, to) = words.split_once('\u{2013}').unwrap();
            let range = from.parse::<u64>().unwrap()..=to.parse().unwrap();
            assert!(range.contains(&count), "{count} is not of {words}");
        }
    }
}

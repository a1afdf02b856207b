//! The summary of docs/truth.md, as text: what is read of it by the task `truth` and by the rules of the house.

use std::collections::BTreeMap;

/// What the summary says of a kernel and a set of cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub compared: usize,
    pub failed: usize,
    pub judged: usize,
    pub noisy: usize,
    pub within_10: usize,
    pub within_25: usize,
    pub missed: usize,
    pub unexplained: usize,
    pub rankings: usize,
    pub agree: usize,
    pub inverted: usize,
}

/// By kernel, and by set.
pub type ByKernel = BTreeMap<(String, String), Sums>;

/// What the summary says.
pub fn said(text: &str) -> ByKernel {
    let number = |cell: &str| cell.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(usize::MAX);
    let mut rows = section(text, "Summary").filter_map(cells);
    let headings = rows.next().unwrap_or_default();
    let of_row = |row: Vec<&str>| {
        let column = |name: &str| headings.iter().position(|heading| *heading == name);
        let cell = |name: &str| row.get(column(name)?).copied();
        let at = |name: &str| cell(name).map_or(usize::MAX, number);
        let sums = Sums {
            compared: at("compared"),
            failed: at("failed"),
            judged: at("judged"),
            // Pages that were made without this verdict have no such column.
            noisy: cell("noisy").map_or(0, number),
            within_10: at("within 10 %"),
            within_25: at("within 25 %"),
            missed: at("missed"),
            unexplained: at("beyond 25 %, no cause"),
            rankings: at("rankings"),
            agree: at("agree"),
            inverted: at("inverted"),
        };
        ((row[0].to_owned(), row[1].to_owned()), sums)
    };
    rows.map(of_row).collect()
}

/// The lines of a section.
pub fn section<'a>(text: &'a str, title: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let heading = format!("## {title}");
    text.lines().skip_while(move |line| *line != heading).skip(1).take_while(|line| !line.starts_with("## "))
}

/// The cells of a row.
pub fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix("| ")?.strip_suffix('|')?;
    (!row.starts_with("---")).then(|| row.split('|').map(str::trim).collect())
}

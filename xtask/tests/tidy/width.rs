//! How wide text may be.

use crate::project::files;
use crate::prose::{Line, lines_of_markdown};
use crate::ratchet::{Offence, check};

/// Columns of a comment.
const MAX_COMMENT: usize = 120;
/// Columns of prose in Markdown.
const MAX_PROSE: usize = 100;

/// Rows of tables cannot be broken.
fn comment_fits(line: &str) -> bool {
    line.chars().count() <= MAX_COMMENT || !line.trim_start().starts_with("//") || line.contains(" | ")
}

#[test]
fn comments_fit() {
    let mut offences = Vec::new();
    for file in files("", ".rs") {
        let wide = file.text.lines().enumerate().filter(|(_, line)| !comment_fits(line));
        offences.extend(wide.map(|(at, line)| Offence {
            path: file.path.clone(),
            line: at + 1,
            name: "comment".to_owned(),
            complaint: format!("a comment of {} columns, more than {MAX_COMMENT}", line.chars().count()),
        }));
    }
    check("comments-fit", &offences);
}

/// Returns the lines of prose (from 1 on) that are too wide, and their columns. Headings, pictures, commands and
/// what has no space cannot be broken; the targets of links do not count.
fn wide_prose(text: &str) -> Vec<(usize, usize)> {
    let breakable = |line: &str| {
        line.trim().contains(' ') && !["#", "![", "<!--", "`"].iter().any(|start| line.starts_with(start))
    };
    let lines = lines_of_markdown(text).into_iter();
    let prose = lines.filter(|(_, line, kind)| *kind == Line::Prose && breakable(line));
    let columns = prose.map(|(at, line, _)| (at + 1, without_targets(line).chars().count()));
    columns.filter(|(_, columns)| *columns > MAX_PROSE).collect()
}

/// A line without what its links point to.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |before, part| before + "]" + part.split_once(')').map_or("", |(_, rest)| rest))
}

#[test]
fn doc_prose_fit() {
    let mut offences = Vec::new();
    for file in files("", ".md") {
        offences.extend(wide_prose(&file.text).into_iter().map(|(line, columns)| Offence {
            path: file.path.clone(),
            line,
            name: "prose".to_owned(),
            complaint: format!("prose of {columns} columns, more than {MAX_PROSE}"),
        }));
    }
    check("doc-prose-fit", &offences);
}

#[test]
fn tables_code_and_targets_of_links_may_be_wider() {
    let long = "x ".repeat(60);
    assert_eq!(wide_prose(&format!("short\n{long}\n")), [(2, 120)]);
    assert_eq!(wide_prose(&format!("| {long} |\n```\n{long}\n```\n## {long}\n")), []);
    let link = format!("see [this]({}), and [that](x).", "y".repeat(100));
    assert_eq!(without_targets(&link), "see [this], and [that].");
    assert_eq!(wide_prose(&link), []);
}

#[test]
fn code_and_rows_of_tables_may_be_wider() {
    let long = "x ".repeat(70);
    assert!(!comment_fits(&format!("    // {long}")));
    assert!(comment_fits(&long));
    assert!(comment_fits(&format!("//! | {long} |")));
}

//! How wide text may be.

use crate::project::files;
use crate::ratchet::{Offence, check};

/// Columns of a comment.
const MAX_COMMENT: usize = 120;

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

#[test]
fn code_and_rows_of_tables_may_be_wider() {
    let long = "x ".repeat(70);
    assert!(!comment_fits(&format!("    // {long}")));
    assert!(comment_fits(&long));
    assert!(comment_fits(&format!("//! | {long} |")));
}

//! Rules for each Rust file by itself: its length, what is left over, and reasons of `unsafe`.

use crate::project::files;
use crate::ratchet::{Offence, check};

/// Lines after which a file is two subjects.
const MAX_LINES: usize = 700;
/// Lines above an `unsafe` in which its reason must be.
const REASON_REACH: usize = 8;

/// The code of a line, without its comment. Good enough for rules that look for words.
pub fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

/// Checks every Rust file by `rule`, which returns the lines (from 0 on) that break it, each with a complaint.
fn check_each(name: &str, rule: impl Fn(&str) -> Vec<(usize, String)>) {
    let mut offences = Vec::new();
    for file in files("", ".rs") {
        let broken = rule(&file.text).into_iter();
        offences.extend(broken.map(|(at, complaint)| Offence {
            path: file.path.clone(),
            line: at + 1,
            name: name.to_owned(),
            complaint,
        }));
    }
    check(name, &offences);
}

#[test]
fn one_subject_per_file() {
    check_each("one-subject-per-file", |text| {
        let lines = text.lines().count();
        let complaint = || (lines, format!("{lines} lines, more than {MAX_LINES}: split it"));
        (lines > MAX_LINES).then(complaint).into_iter().collect()
    });
}

#[test]
fn nothing_left_over() {
    check_each("nothing-left-over", left_over);
}

fn left_over(text: &str) -> Vec<(usize, String)> {
    // Written in pieces, so that this file keeps its own rule.
    let banned = [["to", "do!("], ["unimple", "mented!("], ["d", "bg!("]].map(|[a, b]| format!("{a}{b}"));
    let found = |line: &str| banned.iter().find(|word| line.contains(word.as_str())).cloned();
    text.lines().enumerate().filter_map(|(at, line)| Some((at, found(code(line))?))).collect()
}

#[test]
fn unsafe_has_a_reason() {
    check_each("unsafe-has-a-reason", without_reason);
}

fn without_reason(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let needs_reason = |line: &str| {
        let line = code(line);
        // In pieces, so that this line is not found.
        let starts = [" {", " impl", " extern"].map(|what| format!("{}{what}", "unsafe"));
        starts.iter().any(|start| line.contains(start.as_str())) && !line.contains('"')
    };
    let has_reason =
        |at: usize| lines[at.saturating_sub(REASON_REACH)..=at].iter().any(|line| line.contains("SAFETY:"));
    (0..lines.len())
        .filter(|&at| needs_reason(lines[at]) && !has_reason(at))
        .map(|at| (at, "no SAFETY comment".to_owned()))
        .collect()
}

#[test]
fn leftovers_and_unsafe_without_a_reason_are_found() {
    let macro_call = ["d", "bg!(x);"].concat();
    assert_eq!(left_over(&format!("f();\n// {macro_call}\n{macro_call}\n")).len(), 1);
    let block = ["unsafe", " { f() }"].concat();
    assert_eq!(without_reason(&format!("{block}\n")), [(0, "no SAFETY comment".to_owned())]);
    assert_eq!(without_reason(&format!("// SAFETY: it is so.\n{block}\n")), []);
}

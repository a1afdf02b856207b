//! The results of the checks.

use core::fmt;
use std_alloc::string::String;
use std_alloc::vec::Vec;

/// Why a check did not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotPassed {
    /// The machine breaks the contract; how the check saw it.
    Failed(String),
    /// There is nothing to check, or no way to check it; why.
    Skipped(&'static str),
}

/// The result of a check.
pub type Verdict = Result<(), NotPassed>;

/// One line of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The part of the contract.
    pub group: &'static str,
    /// The check's name in the group.
    pub name: &'static str,
    /// What a pass shows.
    pub shows: &'static str,
    /// How it ended.
    pub verdict: Verdict,
}

/// The results of all checks that were run, in order.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// One for each check.
    pub rows: Vec<Row>,
}

impl Report {
    /// An empty report.
    pub fn new() -> Report {
        Report::default()
    }

    /// Whether no check failed.
    pub fn passed(&self) -> bool {
        self.failures().next().is_none()
    }

    /// Checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| matches!(row.verdict, Err(NotPassed::Failed(_))))
    }

    /// Numbers of checks that passed, failed, and were skipped.
    pub fn counts(&self) -> (usize, usize, usize) {
        let failed = self.failures().count();
        let passed = self.rows.iter().filter(|row| row.verdict.is_ok()).count();
        (passed, failed, self.rows.len() - passed - failed)
    }

    /// Write a table for people: what each check shows, and its result.
    pub fn print(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let mut group = "";
        for row in &self.rows {
            if row.group != group {
                group = row.group;
                writeln!(out, "{group}")?;
            }
            writeln!(out, "  {:width$}  {:7}  {}", row.name, word(&row.verdict), row.shows)?;
            match &row.verdict {
                Ok(()) => {}
                Err(NotPassed::Failed(why)) => writeln!(out, "  {:width$}           {why}", "")?,
                Err(NotPassed::Skipped(why)) => writeln!(out, "  {:width$}           ({why})", "")?,
            }
        }
        let (passed, failed, skipped) = self.counts();
        writeln!(out, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// A verdict in one word.
pub(crate) fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Ok(()) => "passed",
        Err(NotPassed::Failed(_)) => "FAILED",
        Err(NotPassed::Skipped(_)) => "skipped",
    }
}

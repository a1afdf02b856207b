//! The head of the document: how many of the counts that it shows are near.
//!
//! Everything here is counted from what the tables show, errors rounded as they are shown, so that a reader can count
//! it again. A test does (`xtask/tests/tidy/truth.rs`).

use super::causes::Causes;
use super::ranking::{Ranks, rankings};
use super::{Done, Kept};
use crate::linux::judge::{Row, Unjudged};

/// One line of the summary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Comparisons with a result.
    pub compared: usize,
    /// Comparisons without.
    pub failed: usize,
    /// Sizes of the errors of judged counts in per cent, in order.
    errors: Vec<f64>,
    /// Counts that are not judged because Linux's boots are too far apart.
    pub noisy: usize,
    /// Judged counts that miss.
    pub missed: usize,
    /// Those of them beyond [`FAR`] of which no cause is known.
    pub unexplained: usize,
    /// Rankings, and how many of them agree and are inverted.
    pub rankings: [usize; 3],
}

/// Beyond this error, in per cent, a miss needs a cause.
const FAR: f64 = 25.0;

/// An error as it is shown: in tenths of a per cent; infinite where Linux counts 0.
pub fn shown_error(error_pct: Option<f64>) -> f64 {
    error_pct.map_or(f64::INFINITY, |error| (error * 10.0).round() / 10.0)
}

impl Line {
    /// Of these results.
    pub fn of<'a>(results: impl Iterator<Item = &'a Done>, causes: &Causes) -> Line {
        let mut line = Line::default();
        for done in results {
            for (policy, kept) in done.kept() {
                match kept {
                    Kept::Failed(_) => line.failed += 1,
                    Kept::Compared(beside) => {
                        line.compared += 1;
                        let noisy = |row: &&Row| row.unjudged == Some(Unjudged::Noisy);
                        line.noisy += beside.rows.iter().filter(noisy).count();
                        let judged = beside.rows.iter().filter(|row| row.missed.is_some());
                        for row in judged {
                            let error = shown_error(row.error_pct).abs();
                            let missed = row.missed == Some(true);
                            let key = [&done.kernel, done.case.name, policy, &row.metric];
                            line.missed += usize::from(missed);
                            line.unexplained +=
                                usize::from(missed && error > FAR && causes.of(key).is_none());
                            line.errors.push(error);
                        }
                    }
                }
            }
            for ranking in rankings(done) {
                line.rankings[0] += 1;
                line.rankings[1] += usize::from(ranking.ranks == Ranks::Agree);
                line.rankings[2] += usize::from(ranking.ranks == Ranks::Inverted);
            }
        }
        line.errors.sort_by(f64::total_cmp);
        line
    }

    /// Judged counts.
    pub fn judged(&self) -> usize {
        self.errors.len()
    }

    /// The median error.
    pub fn median(&self) -> Option<f64> {
        self.errors.get(self.errors.len() / 2).copied()
    }

    /// Judged counts with at most this error.
    pub fn within(&self, most: f64) -> usize {
        self.errors.iter().filter(|error| **error <= most).count()
    }

    /// As a row of the table.
    pub fn row(&self, kernel: &str, set: &str) -> String {
        let share =
            |part: usize| format!("{part} ({} %)", (part * 100).checked_div(self.judged()).unwrap_or(0));
        let median = match self.median() {
            Some(error) if error.is_finite() => format!("{error:.1} %"),
            _ => "n/a".to_owned(),
        };
        let [rankings, agree, inverted] = self.rankings;
        format!(
            "| {kernel} | {set} | {} | {} | {} | {} | {median} | {} | {} | {} | {} | {rankings} | {agree} | {inverted} |",
            self.compared,
            self.failed,
            self.judged(),
            self.noisy,
            share(self.within(10.0)),
            share(self.within(FAR)),
            self.missed,
            self.unexplained
        )
    }
}

/// The headings of the table.
pub const HEADINGS: &str = "\
| kernel | set | compared | failed | judged | noisy | median error | within 10 % | within 25 % | missed | beyond 25 %, no cause | rankings | agree | inverted |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
";

/// Names of the two sets of cases.
pub const SETS: [(&str, bool); 2] = [("open", false), ("held out", true)];

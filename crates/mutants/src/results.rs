//! The results of all mutants, in a file that grows with each.

use crate::list::Mutant;
use crate::suite::Outcome;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

/// One line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    suite: String,
    key: String,
    place: String,
    outcome: Outcome,
}

/// The last outcome of each mutant under each suite.
pub struct Results {
    known: BTreeMap<(String, String), Outcome>,
    file: File,
}

impl Results {
    /// Read the results in a file, and append to it.
    pub fn open(path: &Path) -> Result<Results> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut known = BTreeMap::new();
        // Skip a line that is incomplete because the program was stopped.
        for line in text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
            known.insert((line.suite, line.key), line.outcome);
        }
        Ok(Results { known, file: OpenOptions::new().create(true).append(true).open(path)? })
    }

    /// A suite's outcome for a mutant.
    pub fn of(&self, suite: &str, mutant: &Mutant) -> Option<&Outcome> {
        self.known.get(&(suite.to_owned(), mutant.key.clone()))
    }

    /// Whether any suite catches it.
    pub fn is_caught(&self, mutant: &Mutant) -> bool {
        crate::SUITES.iter().any(|suite| self.of(suite, mutant).is_some_and(is_caught))
    }

    /// Whether a suite has judged it, and none catches it.
    pub fn has_survived(&self, mutant: &Mutant) -> bool {
        !self.is_caught(mutant) && crate::SUITES.iter().any(|suite| self.of(suite, mutant).is_some())
    }

    /// Append an outcome to the file.
    pub fn add(&mut self, suite: &str, mutant: &Mutant, outcome: Outcome) -> Result<()> {
        let place = format!("{}:{}", mutant.file, mutant.line);
        let (suite, key) = (suite.to_owned(), mutant.key.clone());
        let line = Line { suite, key, place, outcome };
        writeln!(self.file, "{}", serde_json::to_string(&line)?)?;
        self.known.insert((line.suite, line.key), line.outcome);
        Ok(())
    }

    /// A table by room, followed by the survivors.
    pub fn show(&self, compiled: &[&Mutant], uncompilable: usize) -> String {
        let mut rooms: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut survivors = String::new();
        for mutant in compiled {
            let outcomes = crate::SUITES.map(|suite| self.of(suite, mutant));
            let unreached =
                outcomes.iter().flatten().all(|outcome| matches!(outcome, Outcome::Survived(0, 0)));
            let open = self.has_survived(mutant);
            let hung = outcomes.contains(&Some(&Outcome::Hung));
            let not_run = outcomes.iter().all(Option::is_none);
            let mut columns = vec![true, mutant.listed];
            columns.extend(outcomes.map(|outcome| outcome.is_some_and(is_caught)));
            columns.extend([hung, open, open && unreached, not_run]);
            for room in [mutant.room(), "~ all"] {
                let counts = rooms.entry(room).or_insert_with(|| vec![0; columns.len()]);
                counts.iter_mut().zip(&columns).for_each(|(count, &is)| *count += usize::from(is));
            }
            if open {
                let is_judged = |suite: &str, outcome: Option<&Outcome>| {
                    outcome.is_some() || !crate::judges_room(suite, mutant.room())
                };
                let by_all = crate::SUITES.into_iter().zip(outcomes).all(|(suite, of)| is_judged(suite, of));
                let tried = if by_all { "" } else { " (not tried by all)" };
                let reach = if unreached { " (not reached)" } else { "" };
                let line = format!("line {}, {}{reach}{tried}\n", mutant.line, mutant.key);
                survivors.push_str(&line);
            }
        }
        let caught = crate::SUITES.map(|suite| format!("caught by {suite}")).join(" | ");
        let mut table = format!(
            "| room | mutants | listed | {caught} | of all these hung | left | of these not reached | not run |\n"
        );
        table.push_str(&"|---".repeat(1 + 2 + crate::SUITES.len() + 4));
        table.push_str("|\n");
        for (room, counts) in rooms {
            let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
            let counts = counts.join(" | ");
            table.push_str(&format!("| {} | {counts} |\n", room.trim_start_matches("~ ")));
        }
        format!("{table}\n{uncompilable} do not compile.\n\n{survivors}")
    }
}

fn is_caught(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Caught(_) | Outcome::Hung)
}

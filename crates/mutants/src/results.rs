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
        let mut rooms: BTreeMap<&str, [usize; 11]> = BTreeMap::new();
        let mut survivors = String::new();
        for mutant in compiled {
            let outcomes = crate::SUITES.map(|suite| self.of(suite, mutant));
            let survived = |outcome: Option<&Outcome>| matches!(outcome, Some(Outcome::Survived(..)));
            let caught = outcomes.map(|outcome| outcome.is_some_and(is_caught));
            let unreached =
                outcomes.iter().flatten().all(|outcome| matches!(outcome, Outcome::Survived(0, 0)));
            let open = !caught.contains(&true) && survived(outcomes[0]);
            let hung = outcomes.contains(&Some(&Outcome::Hung));
            let not_run = outcomes[0].is_none();
            let [mm, kernel, simulated, counts, chaos] = caught;
            let nowhere = open && unreached;
            let columns =
                [true, mutant.listed, mm, kernel, simulated, counts, chaos, hung, open, nowhere, not_run];
            for room in [mutant.room(), "~ all"] {
                let counts = rooms.entry(room).or_default();
                (0..columns.len()).for_each(|i| counts[i] += usize::from(columns[i]));
            }
            if open {
                // The kernel's tests judge the kernel alone.
                let not_asked = |suite: &str| suite == "kernel" && mutant.room() != suite;
                let by_all = outcomes
                    .iter()
                    .zip(crate::SUITES)
                    .all(|(&outcome, suite)| survived(outcome) || not_asked(suite));
                let tried = if by_all { "" } else { " (not tried by all)" };
                let reach = if unreached { " (not reached)" } else { "" };
                let line = format!("line {}, {}{reach}{tried}\n", mutant.line, mutant.key);
                survivors.push_str(&line);
            }
        }
        let mut table = String::from(
            "| room | mutants | listed | caught by tests of mm | by those of the kernel | by those of the simulated machine | by counts | by the random program | of all these hung | left | of these not reached | not run |\n",
        );
        table.push_str("|---|---|---|---|---|---|---|---|---|---|---|---|\n");
        for (room, counts) in rooms {
            let counts = counts.map(|count| count.to_string()).join(" | ");
            table.push_str(&format!("| {} | {counts} |\n", room.trim_start_matches("~ ")));
        }
        format!("{table}\n{uncompilable} do not compile.\n\n{survivors}")
    }
}

fn is_caught(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Caught(_) | Outcome::Hung)
}

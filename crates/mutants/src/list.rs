//! What there is to break: the list of cargo-mutants, and what it does not make.

use crate::places::{Genre, Place, Source};
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

/// A change of the code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mutant {
    /// What makes it the same mutant when lines have moved: file, function, change, and the how many-th such.
    pub key: String,
    /// The file, from the project's directory.
    pub file: String,
    /// Where it was seen.
    pub line: usize,
    /// Is it on the list of cargo-mutants?
    pub listed: bool,
    /// How to make it.
    #[serde(skip)]
    pub place: Option<Place>,
    /// What comes there.
    #[serde(skip)]
    pub replacement: String,
}

impl Mutant {
    /// The room of the memory manager that it is in.
    pub fn room(&self) -> &str {
        self.file.trim_start_matches("crates/mm/src/").split(['/', '.']).next().unwrap_or("")
    }
}

#[derive(Deserialize)]
struct Listed {
    file: String,
    genre: Genre,
    name: String,
    replacement: String,
    span: Span,
}

#[derive(Deserialize)]
struct Span {
    start: Position,
}

#[derive(Deserialize)]
struct Position {
    line: usize,
    column: usize,
}

/// Files whose functions are checks themselves, or measure: breaking them says nothing of what they check.
const CHECKS: [&str; 3] = ["check.rs", "validate.rs", "costs.rs"];

/// All mutants of some rooms, by file and place.
pub fn list(root: &Path, rooms: &[String]) -> Result<Vec<Mutant>> {
    let mut listed: BTreeMap<String, Vec<Listed>> = BTreeMap::new();
    for mutant in ask_cargo_mutants(root, rooms)? {
        if !CHECKS.iter().any(|name| mutant.file.ends_with(name)) {
            listed.entry(mutant.file.clone()).or_default().push(mutant);
        }
    }
    let mut all = Vec::new();
    for (file, listed) in listed {
        let source = Source::read(root, &file)?;
        let places: HashMap<_, _> = source.places.iter().map(|place| (place.key(), place)).collect();
        let mut of_file = Vec::new();
        for mutant in listed {
            let at = (mutant.span.start.line, mutant.span.start.column - 1);
            // "file:line:column: what"
            let what = mutant.name.splitn(4, ':').last().unwrap_or("").trim().to_owned();
            of_file.push(Mutant {
                key: format!("{file}: {what}"),
                file: file.clone(),
                line: at.0,
                listed: true,
                place: places.get(&(mutant.genre, at)).map(|&place| place.clone()),
                replacement: mutant.replacement,
            });
        }
        of_file.extend(source.own.iter().map(|(place, what, with)| Mutant {
            key: format!("{file}: {what}"),
            file: file.clone(),
            line: place.at.0,
            listed: false,
            place: Some(place.clone()),
            replacement: with.clone(),
        }));
        all.extend(of_file);
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    for mutant in &mut all {
        let count = seen.entry(mutant.key.clone()).or_default();
        *count += 1;
        if *count > 1 {
            mutant.key.push_str(&format!(" ({count})"));
        }
    }
    Ok(all)
}

fn ask_cargo_mutants(root: &Path, rooms: &[String]) -> Result<Vec<Listed>> {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["mutants", "--list", "--json", "--no-config", "-p", "mm"]);
    for room in rooms {
        for form in ["/**", ".rs"] {
            command.arg("-f").arg(format!("crates/mm/src/{room}{form}"));
        }
    }
    let output = command.output().context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "`cargo mutants --list` fails (`cargo install cargo-mutants --locked` installs it):\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

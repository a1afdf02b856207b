//! The list of mutants: those of cargo-mutants, and those that it does not generate.

use crate::sites::{Genre, Site, Source};
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

/// A change of the code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mutant {
    /// Identifies the mutant when lines move: file, function, change, and a number if there are several.
    pub key: String,
    /// The file, from the project's directory.
    pub file: String,
    /// The line when it was generated.
    pub line: usize,
    /// Whether cargo-mutants generates it.
    pub listed: bool,
    /// How to apply it.
    #[serde(skip)]
    pub site: Option<Site>,
    /// The replacement text.
    #[serde(skip)]
    pub replacement: String,
}

impl Mutant {
    /// The room of the memory manager that it is in.
    pub fn room(&self) -> &str {
        room_of(&self.file)
    }

    /// Whether its file is of a part of `crates/mm/src` that `--rooms` names.
    pub fn file_is_of(&self, room: &str) -> bool {
        let file = self.file.trim_start_matches("crates/mm/src/");
        file.strip_prefix(room).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
    }
}

/// The room of the memory manager that a file is in, or a mutant by its key.
pub fn room_of(file: &str) -> &str {
    file.trim_start_matches("crates/mm/src/").split(['/', '.']).next().unwrap_or("")
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

/// Files whose functions are checks themselves, or measurements: mutants there do not test the tests.
const CHECKS: [&str; 3] = ["check.rs", "validate.rs", "costs.rs"];

/// All mutants of some rooms, by file and position.
pub fn list(root: &Path, rooms: &[String]) -> Result<Vec<Mutant>> {
    let mut listed: BTreeMap<String, Vec<Listed>> = BTreeMap::new();
    for mutant in run_cargo_mutants(root, rooms)? {
        if !CHECKS.iter().any(|name| mutant.file.ends_with(name)) {
            listed.entry(mutant.file.clone()).or_default().push(mutant);
        }
    }
    let mut all = Vec::new();
    for (file, listed) in listed {
        let source = Source::read(root, &file)?;
        let sites: HashMap<_, _> = source.sites.iter().map(|site| (site.key(), site)).collect();
        let mut file_mutants = Vec::new();
        for mutant in listed {
            let at = (mutant.span.start.line, mutant.span.start.column - 1);
            // "file:line:column: what"
            let what = mutant.name.splitn(4, ':').last().unwrap_or("").trim().to_owned();
            file_mutants.push(Mutant {
                key: format!("{file}: {what}"),
                file: file.clone(),
                line: at.0,
                listed: true,
                site: sites.get(&(mutant.genre, at)).map(|&site| site.clone()),
                replacement: mutant.replacement,
            });
        }
        file_mutants.extend(source.ours.iter().map(|(site, what, replacement)| Mutant {
            key: format!("{file}: {what}"),
            file: file.clone(),
            line: site.at.0,
            listed: false,
            site: Some(site.clone()),
            replacement: replacement.clone(),
        }));
        all.extend(file_mutants);
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

fn run_cargo_mutants(root: &Path, rooms: &[String]) -> Result<Vec<Listed>> {
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

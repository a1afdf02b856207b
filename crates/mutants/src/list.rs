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

/// The sources of the memory manager.
pub const MM: &str = "crates/mm/src/";
/// The sources of the upper half of the kernel, which is a room here.
pub const KERNEL: &str = "crates/kernel/src/";

impl Mutant {
    /// The room of the memory manager that it is in, or `kernel`.
    pub fn room(&self) -> &str {
        room_of(&self.file)
    }

    /// Whether its file is of a part that `--rooms` names.
    pub fn file_is_of(&self, room: &str) -> bool {
        let file = self.file.strip_prefix(MM).and_then(|file| file.strip_prefix(room));
        let is_in_mm = file.is_some_and(|rest| rest.starts_with('/') || rest == ".rs");
        is_in_mm || room == "kernel" && self.file.starts_with(KERNEL)
    }
}

/// The room of a file, or of a mutant by its key.
pub fn room_of(file: &str) -> &str {
    match file.starts_with(KERNEL) {
        true => "kernel",
        false => file.trim_start_matches(MM).split(['/', '.']).next().unwrap_or(""),
    }
}

/// The file, from the project's directory, that a list of mutants calls `ROOM/FILE` or `ROOM.rs`.
pub fn path_of(file: &str) -> String {
    match file.strip_prefix("kernel/") {
        Some(file) => format!("{KERNEL}{file}"),
        None => format!("{MM}{file}"),
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
    command.current_dir(root).args([
        "mutants",
        "--list",
        "--json",
        "--no-config",
        "-p",
        "pagefold-mm",
        "-p",
        "pagefold-kernel",
    ]);
    for room in rooms {
        let forms = match room.as_str() {
            "kernel" => vec![format!("{KERNEL}**")],
            room => ["/**", ".rs"].map(|form| format!("{MM}{room}{form}")).to_vec(),
        };
        command.args(forms.iter().flat_map(|form| ["-f", form]));
    }
    let output = command.output().context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "`cargo mutants --list` fails (`cargo install cargo-mutants --locked` installs it):\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

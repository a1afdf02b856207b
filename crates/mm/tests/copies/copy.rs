//! A copy of some of the project's crates, as a workspace of its own, and changes to it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the project.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A workspace of copies.
pub struct Copy {
    root: PathBuf,
}

impl Copy {
    /// Copies these crates into the folder `name`. The crates that they use must be among them.
    pub fn new(name: &str, crates: &[&str]) -> Copy {
        let copy = Copy { root: Path::new(env!("CARGO_TARGET_TMPDIR")).join(name) };
        let _ = fs::remove_dir_all(&copy.root);
        for name in crates {
            let (from, to) = (Path::new(PROJECT).join("crates").join(name), copy.path("crates").join(name));
            for folder in ["src", "benches", "machines"].iter().filter(|folder| from.join(folder).exists()) {
                copy_tree(&from.join(folder), &to.join(folder));
            }
            for file in
                ["Cargo.toml", "build.rs", "clippy.toml"].iter().filter(|file| from.join(file).exists())
            {
                fs::copy(from.join(file), to.join(file)).unwrap();
            }
        }
        let workspace = fs::read_to_string(Path::new(PROJECT).join("Cargo.toml")).unwrap();
        let keys = ["members", "exclude", "default-members"];
        let kept = workspace.lines().filter(|line| !keys.iter().any(|key| line.starts_with(key)));
        let kept = kept.map(|line| match line.strip_prefix("version = \"") {
            // Cargo tells packages of one name apart by their versions, not by where their workspaces are. What is
            // after a plus is not compared, so they are still what their dependents ask for.
            Some(version) => format!("version = \"{}+{name}\"", version.trim_end_matches('"')),
            None if line == "[workspace]" => "[workspace]\nmembers = [\"crates/*\"]".to_owned(),
            None => line.to_owned(),
        });
        let manifest = kept.collect::<Vec<_>>().join("\n");
        assert!(manifest.contains(&format!("+{name}\"")), "the copy needs a version of its own");
        copy.write("Cargo.toml", &manifest);
        fs::copy(Path::new(PROJECT).join("Cargo.lock"), copy.path("Cargo.lock")).unwrap();
        copy
    }

    /// A file of the copy, by its path in the project.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The text of a file.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Replaces the text of a file.
    pub fn write(&self, path: &str, text: &str) {
        fs::write(self.path(path), text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Applies patches, each to the sources as they are now: lines that two of them keep are no conflict. A patch whose
    /// old file has another name makes a new file of it.
    pub fn apply(&self, patches: &[(String, String)]) {
        let mut changes: BTreeMap<(&str, &str), Vec<Change<'_>>> = BTreeMap::new();
        for (name, text) in patches {
            for hunk in hunks(text) {
                let source = self.read(hunk.old);
                let change = hunk.find(&source).unwrap_or_else(|why| panic!("{name}: {}: {why}", hunk.old));
                changes.entry((hunk.old, hunk.file)).or_default().push(change);
            }
        }
        for ((old, file), mut changes) in changes {
            changes.sort_by_key(|change| (change.from, change.to));
            let source = self.read(old);
            let lines: Vec<&str> = source.lines().collect();
            let (mut out, mut at) = (Vec::new(), 0);
            for change in changes {
                assert!(change.from >= at, "{file}: two patches change the line {}", change.from + 1);
                out.extend(&lines[at..change.from]);
                out.extend(change.new);
                at = change.to;
            }
            out.extend(&lines[at..]);
            self.write(file, &(out.join("\n") + "\n"));
        }
    }

    /// Cargo in the copy. What crates of others it needs is taken as the project has built it.
    pub fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO"));
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target directory");
        command.args(args).current_dir(&self.root).env("CARGO_NET_OFFLINE", "true");
        command.env("CARGO_TARGET_DIR", target).env_remove("RUSTFLAGS");
        command
    }
}

/// Copies a folder with all that is in it.
pub fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A part of a patch in the unified format. Its line numbers are not looked at.
struct Hunk<'a> {
    old: &'a str,
    file: &'a str,
    lines: Vec<&'a str>,
}

/// Lines of a file, and what takes their place.
struct Change<'a> {
    from: usize,
    to: usize,
    new: Vec<&'a str>,
}

/// The hunks of a patch. Text before the first is not part of it.
fn hunks(patch: &str) -> Vec<Hunk<'_>> {
    let (mut hunks, mut old, mut file) = (Vec::new(), "", "");
    for line in patch.lines() {
        if let Some(path) = line.strip_prefix("--- a/") {
            old = path;
        } else if let Some(path) = line.strip_prefix("+++ b/") {
            file = path;
        } else if line.starts_with("@@") {
            hunks.push(Hunk { old, file, lines: Vec::new() });
        } else if let Some(hunk) = hunks.last_mut() {
            hunk.lines.push(line);
        }
    }
    assert!(!hunks.is_empty(), "a patch changes nothing");
    hunks
}

impl<'a> Hunk<'a> {
    /// Lines that begin with a space or with `mark`, without it.
    fn side(&self, mark: char) -> Vec<&'a str> {
        let of_side = |line: &&'a str| line.strip_prefix([' ', mark]).or(line.is_empty().then_some(""));
        self.lines.iter().filter_map(of_side).collect()
    }

    /// The change of a file that has the old lines in one place.
    fn find(&self, source: &str) -> Result<Change<'a>, String> {
        let (old, new) = (self.side('-'), self.side('+'));
        let lines: Vec<&str> = source.lines().collect();
        let places: Vec<usize> = (0..lines.len()).filter(|&at| lines[at..].starts_with(&old)).collect();
        let [at] = places[..] else {
            return Err(format!(
                "these lines are in {} places, not in one:\n{}",
                places.len(),
                old.join("\n")
            ));
        };
        let same =
            |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(a, b)| a == b).count();
        let head = same(&mut old.iter().zip(&new));
        let most = old.len().min(new.len()) - head;
        let tail = same(&mut old.iter().rev().zip(new.iter().rev())).min(most);
        let (from, to) = (at + head, at + old.len() - tail);
        Ok(Change { from, to, new: new[head..new.len() - tail].to_vec() })
    }
}

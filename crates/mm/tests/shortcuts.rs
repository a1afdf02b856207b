//! Shortcuts within the crate past a flush, a payment or a reference are refused by the compiler or by the crate's
//! lints.
//!
//! Each file in `shortcuts/ROOM` is a function that somebody in a hurry could write in that room. They are put into a
//! copy of the crate's sources and given to clippy, and each must get an error in its own file. The compiler stops at
//! the first kind of error, so files that have got theirs are taken out, and the rest is tried again, until nothing is
//! left or nothing is found. What the compiler cannot see panics when it runs: `src/space/shortcuts.rs`.
//!
//! Not for the one-threaded form, whose interface is the same.
#![cfg(not(feature = "one-thread"))]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the copy stands, and what is put in.
struct Copy {
    root: PathBuf,
    /// Room and name of each shortcut.
    shortcuts: BTreeSet<(String, String)>,
}

fn copy_tree(from: &Path, to: &Path) {
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

impl Copy {
    /// A workspace of this crate alone.
    fn new() -> Copy {
        let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shortcuts");
        let _ = fs::remove_dir_all(root.join("crates"));
        let target = root.join("crates/mm");
        fs::create_dir_all(&target).unwrap();
        for file in ["Cargo.toml", "clippy.toml"] {
            fs::copy(crate_dir.join(file), target.join(file)).unwrap();
        }
        // What it depends on within the project.
        copy_tree(&crate_dir.join("../abi"), &root.join("crates/abi"));
        let workspace = fs::read_to_string(crate_dir.join("../../Cargo.toml")).unwrap();
        let member =
            |line: &str| !["members", "exclude", "default-members"].iter().any(|key| line.starts_with(key));
        let kept: Vec<&str> = workspace.lines().filter(|line| member(line)).collect();
        let alone = kept.join("\n").replacen("[workspace]", "[workspace]\nmembers = [\"crates/mm\"]", 1);
        fs::write(root.join("Cargo.toml"), alone).unwrap();
        fs::copy(crate_dir.join("../../Cargo.lock"), root.join("Cargo.lock")).unwrap();
        let mut shortcuts = BTreeSet::new();
        for room in fs::read_dir(crate_dir.join("tests/shortcuts")).unwrap() {
            let room = room.unwrap();
            for file in fs::read_dir(room.path()).unwrap() {
                let stem = file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_string();
                shortcuts.insert((room.file_name().into_string().unwrap(), stem));
            }
        }
        Copy { root, shortcuts }
    }

    /// The sources as they are, with those shortcuts that are left.
    fn put_in(&self, left: &BTreeSet<(String, String)>) {
        let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sources = self.root.join("crates/mm/src");
        let _ = fs::remove_dir_all(&sources);
        copy_tree(&crate_dir.join("src"), &sources);
        for (room, name) in left {
            let from = crate_dir.join("tests/shortcuts").join(room).join(format!("{name}.rs"));
            let text = fs::read_to_string(from).unwrap();
            fs::write(sources.join(room).join(format!("shortcut_{name}.rs")), text).unwrap();
            let head = sources.join(room).join("mod.rs");
            let with = fs::read_to_string(&head).unwrap()
                + &format!("\n#[allow(dead_code)]\nmod shortcut_{name};\n");
            fs::write(head, with).unwrap();
        }
    }

    /// What clippy holds against each shortcut.
    fn errors(&self) -> BTreeMap<String, String> {
        let output = Command::new(env!("CARGO"))
            .args(["clippy", "--offline", "-p", "mm", "--lib", "--message-format=json"])
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", self.root.join("target"))
            .env_remove("RUSTFLAGS")
            .output()
            .expect("cargo runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let mut errors = BTreeMap::new();
        for line in text.lines().filter(|line| line.contains(r#""level":"error""#)) {
            let name = |rest: &str| rest.split(".rs").next().unwrap_or_default().to_string();
            if let Some((_, rest)) = line.split_once("/shortcut_") {
                errors.entry(name(rest)).or_insert_with(|| line.to_string());
            }
        }
        let finished = output.status.success() || !errors.is_empty();
        assert!(finished, "the copy does not build:\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
        errors
    }
}

#[test]
fn shortcuts_within_the_crate_are_refused() {
    let copy = Copy::new();
    let mut left = copy.shortcuts.clone();
    assert!(left.len() >= 15, "the shortcuts are not where they were: {left:?}");
    loop {
        copy.put_in(&left);
        let errors = copy.errors();
        let before = left.len();
        left.retain(|(_, name)| !errors.contains_key(name));
        if left.len() == before || left.is_empty() {
            break;
        }
    }
    assert!(left.is_empty(), "these compile and pass the lints: {left:?}");
    // Without them the copy is fine, so it was they that got the errors.
    copy.put_in(&left);
    assert!(copy.errors().is_empty());
}

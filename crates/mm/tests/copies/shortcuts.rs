//! Shortcuts within the crate past a flush, a payment or a reference are refused by the compiler or by the crate's
//! lints.
//!
//! Each file in `tests/shortcuts/ROOM` is a function that somebody in a hurry could write in that room. All are put
//! into a copy of the crate and given to clippy, and each must get an error in its own file. The compiler stops at the
//! first kind of error, so files that have got theirs are taken out, and the rest is tried again, until no file is
//! left or no error is found. What the compiler cannot see panics when it runs: `src/mm/tests/flushes/shortcuts.rs`.
//!
//! A last run without them must pass, so the errors were theirs. It also makes the edits of CONTRIBUTING.md, which so
//! are checked for the price of the crates above this one.

use crate::copy::{Copy, copy_tree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Room and name of each shortcut.
type Shortcuts = BTreeSet<(String, String)>;

fn shortcuts() -> Shortcuts {
    let mut shortcuts = BTreeSet::new();
    for room in fs::read_dir(Path::new(CRATE).join("tests/shortcuts")).unwrap() {
        let room = room.unwrap();
        for file in fs::read_dir(room.path()).unwrap() {
            let stem = file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_string();
            shortcuts.insert((room.file_name().into_string().unwrap(), stem));
        }
    }
    shortcuts
}

/// The sources as they are, with these shortcuts.
fn put_in(copy: &Copy, left: &Shortcuts) {
    let sources = copy.path("crates/mm/src");
    let _ = fs::remove_dir_all(&sources);
    copy_tree(&Path::new(CRATE).join("src"), &sources);
    for (room, name) in left {
        let from = Path::new(CRATE).join("tests/shortcuts").join(room).join(format!("{name}.rs"));
        let text = fs::read_to_string(from).unwrap();
        fs::write(sources.join(room).join(format!("shortcut_{name}.rs")), text).unwrap();
        let head = format!("crates/mm/src/{room}/mod.rs");
        let with = copy.read(&head) + &format!("\n#[allow(dead_code)]\nmod shortcut_{name};\n");
        copy.write(&head, &with);
    }
}

/// What clippy holds against each shortcut.
fn errors(copy: &Copy) -> BTreeMap<String, String> {
    let output = copy.cargo(&["clippy", "-p", "pagefold-mm", "--lib", "--message-format=json"]).output();
    let output = output.expect("cargo can be run");
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

#[test]
fn shortcuts_within_the_crate_are_refused() {
    let copy = Copy::new(
        "shortcuts",
        &["abi", "base", "flush", "mm", "kernel", "program", "conformance", "machine-sim"],
    );
    let mut left = shortcuts();
    assert!(left.len() >= 35, "the shortcuts are not where they were: {left:?}");
    loop {
        put_in(&copy, &left);
        let errors = errors(&copy);
        let before = left.len();
        left.retain(|(_, name)| !errors.contains_key(name));
        if left.len() == before || left.is_empty() {
            break;
        }
    }
    assert!(left.is_empty(), "these compile and pass the lints: {left:?}");
    put_in(&copy, &left);
    let edits = edits();
    assert_eq!(edits.len(), 5, "edits in CONTRIBUTING.md: a counter, a knob, a policy, a call, a machine");
    copy.apply(&edits);
    let output = copy.cargo(&["clippy", "--workspace", "--", "-D", "warnings"]).output();
    let output = output.expect("cargo can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the copy with the edits of CONTRIBUTING.md does not build:\n{errors}");
}

/// The diffs of CONTRIBUTING.md, by number.
fn edits() -> Vec<(String, String)> {
    let text = fs::read_to_string(Path::new(CRATE).join("../../CONTRIBUTING.md")).unwrap();
    let blocks = text.split("```diff\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.enumerate().map(|(at, block)| (format!("diff {}", at + 1), block.to_owned())).collect()
}

//! The faults of the published versions of lazy unmap flush, made in a copy of the crate.
//!
//! LUF has been published in twelve versions, and reading them found sixteen places where a flush can be forgotten or
//! cannot be paid. A patch in `tests/published` makes each of them here: it says what the fault was, why this memory
//! manager cannot make it, which tests of `alloc/tests/owed.rs` notice it, and by what message. All patches are applied
//! to one copy, so that one build serves all: the environment variable `FAULT` names the fault that the copy makes.
//! The copy leaves out all other tests and the rooms that these tests do not use, so it builds in a few seconds.
//!
//! F14 (version 11: an entry is used after its table was unlocked) has no patch. It does not compile
//! (`tests/compile_fail/no_slot_after_unlock.rs`), or the slot is refused
//! (`a_slot_is_refused_in_another_hold_of_the_tables_lock`).

use crate::copy::Copy;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FAULTS: usize = 15;
const TESTS: &str = "crates/mm/src/alloc/tests.rs";
const LIB: &str = "crates/mm/src/lib.rs";
const LEDGER: &str = "crates/flush/src/lib.rs";
/// Rooms that the copy does without: all above page tables, and others that these tests do not use.
const LEFT_OUT: [&str; 16] = [
    "cache",
    "compact",
    "damon",
    "folio",
    "lru",
    "memory",
    "migrate",
    "mm",
    "promote",
    "reclaim",
    "rmap",
    "space",
    "mm_core",
    "truncate",
    "writeback",
    "zswap",
];

/// Name and text of each patch.
fn patches() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let patches = files.filter(|path| path.extension().is_some_and(|extension| extension == "patch"));
    let named = |path: PathBuf| {
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap())
    };
    patches.map(named).collect()
}

/// The line of a patch that begins with `key`.
fn said<'a>(patch: &'a str, key: &str) -> &'a str {
    let line = patch.lines().find_map(|line| line.strip_prefix(key));
    line.unwrap_or_else(|| panic!("a patch has no line '{key}':\n{patch}")).trim()
}

/// No tests but those that notice the faults.
fn leave_other_tests_out(copy: &Copy, folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            leave_other_tests_out(copy, &path);
        } else if path != copy.path("crates/mm/src/alloc/mod.rs") {
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replace("#[cfg(test)]\nmod ", "#[cfg(any())]\nmod ")).unwrap();
        }
    }
}

/// Builds the tests of the copy and returns the program.
fn build() -> PathBuf {
    let copy = Copy::new("published", &["abi", "base", "flush", "mm"]);
    let patches = patches();
    assert_eq!(patches.len(), FAULTS, "patches in tests/published");
    copy.apply(&patches);
    let faults = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published/faults.rs");
    for of in ["mm", "flush"] {
        fs::copy(&faults, copy.path(&format!("crates/{of}/src/faults.rs"))).unwrap();
    }
    let ledger = copy.read(LEDGER) + "#[allow(dead_code)]\nmod faults;\n";
    copy.write(LEDGER, &ledger);
    leave_other_tests_out(&copy, &copy.path("crates/mm/src"));
    let is_left_out = |line: &&str| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        LEFT_OUT.iter().any(|room| line == format!("mod {room};"))
    };
    let lib = copy.read(LIB);
    let kept = lib.lines().filter(|line| !is_left_out(line) && !line.starts_with("pub use mm::"));
    let mut kept: Vec<&str> = kept.collect();
    assert_eq!(
        kept.len() + LEFT_OUT.len() + 1,
        lib.lines().count(),
        "rooms that are left out have their lines"
    );
    kept.push("#[allow(dead_code)]\nmod faults;\n");
    copy.write(LIB, &kept.join("\n"));
    assert!(copy.read(TESTS).contains("\nmod owed;\n"), "the tests are not where they were");
    copy.write(TESTS, "mod owed;\n");
    // The tests are short: building them without optimisation is quicker.
    let quick = ["profile.dev.package.pagefold-mm.opt-level=0", "profile.dev.package.pagefold-mm.debug=0"];
    let args = [
        "test",
        "-p",
        "pagefold-mm",
        "--lib",
        "--features",
        "one-thread",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ];
    let output = copy
        .cargo(&args)
        .args(quick.iter().flat_map(|setting| ["--config", setting]))
        .output()
        .expect("cargo runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the copy does not build:\n{errors}");
    let program = text.lines().find_map(|line| line.split_once(r#""executable":""#));
    program.expect("cargo names the program").1.split('"').next().unwrap().into()
}

#[test]
fn faults_of_the_published_versions_are_noticed() {
    let program = build();
    let run = |fault: &str, tests: &str| {
        let mut command = Command::new(&program);
        let output = command.args([tests, "--test-threads=2"]).env("FAULT", fault).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let right = run("", "owed");
    assert!(right.contains("test result: ok."), "without a fault:\n{right}");
    for (fault, patch) in patches() {
        let (tests, caught) = (said(&patch, "Tests:"), said(&patch, "Caught:"));
        let output = run(&fault, tests);
        let notice = output.contains("test result: FAILED. 0 passed;");
        let failed = output.matches("\n---- ").count();
        let messages = output.lines().filter(|line| line.contains(caught)).count();
        assert!(notice && failed == messages, "{fault} is not caught by '{caught}':\n{output}");
    }
}

//! Crates that are published have all that a registry and their users want to see, under names that are ours.

use crate::project::{files, root};
use std::fs;
use std::path::Path;
use toml::{Table, Value};

/// Keys that come from the workspace, so that no crate tells something else.
const INHERITED: [&str; 5] = ["version", "edition", "rust-version", "license", "include"];
/// Files beside the manifest.
const FILES: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// The most keywords that a registry takes.
const KEYWORDS: usize = 5;

fn manifest(text: &str) -> Table {
    text.parse().expect("a manifest is TOML")
}

/// What is wrong with the table `package` of a published crate.
fn lacks(package: &Table) -> Vec<String> {
    let text = |key: &str| package.get(key).and_then(Value::as_str).unwrap_or_default();
    let entries = |key: &str| package.get(key).and_then(Value::as_array).map_or(0, Vec::len);
    let mut lacks = Vec::new();
    if text("name") != "pagefold" && !text("name").starts_with("pagefold-") {
        lacks.push("a name that begins with pagefold".to_owned());
    }
    if text("description").is_empty() {
        lacks.push("a description".to_owned());
    }
    if !(1..=KEYWORDS).contains(&entries("keywords")) || entries("categories") == 0 {
        lacks.push(format!("categories, and one to {KEYWORDS} keywords"));
    }
    let inherits = |key: &&str| package.get(*key).is_some_and(Value::is_table);
    lacks.extend(INHERITED.iter().filter(|key| !inherits(key)).map(|key| format!("{key}.workspace = true")));
    lacks
}

/// Whether the table `package` is of a crate that is published.
fn is_published(package: &Table) -> bool {
    package.get("publish") != Some(&Value::Boolean(false))
}

#[test]
fn published_crates_are_complete() {
    let mut complaints = Vec::new();
    let (mut published, mut tools) = (0, 0);
    for file in files("", "Cargo.toml") {
        let whole = manifest(&file.text);
        let Some(package) = whole.get("package").and_then(Value::as_table) else { continue };
        if !is_published(package) {
            tools += 1;
            continue;
        }
        published += 1;
        let folder = root().join(Path::new(&file.path).parent().expect("a file is in a folder"));
        let missing =
            FILES.iter().filter(|name| !folder.join(name).is_file()).map(|name| format!("a {name}"));
        let lacks = lacks(package).into_iter().chain(missing);
        complaints.extend(lacks.map(|what| format!("{} lacks {what}", file.path)));
    }
    assert!(complaints.is_empty(), "published crates:\n{}", complaints.join("\n"));
    assert!(published >= 10 && tools >= 5, "{published} published crates, {tools} others");
}

#[test]
fn all_manifests_promise_one_compiler_and_one_version() {
    let whole = manifest(&fs::read_to_string(root().join("Cargo.toml")).unwrap());
    let workspace = whole["workspace"].as_table().unwrap();
    let (version, rust) = (&workspace["package"]["version"], &workspace["package"]["rust-version"]);
    for (name, dependency) in workspace["dependencies"].as_table().unwrap() {
        if dependency.get("path").is_some() {
            assert_eq!(dependency.get("version"), Some(version), "{name} in Cargo.toml");
        }
    }
    for file in files("", "Cargo.toml") {
        let whole = manifest(&file.text);
        let Some(package) = whole.get("package").and_then(Value::as_table) else { continue };
        let promised = package.get("rust-version");
        let right = promised.is_some_and(|promised| promised == rust || promised.is_table());
        assert!(right, "{} must have rust-version = {rust}, or inherit it", file.path);
    }
    let promise = format!("Needs Rust {} or newer", rust.as_str().unwrap());
    for page in files("crates", "README.md") {
        assert!(page.text.contains(&promise), "{} must say '{promise}'", page.path);
    }
}

#[test]
fn packages_that_lack_something_are_found() {
    let good = "name = \"pagefold-a\"\ndescription = \"A.\"\nkeywords = [\"a\"]\ncategories = [\"os\"]\n\
                version.workspace = true\nedition.workspace = true\nrust-version.workspace = true\n\
                license.workspace = true\ninclude.workspace = true\n";
    assert_eq!(lacks(&manifest(good)), Vec::<String>::new());
    for (right, wrong) in [
        ("pagefold-a", "a"),
        ("A.", ""),
        ("[\"a\"]", "[]"),
        ("[\"a\"]", "[\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]"),
        ("rust-version.workspace = true\n", ""),
        ("rust-version.workspace = true\n", "rust-version = \"1.0\"\n"),
    ] {
        assert_eq!(lacks(&manifest(&good.replacen(right, wrong, 1))).len(), 1, "{wrong}");
    }
    assert!(is_published(&manifest(good)) && !is_published(&manifest("publish = false")));
}

//! What the crate exports is little, and each item shows how it is used.

use std::fs;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).expect("the source must be there")
}

/// The names that `lib.rs` exports, and whether the statement that exports them has an example.
fn exported() -> Vec<(String, bool)> {
    let lib = read("src/lib.rs");
    let mut names = Vec::new();
    for (at, _) in lib.match_indices("pub use ") {
        let statement = lib[at..].split(';').next().unwrap();
        let list = statement.rsplit("::").next().unwrap();
        let shown = lib[..at].ends_with("/// ```\n");
        let each = list.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty());
        names.extend(each.map(|name| (name.to_string(), shown)));
    }
    names.extend(["Translation", "Tables", "Cache"].map(|name| (name.to_string(), false)));
    names
}

/// The documents of an item, by the line that declares it.
fn documents(source: &str, name: &str) -> Option<String> {
    let declares = |line: &&str| {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        let kinds = ["struct", "enum", "trait", "type"];
        words.next() == Some("pub")
            && words.next().is_some_and(|kind| kinds.contains(&kind))
            && words.next() == Some(name)
    };
    let lines: Vec<&str> = source.lines().collect();
    let at = lines.iter().position(declares)?;
    let before =
        lines[..at].iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
    Some(before.copied().collect::<Vec<_>>().join("\n"))
}

#[test]
fn each_exported_item_has_an_example() {
    let files = [
        "cleared",
        "debt",
        "emptied",
        "host",
        "range",
        "spec",
        "tlb",
        "tlb/batch",
        "tlb/gather",
        "tlb/ledger",
    ];
    let sources = files.map(|file| read(&format!("src/{file}.rs")));
    let exported = exported();
    assert!(exported.len() <= 40, "{} items are exported", exported.len());
    for (name, shown) in &exported {
        let has_one =
            || sources.iter().filter_map(|source| documents(source, name)).any(|docs| docs.contains("```"));
        assert!(*shown || has_one(), "{name} must have an example");
    }
    println!("{} exported items, each with an example", exported.len());
}

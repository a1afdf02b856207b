//! Allowed dependencies of the project's crates, and of the floors of `crates/mm`, as in docs/architecture.md.

use crate::files::code;
use crate::project::{files, root};
use crate::ratchet::{Offence, check};
use std::collections::BTreeMap;
use std::fs;

/// The project's crates that each may depend on (docs/architecture.md), without those that only its tests use.
const CRATES: &[(&str, &[&str])] = &[
    ("abi", &[]),
    ("base", &[]),
    ("flush", &["base"]),
    ("mm", &["abi", "base", "flush"]),
    ("kernel", &["abi", "mm"]),
    ("program", &["abi"]),
    ("conformance", &["mm"]),
    ("trace", &["abi", "program"]),
    ("machine-sim", &["abi", "mm", "kernel", "program"]),
    ("machine-x86", &["abi", "mm", "kernel", "program", "trace", "conformance"]),
    ("linux-guest", &["program", "trace"]),
    ("fuzz", &["abi", "lab", "machine-sim", "trace", "program"]),
    ("mutants", &[]),
    ("probe", &["program"]),
    ("lab", &["machine-sim", "mm", "probe", "program", "trace"]),
    ("python", &["lab"]),
];

/// The document with the table of floors.
const ARCHITECTURE: &str = "docs/architecture.md";
/// The folder of the rooms.
pub const ROOMS: &str = "crates/mm/src/";

/// The floor of each room of `crates/mm` in the table of `document`. A file that it does not name belongs to its
/// folder.
fn floors_in(document: &str) -> BTreeMap<String, u32> {
    let mut floors = BTreeMap::new();
    let rows = document.lines().skip_while(|line| !line.starts_with("| floor | rooms |")).skip(2);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let floor = cells[1].parse().expect("a row begins with the number of its floor");
        let rooms = cells[2].split('`').skip(1).step_by(2).filter(|name| !name.contains('/'));
        floors.extend(rooms.map(|room| (room.to_owned(), floor)));
    }
    floors
}

fn floors() -> BTreeMap<String, u32> {
    let floors = floors_in(&fs::read_to_string(root().join(ARCHITECTURE)).unwrap());
    assert!(floors.len() > 30, "{ARCHITECTURE} has no table of floors: {floors:?}");
    floors
}

#[test]
fn lower_floors_only() {
    let floors = floors();
    let mut offences = Vec::new();
    for file in files(ROOMS, ".rs") {
        let room = room_of(file.path.strip_prefix(ROOMS).expect("a file of a room"));
        // Tests may use all rooms.
        let test = file.path.ends_with("tests.rs") || file.path.split('/').any(|part| part == "model");
        if room == "lib" || room == "testing" || test {
            continue;
        }
        let mut complain = |line, complaint| {
            offences.push(Offence { path: file.path.clone(), line, name: room.clone(), complaint })
        };
        let Some(&own) = floors.get(room.as_str()) else {
            complain(1, format!("the room '{room}' has no floor; give it one in {ARCHITECTURE}"));
            continue;
        };
        for (line, other) in imports(&file.text) {
            match floors.get(other.as_str()) {
                Some(&floor) if floor > own => {
                    complain(line, format!("'{room}' (floor {own}) uses '{other}' (floor {floor})"));
                }
                _ => {}
            }
        }
    }
    check("lower-floors-only", &offences);
}

/// The first line (from 1 on) of a second map of floors in `text`: three or more lines that begin with a number and a
/// room.
fn map_of_floors(text: &str, floors: &BTreeMap<String, u32>) -> Option<usize> {
    let is_row = |line: &str| {
        let line = line.replace(['/', '!', '|', '`'], " ");
        let mut words = line.split_whitespace();
        words.next().is_some_and(|word| word.parse::<u32>().is_ok())
            && words.next().is_some_and(|word| floors.contains_key(word))
    };
    let rows: Vec<usize> =
        text.lines().enumerate().filter(|(_, line)| is_row(line)).map(|(at, _)| at + 1).collect();
    if rows.len() >= 3 { rows.first().copied() } else { None }
}

#[test]
fn one_map_of_floors() {
    let floors = floors();
    let texts = files("crates/mm", ".rs").into_iter().chain(files("", ".md"));
    let offences = texts.filter(|file| file.path != ARCHITECTURE).filter_map(|file| {
        let line = map_of_floors(&file.text, &floors)?;
        let complaint = format!("a map of the floors: the only one is in {ARCHITECTURE}");
        Some(Offence { path: file.path, line, name: "floors".to_owned(), complaint })
    });
    check("one-map-of-floors", &offences.collect::<Vec<_>>());
}

#[test]
fn a_second_map_is_found_in_comments_and_tables() {
    let document = "| floor | rooms | state |\n| --- | --- | --- |\n| 2 | `mm` (facade: `mm/oom`) | |\n| 1 | `lru` `cache` | |\n";
    let floors = floors_in(document);
    assert_eq!(floors.len(), 3);
    assert_eq!(map_of_floors(document, &floors), None);
    assert_eq!(
        map_of_floors("//! Floors:\n//!  2  mm  all\n//!  1 lru/  lists\n//! 1 cache\n", &floors),
        Some(2)
    );
    assert_eq!(map_of_floors("1 of them\n2 mm\n1 lru\n", &floors), None);
}

#[test]
fn crates_know_only_those_below() {
    let mut complaints = Vec::new();
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    for folder in folders.filter(|folder| folder.join("Cargo.toml").exists()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let Some((_, below)) = CRATES.iter().find(|(known, _)| *known == name) else {
            complaints.push(format!("'{name}' has no row in {}", file!()));
            continue;
        };
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let after = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let lines = after.lines().take_while(|line| !line.starts_with('['));
        let used = lines.map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default());
        // The package of the folder `flush` has a name that others can find it by.
        let used = used.map(|name| name.strip_prefix("pagefold-").unwrap_or(name));
        let ours = used.filter(|used| CRATES.iter().any(|(known, _)| known == used));
        complaints
            .extend(ours.filter(|used| !below.contains(used)).map(|used| format!("'{name}' uses '{used}'")));
    }
    assert!(complaints.is_empty(), "crates:\n{}", complaints.join("\n"));
}

/// The room of a file, by its path below `src`: its folder or its own name.
pub fn room_of(relative: &str) -> String {
    let first = relative.split('/').next().unwrap_or(relative);
    first.trim_end_matches(".rs").to_owned()
}

/// First path segments after `crate::`, also inside `use crate::{a, b::c}`, outside of tests.
fn imports(text: &str) -> Vec<(usize, String)> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let text: String = text.lines().flat_map(|line| [code(line), "\n"]).collect();
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let line = text[..at].matches('\n').count() + 1;
        let rest = &text[at + "crate::".len()..];
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c == '$' || c == '_' || c.is_alphanumeric()) {
            continue;
        }
        if let Some(group) = rest.strip_prefix('{') {
            found.extend(group_heads(group).into_iter().map(|head| (line, head)));
        } else {
            found.push((line, identifier(rest)));
        }
    }
    found
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The first segment of every member of a group, up to the brace that closes it.
fn group_heads(group: &str) -> Vec<String> {
    let (mut depth, mut heads, mut member) = (0, Vec::new(), String::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => heads.push(std::mem::take(&mut member)),
            _ if depth == 0 => member.push(c),
            _ => {}
        }
    }
    heads.push(member);
    heads.iter().map(|member| identifier(member.trim())).filter(|head| !head.is_empty()).collect()
}

#[test]
fn imports_are_read_as_rust_reads_them() {
    let text = "use crate::{alloc, space::{a, b},\n    tlb::Debt};\nfn f() { crate::mm::go() }\n// crate::rmap\n\
                use std::fmt;\nmy_crate::x();\n#[cfg(test)]\nmod tests { use crate::lru; }\n";
    let got = imports(text);
    let expected =
        [(1, "alloc"), (1, "space"), (1, "tlb"), (3, "mm")].map(|(line, name)| (line, name.to_owned()));
    assert_eq!(got, expected);
    assert_eq!(room_of("reclaim/classic.rs"), "reclaim");
    assert_eq!(room_of("units.rs"), "units");
}

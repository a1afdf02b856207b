//! The rules of the house that a compiler does not check. Each has a short name that reviews can cite.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines after which a file is two subjects.
const MAX_LINES: usize = 700;
/// Columns of a comment, as CONTRIBUTING.md says.
const MAX_WIDTH: usize = 120;

/// Lines above an `unsafe` in which its reason must stand.
const REASON_REACH: usize = 8;

/// Which crates of the project each may depend on (docs/architecture.md), those that it is tested with left out.
const CRATES: &[(&str, &[&str])] = &[
    ("abi", &[]),
    ("mm", &["abi"]),
    ("kernel", &["abi", "mm"]),
    ("program", &["abi"]),
    ("recorder-plugin", &["abi"]),
    ("conformance", &["mm"]),
    ("trace", &["abi", "program"]),
    ("machine-sim", &["abi", "mm", "kernel", "program"]),
    ("machine-x86", &["abi", "mm", "kernel", "program", "trace", "conformance"]),
    ("linux-guest", &["program", "trace"]),
    ("fuzz", &["abi", "machine-sim", "trace", "program"]),
    ("mutants", &[]),
    ("lab", &["machine-sim", "mm", "program", "trace"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// All Rust files of the project below `dir`, by path.
fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut entries: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(rust_files(&path));
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
    found
}

/// Check every file by `rule`, which gives the offending lines, and fail with all of them.
fn check(name: &str, files: Vec<PathBuf>, rule: impl Fn(&Path, &str) -> Vec<(usize, String)>) {
    let root = root();
    let mut complaints = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let shown = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        for (line, complaint) in rule(&path, &text) {
            complaints.push(format!("{shown}:{line}: {complaint}"));
        }
    }
    assert!(complaints.is_empty(), "{name}:\n{}", complaints.join("\n"));
}

/// The code of a line, without its comment. Good enough for rules that look for words.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

#[test]
fn one_subject_per_file() {
    check("one-subject-per-file", rust_files(&root()), |_, text| {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            vec![(lines, format!("{lines} lines, more than {MAX_LINES}: split it"))]
        } else {
            vec![]
        }
    });
}

#[test]
fn comments_fit() {
    // Rows of tables and words without a space cannot be broken.
    let fits = |line: &str| {
        line.chars().count() <= MAX_WIDTH || !line.trim_start().starts_with("//") || line.contains(" | ")
    };
    check("comments-fit", rust_files(&root()), |_, text| {
        let wide = text.lines().enumerate().filter(|(_, line)| !fits(line));
        wide.map(|(at, line)| {
            (at + 1, format!("a comment of {} columns, more than {MAX_WIDTH}", line.chars().count()))
        })
        .collect()
    });
}

#[test]
fn nothing_left_over() {
    // Written in pieces, so that this file keeps its own rule.
    let banned = [["to", "do!("], ["unimple", "mented!("], ["d", "bg!("]].map(|[a, b]| format!("{a}{b}"));
    check("nothing-left-over", rust_files(&root()), |_, text| {
        let found = |line: &str| banned.iter().find(|word| line.contains(word.as_str())).cloned();
        text.lines().enumerate().filter_map(|(at, line)| Some((at + 1, found(code(line))?))).collect()
    });
}

#[test]
fn unsafe_has_a_reason() {
    check("unsafe-has-a-reason", rust_files(&root()), |_, text| {
        let lines: Vec<&str> = text.lines().collect();
        let needs_reason = |line: &str| {
            let line = code(line);
            // In pieces, so that this line is not found.
            let starts = [" {", " impl", " extern"].map(|what| format!("{}{what}", "unsafe"));
            starts.iter().any(|start| line.contains(start.as_str())) && !line.contains('"')
        };
        let has_reason = |at: usize| {
            lines[at.saturating_sub(REASON_REACH)..=at].iter().any(|line| line.contains("SAFETY:"))
        };
        (0..lines.len())
            .filter(|&at| needs_reason(lines[at]) && !has_reason(at))
            .map(|at| (at + 1, "no SAFETY comment".to_owned()))
            .collect()
    });
}

/// The floor of each room of `crates/mm`, as docs/architecture.md has it. A file that is not named there belongs to
/// its folder.
fn floors() -> BTreeMap<String, u32> {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let mut floors = BTreeMap::new();
    let rows = text.lines().skip_while(|line| !line.starts_with("| floor | rooms |")).skip(2);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let floor = cells[1].parse().expect("a row begins with the number of its floor");
        let rooms = cells[2].split('`').skip(1).step_by(2).filter(|name| !name.contains('/'));
        floors.extend(rooms.map(|room| (room.to_owned(), floor)));
    }
    assert!(floors.len() > 30, "the table of floors is not where it was: {floors:?}");
    floors
}

#[test]
fn lower_floors_only() {
    let floors = floors();
    let source = root().join("crates/mm/src");
    check("lower-floors-only", rust_files(&source), |path, text| {
        let room = room_of(path.strip_prefix(&source).unwrap());
        // Tests may look at the whole house.
        if room == "lib"
            || room == "testing"
            || path.ends_with("tests.rs")
            || path.iter().any(|part| part == "model")
        {
            return vec![];
        }
        let Some(&own) = floors.get(room.as_str()) else {
            return vec![(1, format!("the room '{room}' has no floor; give it one in docs/architecture.md"))];
        };
        imports(text)
            .into_iter()
            .filter(|(_, other)| *other != room)
            .filter_map(|(line, other)| match floors.get(other.as_str()) {
                Some(&floor) if floor > own => {
                    Some((line, format!("'{room}' (floor {own}) uses '{other}' (floor {floor})")))
                }
                _ => None,
            })
            .collect()
    });
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
        let ours = used.filter(|used| CRATES.iter().any(|(known, _)| known == used));
        complaints
            .extend(ours.filter(|used| !below.contains(used)).map(|used| format!("'{name}' uses '{used}'")));
    }
    assert!(complaints.is_empty(), "crates:\n{}", complaints.join("\n"));
}

/// The room of a file: its folder or its own name below `src`.
fn room_of(relative: &Path) -> String {
    let first = relative.iter().next().unwrap().to_string_lossy().into_owned();
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
    assert_eq!(room_of(Path::new("reclaim/classic.rs")), "reclaim");
    assert_eq!(room_of(Path::new("units.rs")), "units");
}

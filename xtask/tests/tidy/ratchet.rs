//! How a rule reports, and what is still allowed to break it.
//!
//! A rule that came after the code has a list of the places that broke it then, `allowed/RULE.txt`. What the list does
//! not have fails the test, and so does a line of the list that no place needs any more: so lists only shrink. A line
//! is a path, what the rule names there, and for some rules why it is allowed. For rules that count, it is a path and
//! how often the rule may be broken there. `TIDY_BLESS=1 cargo test -p xtask --test tidy` writes the lists as the code
//! is; reviewers refuse lines that it adds.

use crate::project::root;
use std::collections::BTreeMap;
use std::fs;

/// A place that breaks a rule.
pub struct Offence {
    /// The file.
    pub path: String,
    /// Where in the file, from 1 on.
    pub line: usize,
    /// How the list names the place; without spaces.
    pub name: String,
    /// What is wrong, for people.
    pub complaint: String,
}

/// What a line of a list names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A place: a path and a name.
    Places,
    /// A path, and how often the rule may be broken there.
    Counts,
}

/// Fails if the rule `name`, which has no list, is broken anywhere.
pub fn check(name: &str, offences: &[Offence]) {
    let complaints = compare(name, Kind::Places, offences, "");
    assert!(complaints.is_empty(), "{name}:\n{}", complaints.join("\n"));
}

/// Fails if the rule `name` is broken elsewhere or more often than its list allows, or if the list allows more than is
/// needed.
pub fn check_listed(name: &str, kind: Kind, offences: &[Offence]) {
    let path = root().join(format!("xtask/tests/tidy/allowed/{name}.txt"));
    let list = fs::read_to_string(&path).unwrap_or_default();
    if std::env::var_os("TIDY_BLESS").is_some() {
        let written = bless(kind, offences, &list);
        if written.lines().all(is_comment) {
            fs::remove_file(&path).ok();
        } else {
            fs::write(&path, written).expect("the list can be written");
        }
        return;
    }
    let complaints = compare(name, kind, offences, &list);
    assert!(complaints.is_empty(), "{name}:\n{}", complaints.join("\n"));
}

fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

/// What a line of a list names: for places the path and the name, for counts the path.
fn key(kind: Kind, path: &str, name: &str) -> String {
    match kind {
        Kind::Places => format!("{path} {name}"),
        Kind::Counts => path.to_owned(),
    }
}

/// The lines of a list by what they name, with all that comes after it: a reason, or a count.
fn entries(kind: Kind, list: &str) -> BTreeMap<String, String> {
    let lines = list.lines().filter(|line| !is_comment(line));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let names = if kind == Kind::Places { 2 } else { 1 };
            let (names, rest) = words.split_at(names.min(words.len()));
            (names.join(" "), rest.join(" "))
        })
        .collect()
}

/// The complaints that are left when `list` is taken into account.
fn compare(name: &str, kind: Kind, offences: &[Offence], list: &str) -> Vec<String> {
    let mut entries = entries(kind, list);
    let mut places: BTreeMap<String, Vec<&Offence>> = BTreeMap::new();
    for offence in offences {
        places.entry(key(kind, &offence.path, &offence.name)).or_default().push(offence);
    }
    let mut complaints = Vec::new();
    let file = format!("allowed/{name}.txt");
    for (key, offences) in &places {
        let allowed = match (kind, entries.remove(key)) {
            (_, None) => 0,
            (Kind::Places, Some(_)) => usize::MAX,
            (Kind::Counts, Some(count)) => count.parse().unwrap_or(0),
        };
        let count = offences.len();
        if count > allowed {
            complaints.extend(offences.iter().map(|offence| {
                format!("{}:{}: {} [{}]", offence.path, offence.line, offence.complaint, offence.name)
            }));
            if allowed > 0 {
                complaints.push(format!("{key}: {count} of these, and {file} allows {allowed}"));
            }
        } else if kind == Kind::Counts && count < allowed {
            complaints.push(format!("{file}: write '{key} {count}', not {allowed}"));
        }
    }
    complaints.extend(entries.into_keys().map(|key| format!("{file}: remove the line '{key}'")));
    complaints
}

/// The list as the code is now. Comments at the list's head and reasons stay.
fn bless(kind: Kind, offences: &[Offence], list: &str) -> String {
    let known = entries(kind, list);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for offence in offences {
        *counts.entry(key(kind, &offence.path, &offence.name)).or_default() += 1;
    }
    let mut text: String =
        list.lines().take_while(|line| is_comment(line)).flat_map(|line| [line, "\n"]).collect();
    for (key, count) in counts {
        let rest = match kind {
            Kind::Counts => count.to_string(),
            Kind::Places => known.get(&key).cloned().unwrap_or_default(),
        };
        text.push_str(format!("{key} {rest}").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
fn offence(path: &str, name: &str) -> Offence {
    Offence { path: path.to_owned(), line: 7, name: name.to_owned(), complaint: "bad".to_owned() }
}

#[test]
fn a_list_allows_what_it_names_and_nothing_else() {
    let offences = [offence("a.rs", "f"), offence("b.rs", "g")];
    let complaints = compare("rule", Kind::Places, &offences, "# why\na.rs f table\nc.rs h table\n");
    assert_eq!(complaints, ["b.rs:7: bad [g]", "allowed/rule.txt: remove the line 'c.rs h'"]);
    assert_eq!(
        bless(Kind::Places, &offences, "# why\na.rs f table\nc.rs h table\n"),
        "# why\na.rs f table\nb.rs g\n"
    );
}

#[test]
fn counts_may_only_shrink() {
    let offences = [offence("a.rs", "x"), offence("a.rs", "y")];
    let compare = |list| compare("rule", Kind::Counts, &offences, list);
    assert_eq!(compare("a.rs 2"), Vec::<String>::new());
    assert_eq!(compare("a.rs 3"), ["allowed/rule.txt: write 'a.rs 2', not 3"]);
    let more = ["a.rs:7: bad [x]", "a.rs:7: bad [y]", "a.rs: 2 of these, and allowed/rule.txt allows 1"];
    assert_eq!(compare("a.rs 1"), more);
    assert_eq!(compare("a.rs 2\nb.rs 1"), ["allowed/rule.txt: remove the line 'b.rs'"]);
    assert_eq!(bless(Kind::Counts, &offences, "a.rs 3\nb.rs 1\n"), "a.rs 2\n");
}

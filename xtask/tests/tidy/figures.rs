//! A page with measured figures says so when the simulated machine has come to behave in another way since.
//!
//! `docs/behaviour.toml` has the version of what the machine does, which a test of `machine-sim` holds it to, and a
//! row for each page and kind of figures: commit, date, and for simulated ones the version. If that is not the
//! current one, the page has a line about it right below its title. So a change of behaviour makes nothing again,
//! and hides nothing either.

use crate::project::{Text, files, root};
use crate::ratchet::{Offence, check};
use toml::{Table, Value};

/// Where versions and pages are listed.
const LIST: &str = "docs/behaviour.toml";
/// What figures can be of. The first kind follows the version.
const KINDS: [&str; 4] = ["simulated", "booted", "linux", "host"];
/// How the line below a title begins.
const LINE: &str = "Figures of behaviour ";

/// The part of the list that is about pages.
struct Figures {
    version: i64,
    rows: Vec<Row>,
    /// Pages that have none.
    none: Vec<String>,
}

/// Figures of one kind on a page.
struct Row {
    page: String,
    kind: String,
    commit: String,
    date: String,
    behaviour: Option<i64>,
}

impl Row {
    /// The line that the page must have.
    fn line(&self, version: i64) -> Option<String> {
        let made_at = self.behaviour.filter(|made_at| *made_at < version)?;
        Some(format!("{LINE}{made_at} ({}, {}); main is at {version}.", self.commit, self.date))
    }

    /// What is wrong with the row itself.
    fn problem(&self, version: i64) -> Option<String> {
        let hex = self.commit.len() >= 7 && self.commit.chars().all(|c| c.is_ascii_hexdigit());
        let date = self.date.len() == 10 && self.date.split('-').all(|part| part.parse::<u32>().is_ok());
        match self.behaviour {
            _ if !KINDS.contains(&self.kind.as_str()) => {
                Some(format!("'{}' is none of {KINDS:?}", self.kind))
            }
            _ if !hex => Some(format!("'{}' is no commit", self.commit)),
            _ if !date => Some(format!("'{}' is no date like 2026-11-24", self.date)),
            Some(_) if self.kind != KINDS[0] => Some(format!("{} figures have no version", self.kind)),
            None if self.kind == KINDS[0] => {
                Some("simulated figures need the version they were made at".to_owned())
            }
            Some(made_at) if made_at > version => Some(format!("version {made_at} is yet to come")),
            _ => None,
        }
    }
}

impl Figures {
    fn parse(text: &str) -> Figures {
        let list: Table = text.parse().unwrap_or_else(|error| panic!("{LIST}: {error}"));
        let figures = &list["figures"];
        let word = |row: &Value, key: &str| {
            let word = row.get(key).and_then(Value::as_str);
            word.unwrap_or_else(|| panic!("{LIST}: a row without {key}: {row}")).to_owned()
        };
        let row = |row: &Value| Row {
            page: word(row, "path"),
            kind: word(row, "kind"),
            commit: word(row, "commit"),
            date: word(row, "date"),
            behaviour: row.get("behaviour").and_then(Value::as_integer),
        };
        let all =
            |key: &str| figures[key].as_array().unwrap_or_else(|| panic!("{LIST}: '{key}' is no array"));
        Figures {
            version: list["version"].as_integer().expect("a number"),
            rows: all("pages").iter().map(row).collect(),
            none: all("none").iter().map(|page| page.as_str().expect("a path").to_owned()).collect(),
        }
    }

    /// The lines that a page must have below its title.
    fn lines(&self, page: &str) -> Vec<String> {
        self.rows.iter().filter(|row| row.page == page).filter_map(|row| row.line(self.version)).collect()
    }

    /// Returns what is wrong with `pages`, and with the rows about them.
    fn offences(&self, pages: &[Text]) -> Vec<Offence> {
        let offence = |path: &str, line, complaint| Offence {
            path: path.to_owned(),
            line,
            name: "figures".to_owned(),
            complaint,
        };
        let mut offences = Vec::new();
        for row in &self.rows {
            offences.extend(
                row.problem(self.version).map(|problem| offence(LIST, 1, format!("{}: {problem}", row.page))),
            );
        }
        let named = || self.rows.iter().map(|row| &row.page).chain(&self.none);
        let gone = named().filter(|path| !pages.iter().any(|page| page.path == **path));
        offences.extend(gone.map(|path| offence(LIST, 1, format!("{path} is no page"))));
        for page in pages {
            let listed = self.rows.iter().any(|row| row.page == page.path);
            if listed == self.none.contains(&page.path) {
                let complaint =
                    format!("has no row in {LIST}, and is not among those without figures, or both");
                offences.push(offence(&page.path, 1, complaint));
            } else if with_lines(&page.text, &self.lines(&page.path)) != page.text {
                let lines = self.lines(&page.path);
                let complaint = match lines.is_empty() {
                    true => format!("a line '{LINE}...' that is not needed any more"),
                    false => format!("write below the title: {}", lines.join(" ")),
                };
                offences.push(offence(&page.path, 3, complaint));
            }
        }
        offences
    }
}

/// A page with `lines` right below its title, and without other lines of that kind.
fn with_lines(text: &str, lines: &[String]) -> String {
    if lines.is_empty() && !text.lines().any(|line| line.starts_with(LINE)) {
        return text.to_owned();
    }
    let old: Vec<&str> = text.lines().collect();
    let title = old.iter().position(|line| line.starts_with("# ")).map_or(0, |at| at + 1);
    let (above, below) = old.split_at(title);
    let rest = below.iter().skip_while(|line| line.is_empty() || line.starts_with(LINE));
    let mut new = above.to_vec();
    for line in lines {
        new.extend(["", line]);
    }
    new.push("");
    new.extend(rest);
    new.join("\n") + "\n"
}

#[test]
fn figures_are_current() {
    let list = files("docs", "behaviour.toml").remove(0);
    let figures = Figures::parse(&list.text);
    let mut pages = files("docs", ".md");
    pages.extend(files("", "README.md").into_iter().filter(|page| page.path == "README.md"));
    if std::env::var_os("TIDY_BLESS").is_some() {
        for page in &mut pages {
            let text = with_lines(&page.text, &figures.lines(&page.path));
            if text != page.text {
                std::fs::write(root().join(&page.path), &text).expect("a page can be written");
                page.text = text;
            }
        }
    }
    check("figures-are-current", &figures.offences(&pages));
}

#[cfg(test)]
fn complaints(list: &str, pages: &[(&str, &str)]) -> Vec<String> {
    let text = |(path, text): &(&str, &str)| Text { path: path.to_string(), text: text.to_string() };
    let pages: Vec<Text> = pages.iter().map(text).collect();
    let offences = Figures::parse(list).offences(&pages);
    offences.into_iter().map(|offence| format!("{}: {}", offence.path, offence.complaint)).collect()
}

#[cfg(test)]
const PAGES: &str = "version = 3\n[figures]\nnone = ['n.md']\npages = [
    { path = 'a.md', kind = 'simulated', commit = 'abcdef1', date = '2026-01-02', behaviour = 2 },
    { path = 'b.md', kind = 'booted', commit = 'abcdef1', date = '2026-01-02' },
]";

#[test]
fn a_page_of_an_older_version_says_so() {
    let line = "Figures of behaviour 2 (abcdef1, 2026-01-02); main is at 3.";
    let a = format!("# A\n\n{line}\n\nText.\n");
    let with =
        |a: &str| complaints(PAGES, &[("a.md", a), ("b.md", "# B\n\nText.\n"), ("n.md", "# N\n\nText.\n")]);
    assert_eq!(with(&a), Vec::<String>::new());
    assert_eq!(with("# A\n\nText.\n"), [format!("a.md: write below the title: {line}")]);
    assert_eq!(with(&a.replace("at 3", "at 2")), [format!("a.md: write below the title: {line}")]);
    assert_eq!(with_lines("# A\n\nText.\n", &[line.to_owned()]), a);
    assert_eq!(with_lines(&a, &[]), "# A\n\nText.\n");
}

#[test]
fn every_page_has_a_row_or_none_at_all() {
    let a = "# A\n\nFigures of behaviour 2 (abcdef1, 2026-01-02); main is at 3.\n\nText.\n";
    let pages = [("a.md", a), ("b.md", "# B\n\nText.\n"), ("c.md", "# C\n\nText.\n")];
    let complaints = complaints(PAGES, &pages);
    assert_eq!(complaints.len(), 2);
    assert!(complaints[0].contains("n.md is no page"), "{complaints:?}");
    assert!(complaints[1].starts_with("c.md: has no row"), "{complaints:?}");
}

#[test]
fn rows_that_cannot_be_are_refused() {
    let row = |kind: &str, commit: &str, date: &str, behaviour| Row {
        page: "a.md".to_owned(),
        kind: kind.to_owned(),
        commit: commit.to_owned(),
        date: date.to_owned(),
        behaviour,
    };
    assert_eq!(row("simulated", "abcdef1", "2026-01-02", Some(3)).problem(3), None);
    assert!(row("simulated", "abcdef1", "2026-01-02", Some(4)).problem(3).is_some());
    assert!(row("simulated", "abcdef1", "2026-01-02", None).problem(3).is_some());
    assert!(row("booted", "abcdef1", "2026-01-02", Some(1)).problem(3).is_some());
    assert!(row("linux", "abc", "2026-01-02", None).problem(3).is_some());
    assert!(row("linux", "abcdef1", "today", None).problem(3).is_some());
    assert!(row("guess", "abcdef1", "2026-01-02", None).problem(3).is_some());
}

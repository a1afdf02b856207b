//! Prose does not use the phrases of `phrases.txt`, which native readers stumble over.
//!
//! Prose is comments, strings and names of tests in Rust files, and Markdown. A doc comment is no question, either: it
//! says what is returned. Each file has a count of such places that are left from before the rule.

use crate::project::files;
use crate::prose::{Passage, Word, of_markdown, of_rust};
use crate::ratchet::{Kind, Offence, check_listed};
use std::collections::BTreeMap;

/// A sequence of words that is not used.
struct Phrase {
    words: Vec<String>,
    /// What to write instead.
    instead: String,
}

/// Returns the phrases of a list.
fn phrases(list: &str) -> Vec<Phrase> {
    let mut phrases = Vec::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (pattern, instead) = line.split_once("->").unwrap_or_else(|| panic!("'{line}' has no ->"));
        let mut all: Vec<Vec<String>> = vec![Vec::new()];
        for word in pattern.split_whitespace() {
            let choices: Vec<&str> = word.trim_matches(['(', ')']).split('|').collect();
            let longer = |words: Vec<String>| {
                choices
                    .iter()
                    .map(move |choice| words.iter().cloned().chain([choice.to_string()]).collect())
                    .collect()
            };
            all = all.into_iter().flat_map(|words| -> Vec<Vec<String>> { longer(words) }).collect();
        }
        phrases.extend(all.into_iter().map(|words| Phrase { words, instead: instead.trim().to_owned() }));
    }
    phrases
}

impl Phrase {
    fn begins(&self, words: &[Word]) -> bool {
        words.len() >= self.words.len()
            && self.words.iter().zip(words).all(|(expected, word)| {
                match expected.chars().any(char::is_uppercase) {
                    true => *expected == word.text,
                    false => expected.eq_ignore_ascii_case(&word.text),
                }
            })
    }
}

/// Returns the phrases that occur in `passage`, as offences of no file yet.
fn found(passage: &Passage, phrases: &[Phrase]) -> Vec<Offence> {
    let mut found = Vec::new();
    let mut add = |line, name: String, instead: &str| {
        let complaint = format!("'{name}': {instead}");
        found.push(Offence { path: String::new(), line, name: name.replace(' ', "-"), complaint });
    };
    for (at, word) in passage.words.iter().enumerate() {
        for phrase in phrases.iter().filter(|phrase| phrase.begins(&passage.words[at..])) {
            add(word.line, phrase.words.join(" "), &format!("write {}", phrase.instead));
        }
    }
    let end = passage.words.iter().find(|word| matches!(word.text.as_str(), "." | "?"));
    if passage.doc
        && let Some(end) = end
        && end.text == "?"
    {
        add(end.line, "a question".to_owned(), "write 'Whether ...' or 'Returns ...'");
    }
    found
}

/// The names of tests of a Rust file, as passages.
fn names_of_tests(text: &str) -> Vec<Passage> {
    let mut passages = Vec::new();
    let mut test = false;
    for (at, line) in text.lines().map(str::trim).enumerate() {
        let name = line.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
        if let (true, Some((name, _))) = (test, name) {
            let words = name.split('_').map(|word| Word { text: word.to_owned(), line: at + 1 });
            passages.push(Passage { words: words.collect(), doc: false });
        }
        test = line == "#[test]" || test && line.starts_with('#');
    }
    passages
}

#[test]
fn banned_phrases() {
    let phrases = phrases(include_str!("phrases.txt"));
    let (mut offences, mut counts, mut lines) = (Vec::new(), BTreeMap::<String, usize>::new(), 0);
    for file in files("", ".rs").into_iter().chain(files("", ".md")) {
        let passages = if file.path.ends_with(".rs") {
            let (mut passages, comments) = of_rust(&file.text);
            lines += comments;
            passages.extend(names_of_tests(&file.text));
            passages
        } else {
            of_markdown(&file.text)
        };
        for offence in passages.iter().flat_map(|passage| found(passage, &phrases)) {
            *counts.entry(offence.name.clone()).or_default() += 1;
            offences.push(Offence { path: file.path.clone(), ..offence });
        }
    }
    // Shown by --show-output.
    println!("{} in all, {lines} lines of comment: {counts:?}", offences.len());
    check_listed("banned-phrases", Kind::Counts, &offences);
}

#[cfg(test)]
fn names(found: Vec<Offence>) -> Vec<(usize, String)> {
    found.into_iter().map(|offence| (offence.line, offence.name)).collect()
}

#[test]
fn phrases_are_found_across_lines_and_not_across_sentences() {
    let phrases = phrases("# why\nred (fish|herring) -> 'cod'\nZap -> 'go'\n");
    let of = |text: &str| {
        let (passages, _) = of_rust(text);
        names(passages.iter().flat_map(|passage| found(passage, &phrases)).collect())
    };
    assert_eq!(
        of("// a Red\n// fish, red herring\n"),
        [(1, "red-fish".to_owned()), (2, "red-herring".to_owned())]
    );
    assert_eq!(of("// red. Fish `red` fish zap\nfn red() { fish() }\n"), []);
    assert_eq!(of("fn f() { g(\"Zap\") }\n"), [(1, "Zap".to_owned())]);
    assert_eq!(of("/// Is it\n/// red? So.\nfn f() {}\n"), [(2, "a-question".to_owned())]);
    assert_eq!(of("/// It is. Is it?\nfn f() {}\n// Is it?\n"), []);
    let tests = names_of_tests("#[test]\n#[ignore]\nfn a_red_fish() {}\nfn red_fish() {}\n");
    assert_eq!(
        names(tests.iter().flat_map(|test| found(test, &phrases)).collect()),
        [(3, "red-fish".to_owned())]
    );
}

//! What is written for people: comments and strings of Rust files, paragraphs of Markdown.

use proc_macro2::{TokenStream, TokenTree};
use std::ops::Range;

/// A word of prose, or a mark between words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The word as it is written; code between backticks is one word.
    pub text: String,
    /// Its line, from 1 on.
    pub line: usize,
}

/// Text that is read in one go: neighbouring lines of comment, a string, a paragraph.
#[derive(Default)]
pub struct Passage {
    /// Its words.
    pub words: Vec<Word>,
    /// Whether it says what an item is for (`///`).
    pub doc: bool,
}

impl Passage {
    fn add(&mut self, line: usize, text: &str) {
        // Code is what is between an odd backtick and the next one.
        for (at, part) in text.split('`').enumerate() {
            if at % 2 == 1 {
                self.words.push(Word { text: format!("`{part}`"), line });
                continue;
            }
            for word in part.split_whitespace() {
                let mut rest = word;
                while let Some(first) = rest.chars().next() {
                    let letters = |c: char| c.is_alphanumeric() || c == '\'' || c == '_';
                    let end = match rest.find(|c| !letters(c)) {
                        Some(0) => first.len_utf8(),
                        Some(end) => end,
                        None => rest.len(),
                    };
                    self.words.push(Word { text: rest[..end].to_owned(), line });
                    rest = &rest[end..];
                }
            }
        }
    }
}

/// Returns the prose of a Rust file, and how many lines of comment it has.
pub fn of_rust(text: &str) -> (Vec<Passage>, usize) {
    proc_macro2::extra::invalidate_current_thread_spans();
    let tokens: TokenStream = text.parse().expect("a file of Rust");
    let mut leaves = Vec::new();
    collect_leaves(tokens, &mut leaves);
    let mut prose = Rust { text, passages: Vec::new(), open: Passage::default(), lines: 0 };
    let mut end = 0;
    for leaf in leaves {
        // A doc comment is several tokens, all with its range.
        if leaf.start < end {
            continue;
        }
        prose.between(end..leaf.start);
        prose.token(leaf.clone());
        end = leaf.end;
    }
    prose.between(end..text.len());
    prose.close();
    (prose.passages, prose.lines)
}

fn collect_leaves(tokens: TokenStream, leaves: &mut Vec<Range<usize>>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                leaves.push(group.span_open().byte_range());
                collect_leaves(group.stream(), leaves);
                leaves.push(group.span_close().byte_range());
            }
            other => leaves.push(other.span().byte_range()),
        }
    }
}

struct Rust<'a> {
    text: &'a str,
    passages: Vec<Passage>,
    /// The comment that may go on.
    open: Passage,
    /// Lines of comment.
    lines: usize,
}

impl Rust<'_> {
    fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    fn close(&mut self) {
        if !self.open.words.is_empty() {
            self.passages.push(std::mem::take(&mut self.open));
        }
    }

    /// What is between two tokens is space and comments.
    fn between(&mut self, range: Range<usize>) {
        if !self.text[range.clone()].trim().is_empty() {
            self.comment(range);
        }
    }

    fn comment(&mut self, range: Range<usize>) {
        let first = self.line(range.start);
        for (at, line) in self.text[range].lines().enumerate() {
            let line = line.trim();
            let words = line.trim_start_matches(['/', '!', '*']).trim_end_matches("*/");
            self.lines += usize::from(!line.is_empty());
            if !line.is_empty() && words.trim().is_empty() {
                self.close();
            }
            self.open.add(first + at, words);
            self.open.doc |= line.starts_with("///");
        }
    }

    fn token(&mut self, range: Range<usize>) {
        let token = &self.text[range.clone()];
        if token.starts_with("//") || token.starts_with("/*") {
            if !self.open.doc && token.starts_with("///") {
                self.close();
            }
            self.comment(range);
            return;
        }
        self.close();
        if token.contains('"') {
            let mut passage = Passage::default();
            let first = self.line(range.start);
            for (at, line) in token.lines().enumerate() {
                passage.add(first + at, &line.replace("\\n", " ").replace(['"', '\\'], " "));
            }
            self.passages.push(passage);
        }
    }
}

/// Returns the prose of a Markdown file: all but blocks of code.
pub fn of_markdown(text: &str) -> Vec<Passage> {
    let mut passages = vec![Passage::default()];
    for (at, line, kind) in lines_of_markdown(text) {
        if kind == Line::Code || line.trim().is_empty() {
            passages.push(Passage::default());
        } else {
            passages.last_mut().expect("one at least").add(at + 1, line);
        }
    }
    passages.retain(|passage| !passage.words.is_empty());
    passages
}

/// What a line of Markdown is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// Prose: paragraphs, lists, headings.
    Prose,
    /// A row of a table.
    Row,
    /// Inside of a block of code, or its border.
    Code,
}

/// Returns the lines of a Markdown file, from 0 on.
pub fn lines_of_markdown(text: &str) -> Vec<(usize, &str, Line)> {
    let mut fenced = false;
    // Whether an indented line would be code, and not the rest of a paragraph.
    let mut apart = true;
    let lines = text.lines().enumerate().map(|(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let kind = match () {
            () if fence || fenced || apart && line.starts_with("    ") => Line::Code,
            () if line.trim_start().starts_with('|') => Line::Row,
            () => Line::Prose,
        };
        apart = kind == Line::Code || line.trim().is_empty();
        (at, line, kind)
    });
    lines.collect()
}

#[cfg(test)]
fn shown(passages: &[Passage]) -> Vec<String> {
    let text =
        |passage: &Passage| passage.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    passages.iter().map(text).collect()
}

#[test]
fn comments_and_strings_are_prose() {
    let text = "//! Head\n//! of `a file`.\n\n/// Doc.\nfn f() { // one\n    // two\n    g(\"in, \\\"text\\\"\\n\\\n       more\"); let who = 'x'; /* block */ }\n\
                // a\n//\n// b\n";
    let (passages, lines) = of_rust(text);
    assert_eq!(
        shown(&passages),
        ["Head of `a file` .", "Doc .", "one two", "in , text more", "block", "a", "b"]
    );
    assert_eq!(passages[2].words[1], Word { text: "two".to_owned(), line: 6 });
    assert_eq!(
        passages.iter().map(|passage| passage.doc).collect::<Vec<_>>(),
        [false, true, false, false, false, false, false]
    );
    assert_eq!(lines, 9);
}

#[test]
fn code_of_markdown_is_no_prose() {
    let text = "# Title\n\none\ntwo `x`\n```\ncode\n```\n| a | row |\n\n    code\n- item\n    more\n";
    assert_eq!(shown(&of_markdown(text)), ["# Title", "one two `x`", "| a | row |", "- item more"]);
    let kinds: Vec<Line> = lines_of_markdown(text).into_iter().map(|(_, _, kind)| kind).collect();
    assert_eq!(kinds[3..8], [Line::Prose, Line::Code, Line::Code, Line::Code, Line::Row]);
    assert_eq!(kinds[8..], [Line::Prose, Line::Code, Line::Prose, Line::Prose]);
}

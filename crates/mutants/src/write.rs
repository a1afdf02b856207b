//! Writes mutants into a file, each in a branch that is taken if it is active.

use crate::sites::Form;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// The generated text of a mutant.
struct Span {
    number: u32,
    branch: Range<usize>,
    /// The whole text of its site.
    whole: Range<usize>,
}

/// A generated file and where its mutants are.
#[derive(Default)]
pub struct Generated {
    /// The text.
    pub text: String,
    spans: Vec<Span>,
}

impl Generated {
    /// The mutants that may cause an error at these bytes: those whose branch contains it, else those of the
    /// innermost site that contains it, else all in the range that the error mentions.
    pub fn culprits(&self, error: &Range<usize>, around: &Range<usize>) -> Vec<u32> {
        let holds = |range: &Range<usize>| range.start <= error.start && error.end <= range.end;
        let numbers = |wanted: &dyn Fn(&Span) -> bool| -> Vec<u32> {
            self.spans.iter().filter(|span| wanted(span)).map(|span| span.number).collect()
        };
        let branches = numbers(&|span| holds(&span.branch));
        if !branches.is_empty() {
            return branches;
        }
        let enclosing = self.spans.iter().filter(|span| holds(&span.whole));
        match enclosing.map(|span| span.whole.len()).min() {
            Some(smallest) => numbers(&|span| holds(&span.whole) && span.whole.len() == smallest),
            None => numbers(&|span| span.whole.start < around.end && around.start < span.whole.end),
        }
    }
}

/// Kinds of edits at the same site, the outermost first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    /// Inserted before the site.
    Insert,
    /// A statement in a branch.
    Statement,
    /// A condition before a guard.
    Guard,
    /// An expression in a branch.
    Expression,
}

/// The mutants of a site, and the replacement text of each.
type Replacements = Vec<(u32, String)>;
/// In the order of the text, enclosing edits first.
type Edits = BTreeMap<(usize, Reverse<usize>, Kind), Replacements>;

/// The text with these mutants: number, form and replacement of each.
pub fn write(text: &str, mutants: &[(u32, &Form, &str)]) -> Generated {
    let mut edits = Edits::new();
    for &(number, form, replacement) in mutants {
        let (range, kind, replacement) = edit(text, form, replacement);
        edits.entry((range.start, Reverse(range.end), kind)).or_default().push((number, replacement));
    }
    let edits: Vec<_> =
        edits.into_iter().map(|((start, end, kind), branches)| (start..end.0, kind, branches)).collect();
    let mut writer = Writer { text, edits: &edits, out: Generated::default() };
    writer.copy(0..text.len(), 0..edits.len());
    writer.out
}

fn edit(text: &str, form: &Form, replacement: &str) -> (Range<usize>, Kind, String) {
    match form {
        Form::Return { at } => (*at..*at, Kind::Insert, format!("return {replacement};")),
        Form::Operator { whole, operator } => {
            let (left, right) = (&text[whole.start..operator.start], &text[operator.end..whole.end]);
            (whole.clone(), Kind::Expression, format!("{left}{replacement}{right}"))
        }
        Form::Operand { whole, operand } => {
            (whole.clone(), Kind::Expression, text[operand.clone()].to_owned())
        }
        Form::Expression { whole } => (whole.clone(), Kind::Expression, replacement.to_owned()),
        Form::Arm { guard } => (guard.clone(), Kind::Guard, String::new()),
        Form::Field { value, base, name } => {
            (value.clone(), Kind::Expression, format!("({}).{name}", &text[base.clone()]))
        }
        Form::Statement { whole } => (whole.clone(), Kind::Statement, String::new()),
    }
}

struct Writer<'a> {
    text: &'a str,
    edits: &'a [(Range<usize>, Kind, Replacements)],
    out: Generated,
}

impl Writer<'_> {
    /// Copy a part of the text with the edits in it.
    fn copy(&mut self, part: Range<usize>, edits: Range<usize>) {
        let (mut from, mut at) = (part.start, edits.start);
        while at < edits.end {
            let (range, ..) = &self.edits[at];
            self.out.text.push_str(&self.text[from..range.start]);
            let inner = self.edits[at + 1..edits.end].iter().take_while(|(other, ..)| {
                other.end <= range.end && other.start >= range.start && !range.is_empty()
            });
            let next = at + 1 + inner.count();
            self.generate(at, at + 1..next);
            from = range.end;
            at = next;
        }
        self.out.text.push_str(&self.text[from..part.end]);
    }

    fn generate(&mut self, at: usize, inner: Range<usize>) {
        let (range, kind, branches) = &self.edits[at];
        let start = self.out.text.len();
        let mut spans = Vec::new();
        match kind {
            Kind::Insert => {
                for (number, replacement) in branches {
                    let begin = self.out.text.len();
                    self.out.text.push_str(&format!("if crate::mutant::on({number}) {{ {replacement} }} "));
                    spans.push((*number, begin..self.out.text.len()));
                }
            }
            Kind::Statement => {
                let numbers: Vec<String> =
                    branches.iter().map(|(number, _)| format!("!crate::mutant::on({number})")).collect();
                self.out.text.push_str(&format!("if {} {{ ", numbers.join(" && ")));
                self.copy(range.clone(), inner);
                self.out.text.push_str(" }");
            }
            Kind::Guard => {
                let word = if range.is_empty() { " if " } else { "" };
                let numbers: Vec<String> =
                    branches.iter().map(|(number, _)| format!("!crate::mutant::on({number})")).collect();
                self.out.text.push_str(&format!("{word}{}", numbers.join(" && ")));
                if !range.is_empty() {
                    self.out.text.push_str(" && (");
                    self.copy(range.clone(), inner);
                    self.out.text.push(')');
                }
            }
            Kind::Expression => {
                self.out.text.push('(');
                for (number, replacement) in branches {
                    self.out.text.push_str(&format!("if crate::mutant::on({number}) {{ "));
                    let begin = self.out.text.len();
                    self.out.text.push_str(replacement);
                    spans.push((*number, begin..self.out.text.len()));
                    self.out.text.push_str(" } else ");
                }
                self.out.text.push_str("{ ");
                self.copy(range.clone(), inner);
                self.out.text.push_str(" })");
            }
        }
        let whole = start..self.out.text.len();
        for (number, _) in branches {
            let branch = spans.iter().find(|branch| branch.0 == *number);
            let branch = branch.map_or(whole.end..whole.end, |branch| branch.1.clone());
            self.out.spans.push(Span { number: *number, branch, whole: whole.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutant_gets_its_own_branch() {
        let text = "fn f() { a(b < c); }";
        let less = Form::Operator { whole: 11..16, operator: 13..14 };
        let gone = Form::Statement { whole: 9..18 };
        let nothing = Form::Return { at: 9 };
        let mutants = [(1, &less, ">"), (2, &gone, ""), (3, &less, "=="), (4, &nothing, "()")];
        let generated = write(text, &mutants);
        let on = |n| format!("crate::mutant::on({n})");
        let expected = format!(
            "fn f() {{ if !{} {{ if {} {{ return (); }} a((if {} {{ b > c }} else if {} {{ b == c }} else {{ b < c }})); }} }}",
            on(2),
            on(4),
            on(1),
            on(3)
        );
        assert_eq!(generated.text, expected);
        let at = |what: &str| {
            let start = expected.find(what).unwrap();
            start..start + what.len()
        };
        let culprits = |what| generated.culprits(&at(what), &at(what));
        assert_eq!(culprits("b > c"), [1]);
        assert_eq!(culprits("b < c"), [1, 3]);
        assert_eq!(culprits("a("), [2]);
        assert!(culprits("fn").is_empty());
        let mut around = generated.culprits(&at("fn"), &(0..expected.len()));
        around.sort_unstable();
        assert_eq!(around, [1, 2, 3, 4]);
    }
}

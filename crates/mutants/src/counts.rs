//! The runs of `docs/behaviour.toml`, of which a test of the simulated machine compares what they count.

use crate::case::{Case, Counts};
use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
struct Behaviour {
    counters: Vec<String>,
    runs: BTreeMap<String, String>,
}

/// The runs as command lines of `pagefold`.
pub fn cases(root: &Path) -> Result<Vec<Case>> {
    let path = root.join("docs/behaviour.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let behaviour: Behaviour = toml::from_str(&text).with_context(|| path.display().to_string())?;
    let case = |(name, counts): (&String, &String)| {
        let words = words(name).with_context(|| format!("run {name:?}"))?;
        let mut expected = parse(counts).with_context(|| format!("counts {counts:?}"))?;
        for counter in &behaviour.counters {
            expected.entry(counter.clone()).or_default();
        }
        Ok(Case { name: name.clone(), words, counts: Some(expected) })
    };
    behaviour.runs.iter().map(case).collect()
}

/// The arguments of `pagefold` for `PROGRAM in MEMORY, MACHINE, SETTING...`.
fn words(name: &str) -> Option<String> {
    let (program, rest) = name.split_once(" in ")?;
    let mut parts = rest.split(", ");
    let (memory, machine) = (parts.next()?, parts.next()?);
    let mut words = format!("run {program} --memory {memory} --machine {machine} --quiet --json --all");
    for part in parts {
        match part.split_once('=')? {
            (option @ ("swap" | "group" | "fragment"), value) => words += &format!(" --{option} {value}"),
            _ => words += &format!(" --set {part}"),
        }
    }
    Some(words)
}

/// Parse `NAME COUNT, NAME COUNT...`.
fn parse(counts: &str) -> Option<Counts> {
    let count = |part: &str| {
        let (name, count) = part.split_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    counts.split(", ").map(count).collect()
}

/// The counts that `expected` names in the output of a run; `None` if it has no counts.
pub fn of_output(output: &[u8], expected: &Counts) -> Option<Counts> {
    let value: Value = serde_json::from_slice(output).ok()?;
    let rows = value["rows"].as_array()?;
    let row = |metric: &str| rows.iter().find(|row| row["metric"] == metric)?["value"].as_f64();
    let count = |name: &String| {
        let count = match name.as_str() {
            "nanos" => (row("run_time")? * 1e9).round() as u64,
            "accesses" => value["accesses"].as_u64()?,
            counter => row(counter).unwrap_or(0.0) as u64,
        };
        Some((name.clone(), count))
    };
    expected.keys().map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_command_line() {
        let expected =
            "run zipf:8M --memory 6M --machine small --quiet --json --all --set a.b=c --swap zram:9%,x=1";
        assert_eq!(words("zipf:8M in 6M, small, a.b=c, swap=zram:9%,x=1").unwrap(), expected);
        assert_eq!(words("zipf:8M"), None);
    }

    #[test]
    fn counts_of_a_run_are_those_that_are_expected() {
        let expected = Counts::from([("nanos".into(), 5), ("accesses".into(), 7), ("pgfault".into(), 0)]);
        let output = |value: f64, more: &str| {
            format!(r#"{{"accesses": 7, "rows": [{{"metric": "run_time", "value": {value}}}{more}]}}"#)
        };
        let same = |text: String| of_output(text.as_bytes(), &expected) == Some(expected.clone());
        assert!(same(output(5e-9, r#", {"metric": "other", "value": 3.0}"#)));
        assert!(!same(output(6e-9, "")));
        assert!(!same(output(5e-9, r#", {"metric": "pgfault", "value": 1.0}"#)));
        assert!(!same(String::new()));
    }
}

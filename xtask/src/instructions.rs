//! How many instructions fixed work takes, held against what it took before.
//!
//! Instructions are exact where times are not: two counts of the same build differ by less than a thousandth. The file
//! `docs/instructions.toml` has what each run took when it was last accepted. So what makes the simulator or the memory
//! manager slower is seen in the change that does it, and stays only with a reason.

use crate::built;
use crate::tool::Tool;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::{Command, ExitCode, Stdio};

const FILE: &str = "docs/instructions.toml";

/// Arguments of `pagefold run`: each is a way through the simulator and the memory manager of its own.
const RUNS: &[&str] = &[
    "zipf:24M --memory 60%",
    "stream:24M --memory 50%",
    "stream:24M:4 --memory 50%",
    "sequential:24M --memory 25%",
    "uniform-file:6M:4 --memory 50% --profile mglru",
    "fork-write:16M --memory 60% --profile lazy",
    "zipf-hugepage:32M --memory 75% --set hugepages-2048kB.enabled=madvise",
    "redis:4M:2 --memory 60% --profile mglru",
    "graph500:6M --machine tiers:1:2 --memory 9M --set kernel.numa_balancing=2 --set numa.demotion_enabled=1",
    "lru-file-readtwice:64M:4 --memory 50% --set file.max_order=9",
    "map-storm:16M:4 --memory 75%",
    "chaos:4M --memory 3M --verify",
];

/// By how many per cent a count may rise.
const TOLERANCE: u64 = 2;

/// The booted operation that waits for a disk: how often the task sleeps depends on the host, and moves it by 5 %.
const WAITS: &str = "stream";

/// What was counted, by name.
type Counts = BTreeMap<String, u64>;

/// The tables of the file: whole runs of the simulator, and units of the booted machine's operations.
const TABLES: [&str; 2] = ["simulated", "booted"];

/// The file.
#[derive(Default, PartialEq, Debug)]
struct Baseline {
    /// What the compiler says of itself. Another one makes other code.
    rustc: String,
    tables: [Counts; 2],
    /// Why counts rose or fell, as lines of the file.
    reasons: Vec<String>,
}

impl Baseline {
    /// Read the file's text. Its form is TOML, of which it uses little: tables of `"name" = number`.
    fn parse(text: &str) -> Baseline {
        let mut baseline = Baseline::default();
        let mut table = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('[') {
                table = TABLES.iter().position(|table| name.strip_suffix(']') == Some(table));
            } else if let Some(version) = line.strip_prefix("rustc = ") {
                baseline.rustc = version.trim_matches('"').to_owned();
            } else if line.starts_with("    \"") {
                baseline.reasons.push(line.to_owned());
            } else if let (Some(at), Some((name, count))) = (table, line.rsplit_once(" = "))
                && let Ok(count) = count.parse()
            {
                baseline.tables[at].insert(name.trim_matches('"').to_owned(), count);
            }
        }
        baseline
    }

    fn text(&self) -> String {
        let mut text = format!(
            "# Instructions of fixed work. 'cargo xtask instructions' counts them again and fails if one is more than {} % \
             above;\n# 'cargo xtask instructions --accept REASON' writes this file.\n\nrustc = \"{}\"\n\nreasons = [\n{}\n]\n",
            TOLERANCE,
            self.rustc,
            self.reasons.join("\n")
        );
        let about = [
            "whole runs of 'pagefold run', counted by valgrind",
            "a unit of each operation of 'pagefold boot --bench', in tenths, counted by QEMU",
        ];
        for ((table, counts), about) in TABLES.iter().zip(&self.tables).zip(about) {
            _ = writeln!(text, "\n# {about}\n[{table}]");
            counts.iter().for_each(|(name, count)| _ = writeln!(text, "\"{name}\" = {count}"));
        }
        text
    }
}

/// Count, print what differs, and fail if something rose too much.
pub fn check() -> ExitCode {
    let Some(before) = read() else { return ExitCode::FAILURE };
    let Some(now) = count() else { return ExitCode::FAILURE };
    let (table, risen) = compare(&before, &now);
    print!("{table}");
    if before.rustc != now.rustc {
        println!("not judged: {FILE} is of {}, and this is {}", before.rustc, now.rustc);
        return ExitCode::SUCCESS;
    }
    risen.iter().for_each(|line| println!("{line}"));
    if risen.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Count, and write the counts and the reason into the file.
pub fn accept(reason: &str) -> ExitCode {
    let (before, Some(mut now)) = (read().unwrap_or_default(), count()) else { return ExitCode::FAILURE };
    print!("{}", compare(&before, &now).0);
    now.reasons.clone_from(&before.reasons);
    now.reasons.push(format!("    \"{}\",", reason.replace(['"', '\\', '\n'], "'")));
    // What could not be counted here stays.
    for (table, old) in now.tables.iter_mut().zip(before.tables) {
        if table.is_empty() {
            *table = old;
        }
    }
    match std::fs::write(FILE, now.text()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{FILE}: {error}")),
    }
}

fn fail(problem: &str) -> ExitCode {
    eprintln!("xtask: {problem}");
    ExitCode::FAILURE
}

fn read() -> Option<Baseline> {
    std::fs::read_to_string(FILE)
        .inspect_err(|error| eprintln!("xtask: {FILE}: {error}"))
        .ok()
        .map(|text| Baseline::parse(&text))
}

/// A table of the counts before and now, and a line about each that rose too much.
fn compare(before: &Baseline, now: &Baseline) -> (String, Vec<String>) {
    let (mut text, mut risen) = (String::new(), Vec::new());
    for (table, (old, new)) in TABLES.iter().zip(before.tables.iter().zip(&now.tables)) {
        for (name, &count) in new {
            let Some(&was) = old.get(name) else {
                _ = writeln!(text, "{count:>14}       new  {name}");
                continue;
            };
            let change = count as f64 / was as f64 - 1.0;
            if 100 * count > (100 + TOLERANCE) * was {
                risen.push(format!(
                    "{table}: {name}: {count}, more than {TOLERANCE} % above the {was} of {FILE}: \
                     mend it, or cargo xtask instructions --accept REASON"
                ));
            }
            _ = writeln!(text, "{count:>14} {:>+7.2} %  {name}", 100.0 * change);
        }
    }
    (text, risen)
}

/// Count what can be counted here. `None`: something failed, and has said why.
fn count() -> Option<Baseline> {
    let pagefold = built::pagefold()?;
    let rustc = Command::new("rustc").arg("--version").output().ok()?;
    let rustc = String::from_utf8_lossy(&rustc.stdout).trim().to_owned();
    let mut now = Baseline { rustc, ..Baseline::default() };
    if Tool::Valgrind.is_there() {
        for &run in RUNS {
            let mut command = Command::new("valgrind");
            command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(&pagefold).arg("run");
            command.args(run.split(' ')).stdin(Stdio::null());
            let output = command.output().ok()?;
            let said = String::from_utf8_lossy(&output.stderr);
            let Some(count) = collected(&said).filter(|_| output.status.success()) else {
                eprintln!("xtask: pagefold run {run}, under valgrind:\n{said}");
                return None;
            };
            now.tables[0].insert(run.to_owned(), count);
        }
    } else {
        println!("not counted without valgrind: runs of the simulator");
    }
    if Tool::System.is_there() {
        let mut command = Command::new(&pagefold);
        let output = command.args(["boot", "--bench", "--json"]).stderr(Stdio::inherit()).output().ok()?;
        now.tables[1] = operations(&String::from_utf8_lossy(&output.stdout));
        if !output.status.success() || now.tables[1].is_empty() {
            eprintln!("xtask: pagefold boot --bench --json has failed");
            return None;
        }
    } else {
        println!("not counted without QEMU: operations of the booted machine");
    }
    Some(now)
}

/// The number that callgrind has collected.
fn collected(said: &str) -> Option<u64> {
    let (_, count) = said.lines().find_map(|line| line.split_once("Collected : "))?;
    count.trim().parse().ok()
}

/// Tenths of instructions of the operations in the JSON of `pagefold boot --bench`.
fn operations(json: &str) -> Counts {
    let rows = json.split("\"operation\":").skip(1);
    rows.filter_map(|row| {
        let name = row.split('"').nth(1)?;
        let value = row.split("\"instructions\":").nth(1)?.split([',', '}']).next()?;
        Some((name.to_owned(), (10.0 * value.trim().parse::<f64>().ok()?).round() as u64))
    })
    .filter(|(name, _)| name != WAITS)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(counts: &[(&str, u64)]) -> Baseline {
        let table = counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
        let reasons = vec!["    \"the first\",".to_owned()];
        Baseline { rustc: "rustc 1".into(), tables: [table, Counts::new()], reasons }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let before = baseline(&[("zipf:24M --set a=b", 10), ("x", 7)]);
        assert_eq!(Baseline::parse(&before.text()), before);
    }

    #[test]
    fn what_rises_by_more_than_two_per_cent_fails() {
        let (text, risen) = compare(
            &baseline(&[("a", 1000), ("b", 1000), ("c", 1000)]),
            &baseline(&[("a", 1020), ("b", 1021), ("c", 900), ("d", 5)]),
        );
        let [line] = &risen[..] else { panic!("{risen:?}") };
        assert!(line.starts_with("simulated: b: 1021, more than 2 % above the 1000 of"), "{line}");
        assert!(text.contains("1021   +2.10 %  b") && text.contains("new  d"), "{text}");
    }

    #[test]
    fn counts_are_found_in_what_the_tools_say() {
        assert_eq!(collected("==1== \n==1== Collected : 121331521\n"), Some(121_331_521));
        let json = r#"{"rows": [{"operation": "anon_fault", "cpus": 1, "instructions": 1106.25, "units": 4},
            {"operation": "age_page", "instructions": 82}, {"operation": "stream", "instructions": 3507}]}"#;
        let expected = [("age_page".to_owned(), 820), ("anon_fault".to_owned(), 11_063)];
        assert_eq!(operations(json), Counts::from(expected));
    }
}

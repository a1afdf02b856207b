//! How true our counts are: many programs and settings, each under both of Linux's policies, and one document of it.
//!
//! Every comparison is kept as a file in a folder, so that a run that was interrupted goes on where it stopped, and
//! the document can be written from what is there.

use super::judge::{Beside, Row};
use crate::boot::beside::Agreement;
use crate::human;
use std::fmt::Write;

/// Policies that Linux has.
pub const POLICIES: [&str; 2] = ["classic", "mglru"];
/// A setting wins if it is better by more than so many per cent.
const WINS_BY: f64 = 2.0;
/// Counts below which nobody wins: chance alone moves them.
const FEW: f64 = 200.0;

/// A program with its conditions.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name in files and tables.
    pub name: &'static str,
    /// The program.
    pub program: &'static str,
    /// Memory, as `--memory` takes it.
    pub memory: &'static str,
    /// CPUs.
    pub cpus: u32,
    /// Settings, as `--set` takes them.
    pub set: &'static [&'static str],
}

const fn case(name: &'static str, program: &'static str, memory: &'static str) -> Case {
    Case { name, program, memory, cpus: 2, set: &[] }
}

/// Miss ratios alone: nothing is read that was not asked for.
const NO_READ_AHEAD: &[&str] = &["queue.read_ahead_kb=0", "fault_around_bytes=4096"];

/// What is compared.
pub const CASES: &[Case] = &[
    Case { cpus: 1, ..case("sequential", "sequential:16M", "200%") },
    Case { cpus: 1, ..case("sequential-file", "sequential-file:16M", "200%") },
    case("zipf", "zipf:64M", "50%"),
    case("zipf-file", "zipf-file:64M", "50%"),
    Case { set: NO_READ_AHEAD, ..case("zipf-file-ra0", "zipf-file:64M", "50%") },
    Case { set: NO_READ_AHEAD, ..case("zipf-and-scan-ra0", "zipf-and-scan:48M", "50%") },
    case("hot-and-stream", "hot-and-stream:64M", "50%"),
    case("cassandra", "cassandra:32M", "50%"),
    case("memcached", "memcached:32M", "50%"),
    case("two-groups", "two-groups:32M", "150%"),
    case("mongodb", "mongodb:32M", "50%"),
    case("postgresql", "postgresql:32M", "50%"),
    case("zipf-and-scan", "zipf-and-scan:48M", "50%"),
    case("read-stream", "read-stream:64M", "50%"),
    case("stream", "stream:64M", "50%"),
    case("fork-write", "fork-write:32M", "75%"),
    case("map-storm", "map-storm:16M", "200%"),
    case("trace-sqlite", "traces/sqlite.pft", "50%"),
    case("zipf-75", "zipf:64M", "75%"),
    case("uniform", "uniform:32M", "75%"),
    Case { cpus: 1, ..case("zipf-1cpu", "zipf:64M", "50%") },
    Case { set: &["vm.page-cluster=0"], ..case("zipf-no-cluster", "zipf:64M", "50%") },
    case("shared-writers", "shared-writers:32M", "50%"),
    case("redis", "redis:24M", "50%"),
    Case { set: &["vm.swappiness=10"], ..case("cassandra-swappiness-10", "cassandra:32M", "50%") },
    Case { set: &["vm.swappiness=200"], ..case("cassandra-swappiness-200", "cassandra:32M", "50%") },
    case("lsm", "lsm:32M", "50%"),
    case("trace-redis", "traces/redis.pft", "50%"),
];

impl Case {
    /// The file of a result.
    pub fn file(&self, policy: &str) -> String {
        format!("{}.{policy}.json", self.name)
    }

    /// What the user would type.
    fn command(&self) -> String {
        let settings: String = self.set.iter().map(|setting| format!(" --set {setting}")).collect();
        format!("{} --memory {} --cpus {}{settings}", self.program, self.memory, self.cpus)
    }
}

/// A result.
pub struct Done {
    /// Of what.
    pub case: &'static Case,
    /// By policy, in the order of [`POLICIES`].
    pub by_policy: [Option<Beside>; 2],
}

/// The document.
pub fn document(date: &str, results: &[Done]) -> String {
    let all = || results.iter().flat_map(|done| done.by_policy.iter().flatten());
    let mut text = String::from(
        "# How true the counts are\n\nThe same programs on Linux under QEMU and on the simulated machine, under both policies that Linux\n\
         has, made by `pagefold truth` ([linux.md](linux.md) says how, and how counts are judged;\n\
         [differences.md](differences.md) lists what is known to differ).\n\n",
    );
    if let Some(one) = all().next() {
        let (kernel, commit) = (&one.conditions.kernel, &one.setup.origin.commit);
        let _ = writeln!(
            text,
            "Made on {date} from commit {commit}, with Linux\n{kernel}, {}.\n",
            human::plural(one.setup.runs.into(), "boot each", "boots each")
        );
    }
    summary(&mut text, all());
    ranking(&mut text, results);
    errors(&mut text, results);
    text
}

/// How many of the judged counts are near.
fn summary<'a>(text: &mut String, all: impl Iterator<Item = &'a Beside>) {
    let (mut comparisons, mut missed, mut errors) = (0, 0, Vec::new());
    for beside in all {
        comparisons += 1;
        for row in beside.rows.iter().filter(|row| row.missed.is_some()) {
            missed += usize::from(row.missed == Some(true));
            errors.push(row.error_pct.map_or(f64::INFINITY, f64::abs));
        }
    }
    errors.sort_by(f64::total_cmp);
    let share = |most: f64| errors.iter().filter(|error| **error <= most).count() * 100 / errors.len().max(1);
    let median = errors.get(errors.len() / 2).copied().unwrap_or(0.0);
    let _ = writeln!(
        text,
        "{} judged counts of {comparisons} comparisons: the median error is {median:.1} %, {} % are within\n10 %, {} % within 25 %; {missed} \
         missed what they are judged by (a few for exact counts; for totals\n10 % or Linux's own spread).\n",
        errors.len(),
        share(10.0),
        share(25.0)
    );
}

/// Which of two policies wins, on Linux and here.
fn ranking(text: &mut String, results: &[Done]) {
    text.push_str(
        "## Which policy wins\n\nChange from classic to mglru; less is better. A policy wins if it is better by more than 2 %.\n\n\
         | program | count | Linux: classic | mglru | change | here: classic | mglru | change | same winner |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
    );
    for done in results {
        let [Some(classic), Some(mglru)] = &done.by_policy else { continue };
        for metric in ["pgmajfault", "pgpgin", "pgscan"] {
            let (Some(one), Some(other)) = (classic.row(metric), mglru.row(metric)) else { continue };
            if one.linux.max(other.linux) < FEW {
                continue;
            }
            let linux = change(one.linux, other.linux);
            let here = change(one.simulated, other.simulated);
            let same = if winner(linux) == winner(here) { "yes" } else { "**no**" };
            let number = |value: f64| human::number(value, &one.unit);
            let _ = writeln!(
                text,
                "| {} | {metric} | {} | {} | {linux:+.1} % | {} | {} | {here:+.1} % | {same} |",
                done.case.name,
                number(one.linux),
                number(other.linux),
                number(one.simulated),
                number(other.simulated)
            );
        }
    }
    text.push('\n');
}

fn change(from: f64, to: f64) -> f64 {
    if from == 0.0 { 0.0 } else { (to / from - 1.0) * 100.0 }
}

/// -1: the second is better, 1: the first, 0: neither.
fn winner(change: f64) -> i8 {
    match change {
        change if change > WINS_BY => 1,
        change if change < -WINS_BY => -1,
        _ => 0,
    }
}

/// Count by count.
fn errors(text: &mut String, results: &[Done]) {
    text.push_str(
        "## Count by count\n\nLinux's mean, its spread over its boots, ours, and the error. What both count as next to nothing,\n\
         and what is a matter of timing, is left out. **Bold**: missed.\n",
    );
    for done in results {
        let _ = writeln!(text, "\n### {}\n\n`pagefold linux {}`\n", done.case.name, done.case.command());
        text.push_str(
            "| policy | count | Linux | spread | here | error |\n| --- | --- | ---: | ---: | ---: | ---: |\n",
        );
        for (policy, beside) in POLICIES.iter().zip(&done.by_policy) {
            let Some(beside) = beside else { continue };
            if !beside.same_work {
                let _ = writeln!(text, "| {policy} | the machines did not do the same work | | | | |");
            }
            for row in beside.rows.iter().filter(|row| shown(row)) {
                let _ = writeln!(text, "{}", line(policy, row));
            }
        }
    }
}

fn shown(row: &Row) -> bool {
    row.missed.is_some() && (row.agreement == Agreement::Total || row.linux.max(row.simulated) > 0.0)
}

fn line(policy: &str, row: &Row) -> String {
    let number = |value: f64| human::number(value, &row.unit);
    let spread = row.linux_spread_pct.map_or("".to_owned(), |spread| format!("{spread:.1} %"));
    let error = row.error_pct.map_or("n/a".to_owned(), |error| format!("{error:+.1} %"));
    let error = if row.missed == Some(true) { format!("**{error}**") } else { error };
    format!(
        "| {policy} | {} | {} | {spread} | {} | {error} |",
        row.metric,
        number(row.linux),
        number(row.simulated)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Program;
    use crate::linux::judge::tests::beside;
    use crate::profile::parse_setting;
    use mm::stat::Stat;

    #[test]
    fn every_case_can_be_run_and_has_a_name_of_its_own() {
        let mut names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        for case in CASES {
            assert!(
                case.program.ends_with(".pft") || Program::find(case.program).is_ok(),
                "{}",
                case.program
            );
            assert!(case.memory.parse::<crate::size::Memory>().is_ok(), "{}", case.memory);
            assert!(case.set.iter().all(|setting| parse_setting(setting).is_ok()), "{}", case.name);
        }
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == CASES.len() && names.len() >= 20, "{names:?}");
    }

    #[test]
    fn the_document_says_who_wins_where() {
        let of = |linux: i64, here: i64| {
            let scan = |pages| [(Stat::PgscanKswapd, pages), (Stat::Pgmajfault, 1000)];
            Some(beside(&[&scan(linux)], &scan(here)))
        };
        let results = [
            Done { case: &CASES[2], by_policy: [of(10_000, 10_000), of(8_000, 9_000)] },
            Done { case: &CASES[18], by_policy: [of(10_000, 8_500), of(8_000, 9_000)] },
        ];
        let text = document("2026-01-01", &results);
        let row = |name: &str, count: &str| {
            let start = format!("| {name} | {count} |");
            text.lines().find(|line| line.starts_with(&start)).unwrap().to_owned()
        };
        assert!(row("zipf", "pgscan").ends_with("| -20.0 % | 10.0 k | 9.00 k | -10.0 % | yes |"), "{text}");
        assert!(row("zipf-75", "pgscan").ends_with("| +5.9 % | **no** |"), "{text}");
        assert!(row("zipf", "pgmajfault").ends_with("| +0.0 % | yes |"), "{text}");
        assert!(text.contains("| classic | pgscan | 10.0 k |  | 8.50 k | **-15.0 %** |"), "{text}");
        assert!(text.contains("`pagefold linux zipf:64M --memory 50% --cpus 2`"), "{text}");
    }
}

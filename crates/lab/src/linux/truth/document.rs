//! The document.

use super::causes::{Cause, Causes};
use super::ranking::rankings;
use super::summary::{HEADINGS, Line, SETS, shown_error};
use super::{CASES, Done, Kept};
use crate::human;
use crate::linux::judge::{Beside, Row, Unjudged};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const INTRODUCTION: &str = "\
# How true the counts are

The same programs on Linux under QEMU and on the simulated machine, under both policies that Linux
has, made by `pagefold truth` ([linux.md](linux.md) says how;
[differences.md](differences.md) lists what is known to differ).

";

const RULE: &str = "\
## How counts are judged

A total misses if it is farther from Linux's mean than 10 % and than the spread of Linux's boots
with one seed, from the smallest to the largest. Where nothing was reclaimed, nor read or written,
the program alone decides: eight, or one in a thousand, may be the kernel's own.

Not judged is

- what both count as 0; such rows are not shown;
- what both count less than 100 times (*few*);
- a total of which Linux's boots with one seed are more than 25 % apart (*noisy*);
- what depends on timing: shown with both sides' spreads (*timing*);
- a copy (*is ...*): a row with the same number of pages as a row above it, on both sides and in
  every run, up to 1 %; or with the sum of two rows above it that begin with the same word, up to
  one page in a thousand. KiB count as pages of four. Eight pages may be the kernel's own, but never
  more than 2 %.

A spread is from the smallest to the largest of several boots with one seed, in per cent of the
mean. The simulated machine's boots differ in when its disks answer. \"Of seeds\" is the same over
seeds.

A policy wins if it is better by more than 2 %. Both sides agree if they have the same winner, or
none; they are inverted if the other policy wins.

";

/// The document of all results.
pub fn document(date: &str, results: &[Done], causes: &Causes) -> String {
    let mut text = String::from(INTRODUCTION);
    made(&mut text, date, results);
    head(&mut text, results, causes);
    winners(&mut text, results);
    failures(&mut text, results);
    text.push_str(RULE);
    counts(&mut text, results, causes);
    text
}

/// When, from what, and how often.
fn made(text: &mut String, date: &str, results: &[Done]) {
    let all = || results.iter().flat_map(|done| done.kept().map(|(_, kept)| kept));
    let list = |words: BTreeSet<String>| words.into_iter().collect::<Vec<String>>().join(", ");
    let commits = list(all().map(|kept| kept.commit().to_owned()).collect());
    let of_results = || all().filter_map(Kept::beside);
    let kernels = list(of_results().map(|beside| beside.conditions.kernel.clone()).collect());
    let runs = of_results().map(|beside| {
        let boots = human::plural(beside.boots.into(), "boot", "boots");
        let time = if beside.conditions.icount { ", time counted in instructions" } else { "" };
        format!("{boots} with each of {}{time}", human::plural(beside.setup.runs.into(), "seed", "seeds"))
    });
    let runs = list(runs.collect());
    let reasons: BTreeMap<&str, &str> = of_results()
        .flat_map(|beside| &beside.rows)
        .filter_map(|row| Some((row.metric.as_str(), row.reason.as_deref()?)))
        .collect();
    let cases: BTreeSet<&str> = results.iter().map(|done| done.case.name).collect();
    let paragraph = format!(
        "Made on {date} from commit {commits}, with Linux {kernels}: {runs}. {} of {} programs and settings have been run.",
        cases.len(),
        CASES.len()
    );
    let _ = writeln!(text, "{}", human::wrapped(&paragraph, 0, 100));
    let missing: Vec<&str> =
        CASES.iter().map(|case| case.name).filter(|name| !cases.contains(name)).collect();
    if !missing.is_empty() {
        let paragraph = format!("Not run: {}.", missing.join(", "));
        let _ = writeln!(text, "{}", human::wrapped(&paragraph, 0, 100));
    }
    for why in reasons.values().collect::<BTreeSet<_>>() {
        let metrics: Vec<&str> =
            reasons.iter().filter(|(_, reason)| reason == &why).map(|(metric, _)| *metric).collect();
        let paragraph = format!("Timing: {} ({why}).", metrics.join(", "));
        let _ = writeln!(text, "{}", human::wrapped(&paragraph, 0, 100));
    }
}

/// How many of the judged counts are near.
fn head(text: &mut String, results: &[Done], causes: &Causes) {
    let _ = write!(text, "## Summary\n\n{HEADINGS}");
    let kernels: BTreeSet<&str> = results.iter().map(|done| done.kernel.as_str()).collect();
    for (set, held_out) in SETS {
        let of_set = || results.iter().filter(|done| done.case.held_out == held_out);
        if of_set().next().is_none() {
            continue;
        }
        for kernel in &kernels {
            let of_kernel = || of_set().filter(|done| done.kernel == *kernel);
            if of_kernel().next().is_some() {
                let _ = writeln!(text, "{}", Line::of(of_kernel(), causes).row(kernel, set));
            }
        }
        if kernels.len() > 1 {
            let _ = writeln!(text, "{}", Line::of(of_set(), causes).row("all", set));
        }
    }
    text.push('\n');
}

/// Which of two policies wins, on Linux and here.
fn winners(text: &mut String, results: &[Done]) {
    text.push_str(
        "## Each kernel, each program, both policies\n\nLess is better. Spreads are in brackets; *change* is from classic to mglru.\n\n\
         | kernel | program | count | Linux: classic | mglru | change | here: classic | mglru | change | winner |\n\
         | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
    );
    for done in results {
        for ranking in rankings(done) {
            let [one, other] = ranking.rows;
            let cell = |value: f64, row: &Row, spread: Option<f64>| {
                let spread = spread.map_or(String::new(), |spread| format!(" ({spread:.1} %)"));
                format!("{}{spread}", human::number(value, &row.unit))
            };
            let linux = |row: &Row| cell(row.linux, row, row.linux_spread_pct);
            let here = |row: &Row| cell(row.simulated, row, row.simulated_spread_pct);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {:+.1} % | {} | {} | {:+.1} % | {} |",
                done.kernel,
                done.case.name,
                one.metric,
                linux(one),
                linux(other),
                ranking.linux,
                here(one),
                here(other),
                ranking.here,
                ranking.ranks.word()
            );
        }
    }
    text.push('\n');
}

/// Comparisons without a result.
fn failures(text: &mut String, results: &[Done]) {
    let failed = |done: &Done| -> Vec<String> {
        let of = |(policy, kept): (&str, &Kept)| match kept {
            Kept::Compared(_) => None,
            Kept::Failed(failed) => {
                let why = failed.comparison_failed.replace('|', "/");
                Some(format!("| {} | {} | {policy} | {why} |\n", done.kernel, done.case.name))
            }
        };
        done.kept().filter_map(of).collect()
    };
    let rows: Vec<String> = results.iter().flat_map(failed).collect();
    if !rows.is_empty() {
        text.push_str(
            "## Failed comparisons\n\n| kernel | program | policy | reason |\n| --- | --- | --- | --- |\n",
        );
        text.extend(rows);
        text.push('\n');
    }
}

/// Count by count.
fn counts(text: &mut String, results: &[Done], causes: &Causes) {
    text.push_str("## Count by count\n");
    for case in CASES {
        let of_case: Vec<&Done> = results.iter().filter(|done| done.case.name == case.name).collect();
        if of_case.is_empty() {
            continue;
        }
        let held_out = if case.held_out { ", held out" } else { "" };
        let _ = writeln!(text, "\n### {}\n\n`pagefold linux {}`{held_out}\n", case.name, case.command());
        text.push_str(
            "| kernel | policy | count | Linux | spread | of seeds | here | spread | of seeds | error | verdict |\n\
             | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
        );
        for (kernel, policy, kept) in all(&of_case) {
            match kept {
                Kept::Compared(beside) => {
                    let shown = beside.rows.iter().filter(|row| row.unjudged != Some(Unjudged::Zero));
                    shown.for_each(|row| {
                        let cause = causes.of([kernel, case.name, policy, &row.metric]);
                        text.push_str(&line(kernel, policy, row, cause));
                    });
                }
                Kept::Failed(_) => {
                    let _ = writeln!(text, "| {kernel} | {policy} | failed | | | | | | | | |");
                }
            }
        }
        text.push('\n');
        for (kernel, policy, kept) in all(&of_case) {
            if let Kept::Compared(beside) = kept {
                notes(text, &format!("{kernel}, {policy}"), beside);
            }
        }
    }
}

fn all<'a>(results: &'a [&'a Done]) -> impl Iterator<Item = (&'a str, &'static str, &'a Kept)> {
    results.iter().flat_map(|done| done.kept().map(|(policy, kept)| (done.kernel.as_str(), policy, kept)))
}

/// What a reader of a comparison's rows should know.
fn notes(text: &mut String, of: &str, beside: &Beside) {
    let mut all = Vec::new();
    if !beside.conditions.unequal.is_empty() {
        let unequal: Vec<String> = beside.conditions.unequal.iter().map(|found| found.to_text()).collect();
        all.push(format!("not equal: {}", unequal.join(", ")));
    }
    all.extend(beside.warnings.iter().map(|warning| format!("note: {}", warning.trim_end_matches('.'))));
    for note in all {
        let _ = writeln!(text, "{}", human::wrapped(&format!("{of}: {note}."), 0, 100));
    }
}

fn line(kernel: &str, policy: &str, row: &Row, cause: Option<&Cause>) -> String {
    let number = |value: f64| human::number(value, &row.unit);
    let share = |share: Option<f64>| share.map_or(String::new(), |share| format!("{share:.1} %"));
    let error = match shown_error(row.error_pct) {
        error if error.is_finite() => format!("{error:+.1} %"),
        _ => "n/a".to_owned(),
    };
    format!(
        "| {kernel} | {policy} | {} | {} | {} | {} | {} | {} | {} | {error} | {} |\n",
        row.metric,
        number(row.linux),
        share(row.linux_spread_pct),
        share(row.linux_seeds_pct),
        number(row.simulated),
        share(row.simulated_spread_pct),
        share(row.simulated_seeds_pct),
        verdict(row, cause)
    )
}

/// The words of the last column; only the first two are of judged rows.
fn verdict(row: &Row, cause: Option<&Cause>) -> String {
    match (row.unjudged, &row.copy_of) {
        (None, _) if row.missed == Some(true) => {
            let cause =
                cause.map_or(String::new(), |Cause { cause, run, .. }| format!(": {cause} (`{run}`)"));
            format!("**missed**{cause}")
        }
        (None, _) => "good".to_owned(),
        (Some(Unjudged::Copy), Some(of)) => format!("is {of}"),
        (Some(Unjudged::Timing), _) => "timing".to_owned(),
        (Some(Unjudged::Noisy), _) => "noisy".to_owned(),
        (Some(_), _) => "few".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::done;
    use super::super::{CASES, Failed};
    use super::*;

    fn results() -> Vec<Done> {
        let held = CASES.iter().find(|case| case.held_out).unwrap();
        let failed = Some(Kept::Failed(Failed::new("the guest's kernel panicked: no | memory".into())));
        let mut third = done(&CASES[3], [5000, 5600], [0, 0]);
        if let Some(Kept::Compared(beside)) = &mut third.by_policy[0] {
            beside.warnings.push("this kernel has no /sys/new".into());
        }
        third.by_policy[1] = failed;
        vec![
            done(&CASES[2], [10_000, 10_000], [8_000, 9_000]),
            done(&CASES[18], [10_000, 8_500], [8_000, 9_000]),
            third,
            Done { kernel: "7.2".into(), ..done(held, [1000, 1000], [1000, 1200]) },
        ]
    }

    fn causes() -> Causes {
        let text = "[[cause]]\nprogram = 'zipf-75'\ncount = 'pgscan'\ncause = 'known'\nrun = 'pagefold linux zipf'\n";
        Causes::parse(text).unwrap()
    }

    /// Cells of a table's rows below a heading.
    fn cells<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
        let start = text.find(heading).unwrap_or_else(|| panic!("{heading}: {text}"));
        let lines = text[start..].lines().skip(1).take_while(|line| !line.starts_with("## "));
        let rows = lines.filter(|line| {
            line.starts_with("| ") && !line.starts_with("| kernel") && !line.starts_with("| ---")
        });
        rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
    }

    #[test]
    fn the_summary_is_the_count_of_the_rows_that_are_shown() {
        let text = document("2026-01-01", &results(), &causes());
        let mut counted: BTreeMap<(String, bool), (usize, usize, usize)> = BTreeMap::new();
        let held = text.lines().scan(false, |held, line| {
            if line.starts_with("`pagefold linux ") {
                *held = line.ends_with("held out");
            }
            Some((line, *held))
        });
        let rows = held.skip_while(|(line, _)| *line != "## Count by count");
        for (line, held) in rows.filter(|(line, _)| line.starts_with("| ") && line.split('|').count() == 13) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let missed = cells[11].starts_with("**missed**");
            if !missed && cells[11] != "good" {
                continue;
            }
            let error: f64 = cells[10].trim_end_matches(" %").parse().unwrap_or(f64::INFINITY);
            for kernel in [cells[1], "all"] {
                let sums = counted.entry((kernel.to_owned(), held)).or_default();
                sums.0 += 1;
                sums.1 += usize::from(error.abs() <= 10.0);
                sums.2 += usize::from(missed);
            }
        }
        for row in cells(&text, "## Summary") {
            let expected =
                counted.get(&(row[0].to_owned(), row[1] == "held out")).copied().unwrap_or_default();
            let number = |cell: &str| cell.split(' ').next().unwrap().parse::<usize>().unwrap();
            assert_eq!((number(row[4]), number(row[7]), number(row[9])), expected, "{row:?}: {text}");
        }
        assert_eq!(cells(&text, "## Summary").len(), 4, "two sets, each with its one kernel and all: {text}");
    }

    #[test]
    fn the_document_has_failures_with_their_reasons() {
        let text = document("2026-01-01", &results(), &causes());
        let failed = cells(&text, "## Failed comparisons");
        assert_eq!(failed, [["6.12", "zipf-file", "mglru", "the guest's kernel panicked: no / memory"]]);
        let open = cells(&text, "## Summary").into_iter().find(|row| row[..2] == ["6.12", "open"]).unwrap();
        assert_eq!(open[2..4], ["5", "1"], "compared and failed");
        assert!(text.contains("| 6.12 | mglru | failed |"), "{text}");
        let not_run = text.split("Not run: ").nth(1).and_then(|rest| rest.split('.').next()).unwrap();
        assert!(not_run.contains("cassandra") && !not_run.contains("zipf-file,"), "{not_run}");
    }

    #[test]
    fn the_document_says_who_wins_where() {
        let text = document("2026-01-01", &results(), &causes());
        let won = cells(&text, "## Each kernel");
        let row = |name: &str| won.iter().find(|row| row[1] == name && row[2] == "pgscan").unwrap().join(" ");
        assert!(row("zipf").ends_with("-20.0 % 10.0 k 9.00 k -10.0 % agrees"), "{text}");
        assert!(row("zipf-75").ends_with("+5.9 % **inverted**"), "{text}");
        assert!(
            text.contains(
                "| 6.12 | classic | pgscan | 10.0 k |  |  | 8.50 k |  |  | -15.0 % | **missed**: known (`pagefold linux zipf`) |"
            ),
            "{text}"
        );
        assert!(text.contains("`pagefold linux zipf:64M --memory 50% --cpus 2`"), "{text}");
        assert!(text.contains("6.12, classic: not equal: node 0 watermark low 12165 for 2048."), "{text}");
        assert!(text.contains("6.12, classic: note: this kernel has no /sys/new."), "{text}");
        let timing = text.split("Timing: ").nth(1).unwrap();
        assert!(timing.starts_with("allocstall, pageoutrun, pgscan_direct, "), "{text}");
    }
}

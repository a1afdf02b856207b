//! The head of docs/truth.md is counted from its rows, and it was made when docs/behaviour.toml says.

use crate::project::files;
use crate::summary::{ByKernel, Sums, cells, said, section};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// A page with a summary.
struct Page<'a> {
    text: &'a str,
}

impl<'a> Page<'a> {
    /// Programs that are held out.
    fn sets(&self) -> BTreeMap<&'a str, &'static str> {
        let mut sets = BTreeMap::new();
        let mut name = "";
        for line in section(self.text, "Count by count") {
            name = line.strip_prefix("### ").unwrap_or(name);
            if line.starts_with("`pagefold linux ") {
                sets.insert(name, if line.ends_with(", held out") { "held out" } else { "open" });
            }
        }
        sets
    }

    /// What the rows below it come to.
    fn counted(&self) -> ByKernel {
        let sets = self.sets();
        let mut all = ByKernel::new();
        let mut add = |kernel: &str, program: &str, count: &dyn Fn(&mut Sums)| {
            for kernel in [kernel, "all"] {
                count(all.entry((kernel.to_owned(), sets[program].to_owned())).or_default());
            }
        };
        let mut name = "";
        let mut comparison = ("", "", "");
        for line in section(self.text, "Count by count") {
            name = line.strip_prefix("### ").unwrap_or(name);
            let Some(row) = cells(line).filter(|row| row[0] != "kernel") else { continue };
            if comparison != (name, row[0], row[1]) {
                comparison = (name, row[0], row[1]);
                let failed = row[2] == "failed";
                add(row[0], name, &|sums| *if failed { &mut sums.failed } else { &mut sums.compared } += 1);
            }
            let verdict = row.last().copied().unwrap_or_default();
            add(row[0], name, &|sums| sums.noisy += usize::from(verdict == "noisy"));
            let missed = verdict.starts_with("**missed**");
            if missed || verdict == "good" {
                let error = row[9].trim_end_matches(" %").parse().map_or(f64::INFINITY, f64::abs);
                add(row[0], name, &|sums| {
                    sums.judged += 1;
                    sums.within_10 += usize::from(error <= 10.0);
                    sums.within_25 += usize::from(error <= 25.0);
                    sums.missed += usize::from(missed);
                    // A cause follows the word.
                    sums.unexplained += usize::from(verdict == "**missed**" && error > 25.0);
                });
            }
        }
        for row in section(self.text, "Each kernel, each program, both policies").filter_map(cells) {
            if row[0] != "kernel" {
                let verdict = row[9];
                add(row[0], row[1], &|sums| {
                    sums.rankings += 1;
                    sums.agree += usize::from(verdict == "agrees");
                    sums.inverted += usize::from(verdict == "**inverted**");
                });
            }
        }
        all
    }

    /// What the summary says otherwise than the rows.
    fn offences(&self) -> Vec<String> {
        let (said, counted) = (said(self.text), self.counted());
        let one = counted
            .keys()
            .filter(|(kernel, _)| kernel != "all")
            .map(|(kernel, _)| kernel)
            .collect::<Vec<_>>();
        let several = one.iter().any(|kernel| *kernel != one[0]);
        let mut offences = Vec::new();
        for key in said.keys().chain(counted.keys().filter(|(kernel, _)| several || kernel != "all")) {
            if said.get(key) != counted.get(key) {
                offences.push(format!(
                    "{key:?}: the summary says {:?}, the rows {:?}",
                    said.get(key),
                    counted.get(key)
                ));
            }
        }
        offences.dedup();
        offences
    }
}

#[test]
fn truths_summary_is_counted_from_its_rows() {
    let pages = files("docs", "truth.md");
    let page = Page { text: &pages[0].text };
    assert!(!said(page.text).is_empty(), "docs/truth.md has no summary");
    assert_eq!(page.offences(), Vec::<String>::new(), "docs/truth.md");
}

#[test]
fn truths_date_and_commit_are_those_of_the_list_of_pages() {
    let pages = files("docs", "truth.md");
    let text = pages[0].text.split_whitespace().collect::<Vec<&str>>().join(" ");
    let list: Table = files("docs", "behaviour.toml")[0].text.parse().expect("a list of pages");
    let rows = list["figures"]["pages"].as_array().expect("an array");
    let of_page = |row: &&Value| row.get("path").and_then(Value::as_str) == Some("docs/truth.md");
    for row in rows.iter().filter(of_page) {
        let word = |key: &str| row[key].as_str().expect("a word");
        let made = format!("Made on {} from commit {}", word("date"), word("commit"));
        assert!(text.contains(&made), "docs/truth.md does not say '{made}'");
    }
}

#[test]
fn a_summary_that_its_rows_do_not_bear_out_is_found() {
    let row = "| 6.12 | classic | pgscan | 1 | | | 1 | | | +11.0 % | **missed** |\n";
    let table = |judged| {
        format!(
            "## Summary\n\n\
             | kernel | set | compared | failed | judged | noisy | median error | within 10 % | within 25 % | missed \
             | beyond 25 %, no cause | rankings | agree | inverted |\n| --- | --- |\n\
             | 6.12 | open | 1 | 1 | {judged} | 1 | 11.0 % | 0 (0 %) | 1 (100 %) | 1 | 0 | 1 | 0 | 1 |\n\n\
             ## Each kernel, each program, both policies\n\n\
             | 6.12 | zipf | pgscan | 1 | 1 | 1 | 1 | 1 | 1 | **inverted** |\n\n\
             ## Count by count\n\n### zipf\n\n`pagefold linux zipf`\n\n{row}| 6.12 | classic | pswpin | 1 | | | 1 | | | | few |\n\
             | 6.12 | classic | pgsteal | 1 | | | 1 | | | | noisy |\n\
             | 6.12 | mglru | failed | | | | | | | | |\n"
        )
    };
    assert_eq!(Page { text: &table(1) }.offences(), Vec::<String>::new());
    let [offence] = &Page { text: &table(2) }.offences()[..] else { panic!("one row is wrong") };
    assert!(offence.contains("judged: 2") && offence.contains("judged: 1"), "{offence}");
}

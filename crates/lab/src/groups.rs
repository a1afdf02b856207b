//! Counts of control groups in the result: means over the runs, as objects and as text.

use crate::grid::Grid;
use crate::human;
use crate::record::{GroupRecord, PressureFiles, PressureLine, RunRecord};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A control group of one profile; numbers are means over the runs that had it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupSummary {
    /// Its path; groups that the program has made are called by their numbers.
    pub group: String,
    /// Limits in bytes by the names of their files, `null` for `max`; `null` if the program has removed the group.
    pub limits: Option<BTreeMap<String, Option<u64>>>,
    /// Bytes, by the names of their files.
    pub usage: BTreeMap<String, f64>,
    /// memory.stat: bytes on lists, and counts.
    pub stat: BTreeMap<String, f64>,
    /// memory.events.
    pub events: BTreeMap<String, f64>,
    /// memory.pressure and io.pressure; empty where the machine does not tell.
    pub pressure: PressureFiles,
}

/// The groups of one profile's runs, in the order in which the first run that has them made them.
pub fn summarize<'a>(runs: impl IntoIterator<Item = &'a RunRecord>) -> Vec<GroupSummary> {
    let mut order: Vec<&str> = Vec::new();
    let mut by_name: BTreeMap<&str, Vec<&GroupRecord>> = BTreeMap::new();
    for group in runs.into_iter().flat_map(|run| &run.groups) {
        let of_name = by_name.entry(&group.group).or_default();
        if of_name.is_empty() {
            order.push(&group.group);
        }
        of_name.push(group);
    }
    order.into_iter().map(|name| mean(&by_name[name])).collect()
}

fn mean(records: &[&GroupRecord]) -> GroupSummary {
    let of = |pick: fn(&GroupRecord) -> &BTreeMap<String, u64>| {
        let mut sum = BTreeMap::<String, f64>::new();
        for (name, &value) in records.iter().flat_map(|record| pick(record)) {
            *sum.entry(name.clone()).or_default() += value as f64;
        }
        sum.values_mut().for_each(|value| *value /= records.len() as f64);
        sum
    };
    GroupSummary {
        group: records[0].group.clone(),
        limits: records[0].limits.clone(),
        usage: of(|record| &record.usage),
        stat: of(|record| &record.stat),
        events: of(|record| &record.events),
        pressure: mean_pressure(records),
    }
}

fn mean_pressure(records: &[&GroupRecord]) -> PressureFiles {
    let mut all = BTreeMap::<&str, BTreeMap<&str, Vec<PressureLine>>>::new();
    for (file, lines) in records.iter().flat_map(|record| &record.pressure) {
        for (name, &line) in lines {
            all.entry(file).or_default().entry(name).or_default().push(line);
        }
    }
    let mean = |(name, lines): (&str, Vec<PressureLine>)| (name.to_owned(), PressureLine::mean(&lines));
    all.into_iter().map(|(file, lines)| (file.to_owned(), lines.into_iter().map(mean).collect())).collect()
}

impl GroupSummary {
    /// A line of memory.pressure.
    fn memory_pressure(&self, line: &str) -> Option<PressureLine> {
        self.pressure.get("memory.pressure")?.get(line).copied()
    }

    /// memory.pressure as Linux shows it.
    fn pressure_text(&self) -> Option<String> {
        let [some, full] = ["some", "full"].map(|line| self.memory_pressure(line));
        Some(format!("memory.pressure of {}\nsome {}\nfull {}\n", self.group, some?, full?))
    }
}

/// Groups that the table shows of each profile.
const SHOWN: usize = 10;

/// A table with a line for each group under each profile. Empty if there are none.
pub fn to_text(profiles: &[String], groups: &BTreeMap<String, Vec<GroupSummary>>, width: usize) -> String {
    let many = profiles.len() > 1;
    let (grid, hidden) = to_grid(profiles, groups);
    if groups.values().all(Vec::is_empty) {
        return String::new();
    }
    let mut text = grid.render(|column| column <= usize::from(many), width);
    if hidden > 0 {
        let more = human::plural(hidden as u64, "group more", "groups more");
        let _ = writeln!(text, "and {more} (--json has all)");
    }
    // There is room for the files of one profile's groups.
    let shown = groups.values().filter(|_| !many).flat_map(|groups| groups.iter().take(SHOWN));
    text.extend(shown.filter_map(GroupSummary::pressure_text));
    text
}

/// The table, and how many groups it leaves out.
pub fn to_grid(profiles: &[String], groups: &BTreeMap<String, Vec<GroupSummary>>) -> (Grid, usize) {
    let many = profiles.len() > 1;
    let profile_heading = many.then_some("profile");
    let headings =
        ["memory.max", "peak", "swap peak", "pgmajfault", "refaults", "pgscan", "pgsteal", "some", "full"];
    let events = ["low", "high", "max", "oom_kill"];
    let mut grid = Grid::new(["group"].into_iter().chain(profile_heading).chain(headings).chain(events));
    let mut hidden = 0;
    for profile in profiles {
        let of_profile = groups.get(profile).map_or(&[][..], Vec::as_slice);
        hidden = hidden.max(of_profile.len().saturating_sub(SHOWN));
        for group in of_profile.iter().take(SHOWN) {
            let name = many.then(|| profile.clone());
            grid.row([group.group.clone()].into_iter().chain(name).chain(cells(group, &events)));
        }
    }
    (grid, hidden)
}

fn cells(group: &GroupSummary, events: &[&str]) -> Vec<String> {
    let max = match group.limits.as_ref().map(|limits| limits.get("memory.max").copied().flatten()) {
        None => "(removed)".to_owned(),
        Some(None) => "max".to_owned(),
        Some(Some(bytes)) => human::bytes(bytes as f64),
    };
    let usage = |name: &str| human::bytes(group.usage.get(name).copied().unwrap_or(0.0));
    let stat = |name: &str| group.stat.get(name).copied().unwrap_or(0.0);
    let refaults = stat("workingset_refault_anon") + stat("workingset_refault_file");
    let counts = [stat("pgmajfault"), refaults, stat("pgscan"), stat("pgsteal")];
    let events = events.iter().map(|&name| group.events.get(name).copied().unwrap_or(0.0));
    let number = |value| human::number(value, "");
    let stalled = ["some", "full"].map(|line| match group.memory_pressure(line) {
        Some(line) => human::number(line.total, "us"),
        None => "-".to_owned(),
    });
    [max, usage("memory.peak"), usage("memory.swap.peak")]
        .into_iter()
        .chain(counts.map(number))
        .chain(stalled)
        .chain(events.map(number))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::tests::words;
    use crate::metrics::tests::run;

    fn record(name: &str, peak: u64, max: Option<u64>) -> GroupRecord {
        let one = |name: &str, value| BTreeMap::from([(name.to_owned(), value)]);
        GroupRecord {
            group: name.into(),
            limits: Some(BTreeMap::from([("memory.max".to_owned(), max)])),
            usage: one("memory.peak", peak),
            stat: one("pgscan", peak / 4096),
            events: one("max", 7),
            pressure: BTreeMap::from([(
                "memory.pressure".to_owned(),
                ["some", "full"].map(|name| (name.to_owned(), pressure(peak))).into(),
            )]),
        }
    }

    fn pressure(peak: u64) -> PressureLine {
        PressureLine { avg10: 0.5, avg60: 0.0, avg300: 0.0, total: peak as f64 / 1024.0 }
    }

    #[test]
    fn numbers_are_means_and_the_table_has_a_line_for_each_group() {
        let mut runs = [run("a", 1, 1, &[]), run("a", 2, 1, &[])];
        assert_eq!(summarize(&runs), []);
        runs[0].groups = vec![record("web", 1 << 20, Some(2 << 20)), record("3", 8192, None)];
        runs[1].groups = vec![record("web", 3 << 20, Some(2 << 20))];
        let groups = summarize(&runs);
        assert_eq!(groups.iter().map(|group| group.group.as_str()).collect::<Vec<_>>(), ["web", "3"]);
        assert_eq!((groups[0].usage["memory.peak"], groups[0].events["max"]), ((2 << 20) as f64, 7.0));
        let of_profile = BTreeMap::from([("a".to_owned(), groups)]);
        let text = to_text(&["a".to_owned()], &of_profile, 200);
        assert_eq!(words(&text, "web")[1..5], ["2.00", "MiB", "2.00", "MiB"]);
        assert_eq!((words(&text, "3")[1], words(&text, "group")[1]), ("max", "memory.max"));
        let file =
            "memory.pressure of web\nsome avg10=0.50 avg60=0.00 avg300=0.00 total=2048\nfull avg10=0.50";
        assert!(text.contains(file), "{text}");
        assert_eq!(to_text(&["a".to_owned()], &BTreeMap::from([("a".to_owned(), Vec::new())]), 80), "");
    }
}

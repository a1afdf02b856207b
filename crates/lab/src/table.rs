//! Results as text, like mmtests: the baseline's column first, then each profile's value, its change (positive =
//! better) and the interval of the change. `*` marks a significant change.

use crate::grid::Grid;
use crate::record::{FragmentedRecord, LruGenRecord, StateRecord};
use crate::summary::{FIRST_LOOK, MAIN, Setup, StoppedBy, Summary, SummaryRow};
use crate::{breakdown, groups, human, locks};
use std::fmt::Write;

/// The whole result.
pub fn render(summary: &Summary, width: usize) -> String {
    let mut text = heading(&summary.setup);
    if let Some((left, memory)) = summary.memory_left.zip(summary.setup.memory) {
        let [left, kept] = [left, memory - left].map(|bytes| human::bytes(bytes as f64));
        let _ =
            writeln!(text, "left     {left} to the program and its page tables; kswapd keeps {kept} free");
    }
    text.push('\n');
    text.push_str(&body(summary).render(|column| column == 0, width));
    text.push('\n');
    let state = summary.fragmented.as_ref().map(fragmented);
    let groups = groups::to_text(&summary.setup.profiles, &summary.groups, width);
    for section in
        details(summary, width).into_iter().chain([groups]).chain(state).filter(|section| !section.is_empty())
    {
        text.push_str(&section);
        text.push('\n');
    }
    text.push_str(&footer(summary));
    text
}

/// What was run, on what.
pub fn heading(setup: &Setup) -> String {
    let lines = facts(setup).into_iter().map(|(name, value)| format!("{name:<9}{value}\n"));
    lines.collect()
}

/// The same as names and values.
pub fn facts(setup: &Setup) -> Vec<(&'static str, String)> {
    let [touched, peak] = [setup.footprint, setup.peak_live].map(|bytes| human::bytes(bytes as f64));
    let in_all =
        if touched == peak { String::new() } else { format!(" at once; it touches {touched} in all") };
    let memory = match setup.memory {
        Some(bytes) if setup.peak_live > 0 => format!(
            "{} ({} of the program's {peak}{in_all})",
            human::bytes(bytes as f64),
            human::share(bytes as f64 / setup.peak_live as f64)
        ),
        Some(bytes) => human::bytes(bytes as f64),
        None => format!("all of the machine's (the program touches {touched})"),
    };
    let seeds = human::seeds(setup.seed, setup.runs);
    let of =
        |name, values: &[String]| values.iter().map(move |value| (name, value.clone())).collect::<Vec<_>>();
    let mut facts =
        vec![("program", setup.program.clone()), ("machine", setup.machine.clone()), ("memory", memory)];
    facts.extend(setup.fragment.iter().map(|state| ("begins", state.clone())));
    facts.extend(setup.senpai.iter().map(|of| ("senpai", of.clone())));
    facts.extend([of("swap", &setup.swap), of("fails", &setup.fail), of("group", &setup.group)].concat());
    facts.extend(setup.vary.iter().map(|what| ("varies", what.clone())));
    facts.push(("runs", format!("{} ({seeds})", setup.runs)));
    facts
}

/// Metric by metric, and in each the profiles in order, with their changes.
pub fn body(summary: &Summary) -> Grid {
    let setup = &summary.setup;
    let mut headings = vec!["metric".to_owned()];
    for (column, profile) in setup.profiles.iter().enumerate() {
        headings.push(profile.clone());
        if column > 0 && setup.base.is_some() {
            headings.extend(["change".to_owned(), "95% interval".to_owned()]);
        }
    }
    let count = headings.len();
    let mut grid = Grid::new(headings);
    for rows in summary.rows.chunks(setup.profiles.len().max(1)) {
        let mut cells = vec![rows[0].metric.clone()];
        for (column, row) in rows.iter().enumerate() {
            cells.push(human::number(row.value, &row.unit));
            if column > 0 && setup.base.is_some() {
                cells.push(change(row));
                cells.push(interval(row));
            }
        }
        grid.row(cells);
    }
    let compared = setup.base.is_some();
    grid.keys(if compared { 2 } else { 1 });
    grid.join((2..count).filter(|_| compared).filter(|column| column % 3 != 2));
    grid
}

/// The result of a visit to the generations.
pub fn generations(seen: &LruGenRecord) -> String {
    let LruGenRecord { nanos, commands, error, text } = seen;
    let after = if commands.is_empty() { String::new() } else { format!(", after '{commands}'") };
    let error = error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
    format!("lru_gen at {}{after}{error}\n{text}", human::number(*nanos as f64, "ns"))
}

/// The state of memory at the start.
pub fn fragmented(made: &FragmentedRecord) -> String {
    let FragmentedRecord { asked, held_movable, held_by_kernel, before, after } = made;
    let state = |when: &str, state: &StateRecord| {
        let (free, unusable) = (human::grouped(state.free_pages), state.unusable_pct);
        let (blocks, types) = (&state.buddyinfo, &state.pagetypeinfo);
        format!("{when}: {free} free pages, {unusable:.1}% of them of no use for 2 MiB\n{blocks}\n{types}")
    };
    format!(
        "memory in the state {asked} (first run; {} movable frames held, {} unmovable)\n{}\n{}",
        human::grouped(*held_movable),
        human::grouped(*held_by_kernel),
        state("before", before),
        state("after", after)
    )
}

/// The details that a single profile has room for: where the kernel's time went, and what the devices did.
fn details(summary: &Summary, width: usize) -> Vec<String> {
    let [profile] = &summary.setup.profiles[..] else { return Vec::new() };
    let runs = summary.setup.runs;
    let run_time = summary.rows.iter().find(|row| row.metric == "run_time").map_or(0.0, |row| row.value);
    let costs = summary.costs.get(profile).map(|costs| breakdown::costs_text(costs, runs, width));
    let devices =
        summary.devices.get(profile).map(|devices| breakdown::devices_text(devices, runs, run_time, width));
    let tree = summary.profile_tree.as_ref().map(|tree| tree.to_text(runs));
    let generations = summary.lru_gen.iter().map(generations);
    let locks = summary.locks.as_ref().map(|locks| locks::to_text(locks, runs, width));
    let lines = summary.lines.as_ref().and_then(|lines| locks::lines_to_text(lines, runs, width));
    costs.into_iter().chain(devices).chain(tree).chain(locks).chain(lines).chain(generations).collect()
}

fn change(row: &SummaryRow) -> String {
    human::change(row.change_pct, row.ratio.filter(|_| row.better.is_none()), row.significant)
}

fn interval(row: &SummaryRow) -> String {
    match row.change_ci_pct {
        Some(ends) => human::percents(ends),
        None => "n/a".to_owned(),
    }
}

/// What to know of the numbers, a line each.
pub fn footer(summary: &Summary) -> String {
    let setup = &summary.setup;
    let mut text = String::from("work done: ");
    let work: Vec<String> = setup
        .profiles
        .iter()
        .filter_map(|profile| summary.work.get(profile).map(|work| (profile, work)))
        .map(|(profile, work)| format!("{profile} {}", work.to_text()))
        .collect();
    if summary.same_work && setup.profiles.len() > 1 {
        let first =
            setup.profiles.first().and_then(|profile| summary.work.get(profile)).copied().unwrap_or_default();
        let _ = writeln!(text, "the same on all sides ({})", first.to_text());
    } else {
        let _ = writeln!(text, "{}", work.join("; "));
    }
    if !summary.same_work {
        text.push_str("WARNING: the sides did not do the same work; the changes above mean nothing\n");
    }
    text += &failures(setup);
    for warning in &summary.warnings {
        let _ = writeln!(text, "note: {warning}");
    }
    match summary.oracle.checked {
        0 => text.push_str("oracle: off (--verify switches it on)\n"),
        checked => {
            let (checked, bad) = (human::grouped(checked), human::grouped(summary.oracle.violations));
            let _ = writeln!(text, "oracle: {checked} loads checked, {bad} violations");
        }
    }
    if setup.compares() {
        text.push_str(&about_changes(summary));
    }
    text
}

/// A line for each profile that failed.
pub fn failures(setup: &Setup) -> String {
    let line = |(profile, why): (&String, &String)| {
        format!("{profile} FAILED: {}\n", why.lines().next().unwrap_or_default())
    };
    setup.failed.iter().map(line).collect()
}

/// What the changes, the stars and the number of runs mean.
fn about_changes(summary: &Summary) -> String {
    if summary.setup.runs == 1 {
        let text = "change: + is better, - is worse; one run has no interval";
        return match summary.stopped_by {
            Some(StoppedBy::Runs) => format!("{text} (--runs {FIRST_LOOK})\n"),
            _ => format!("{text}\n{}", about_runs(summary)),
        };
    }
    let mut text = String::from(
        "change: + is better, - is worse; * = the 95% interval of the difference over the runs excludes no change\n",
    );
    if summary.rows.iter().any(|row| row.better.is_none() && row.ratio.is_some()) {
        text.push_str("xN: N times the base, where neither more nor less is better\n");
    }
    // A metric that is the same in all runs gets no star by luck.
    let tried = summary.rows.iter().filter(|row| row.diff_ci.is_some_and(|ends| ends != [0.0, 0.0])).count();
    let _ = writeln!(
        text,
        "stars: of {} about {:.1} would have one by luck alone if no profile changed anything",
        human::plural(tried as u64, "change", "changes"),
        tried as f64 * (1.0 - summary.confidence)
    );
    text + &about_contradictions(summary) + &about_runs(summary)
}

/// Where the bootstrap has another opinion of a star.
fn about_contradictions(summary: &Summary) -> String {
    let told = |row: &SummaryRow| {
        let [low, high] = row.contradiction()?;
        Some(format!("{} ({}) [{low:+.2}, {high:+.2}]", row.metric, row.profile))
    };
    let told: Vec<String> = summary.rows.iter().filter_map(told).collect();
    match &told[..] {
        [] => String::new(),
        told => format!(
            "bootstrap: its interval (BCa), which takes no distribution for normal, says otherwise of {}\n",
            told.join(", ")
        ),
    }
}

/// Why there are no more runs.
fn about_runs(summary: &Summary) -> String {
    let rule = "a quarter of the change or 5 %";
    let wide: Vec<String> = summary
        .rows
        .iter()
        .filter(|row| !row.is_precise())
        .map(|row| format!("{} ({})", row.metric, row.profile))
        .collect();
    let wide = match &wide[..] {
        [] => format!("fewer than {FIRST_LOOK}, of which intervals hold the true value too seldom"),
        wide => format!("wider than {rule}: {}", wide.join(", ")),
    };
    let main = MAIN.join(" and ");
    let (runs, limit) = (summary.setup.runs, summary.runs_limit);
    match summary.stopped_by {
        Some(StoppedBy::Interval) => {
            format!("runs: enough; the intervals of {main} are narrower than {rule}\n")
        }
        Some(StoppedBy::Time) => format!("runs: {runs} in the time of --time; {wide}\n"),
        Some(StoppedBy::Interrupt) => format!("runs: {runs} of {limit}, then interrupted; {wide}\n"),
        Some(StoppedBy::Runs) | None => format!("runs: the limit is {limit} (--runs); {wide}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::tests::words;
    use crate::summary::tests::{setup, three_seeds};

    #[test]
    fn the_baseline_comes_first_and_then_value_change_and_interval() {
        let text = render(&Summary::of(setup(&["a", "b"]), &three_seeds(), 0.0, false), 200);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "program  zipf:256M");
        assert_eq!(lines[2], "memory   128 MiB (50 % of the program's 256 MiB)");
        assert_eq!(lines[3], "runs     3 (seeds 1..3)");
        let words = |start| words(&text, start);
        assert_eq!(words("metric"), ["metric", "a", "b", "change", "95%", "interval"]);
        assert_eq!(words("run_time")[..5], ["run_time", "1.00", "s", "902", "ms"]);
        assert_eq!(words("run_time")[5], "+10.00%*");
        assert_eq!(words("pgmajfault")[1..4], ["40", "0", "+100.00%*"]);
        assert_eq!(words("pgscan_direct")[1..], ["0", "5", "n/a*", "n/a"]);
        assert_eq!(words("pgscan_kswapd")[1..4], ["0", "0", "+0.00%"]);
        assert!(text.contains("work done: the same on all sides (3,000 accesses, 30 progress, 6 tasks)"));
        assert!(text.contains("oracle: 24 loads checked, 0 violations"));
        assert!(text.contains("+ is better, - is worse"));
        assert!(lines.iter().all(|line| *line == line.trim_end()));
    }

    #[test]
    fn different_work_is_warned_of() {
        let mut runs = three_seeds();
        runs[1].work.accesses += 1;
        runs[1].warnings.push("mind the gap".into());
        let text = render(&Summary::of(setup(&["a", "b"]), &runs, 0.0, false), 200);
        assert!(text.contains("WARNING: the sides did not do the same work"));
        assert!(text.contains("note: mind the gap\n"));
        assert!(text.contains("a 3,000 accesses") && text.contains("b 3,001 accesses"));
    }

    #[test]
    fn one_profile_has_values_only() {
        let runs: Vec<_> = three_seeds().into_iter().filter(|run| run.profile == "a").collect();
        let text = render(&Summary::of(setup(&["a"]), &runs, 0.0, false), 200);
        assert!(!text.contains("change") && text.contains("run_time"));
        assert!(text.contains("work done: a 3,000 accesses, 30 progress, 6 tasks"));
    }
}

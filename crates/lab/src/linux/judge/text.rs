//! A comparison as text.

use super::super::twin::Speed;
use super::super::unequal::Unequal;
use super::row::{Agreement, Unjudged};
use super::{Beside, Conditions, Row, Seconds, Work};
use crate::grid::Grid;
use crate::human;
use crate::table::heading;

/// The comparison as text.
pub fn render(result: &Beside, width: usize) -> String {
    let grid = grid(result, width);
    let (judged, missed) = result.judged();
    let mut text = format!(
        "{}profile  {}\n{}\n{}\n",
        heading(&result.setup),
        result.setup.profiles.join(", "),
        conditions(&result.conditions),
        grid
    );
    let Seconds { simulated, linux } = result.seconds;
    text.push_str(&format!(
        "{judged} counts judged, {missed} missed; {linux:.1} s by the guest's clock, {simulated:.1} s by the simulated one\n"
    ));
    let Work { simulated, linux } = result.work;
    text.push_str(&match result.same_work {
        None => format!(
            "work done: Linux ran the program itself, the simulated machine its recording ({})\n",
            simulated.to_text()
        ),
        Some(true) => format!("work done: the same on both ({})\n", simulated.to_text()),
        Some(false) => format!(
            "work done: simulated {}; Linux {}\nWARNING: the machines did not do the same work\n",
            simulated.to_text(),
            linux.to_text()
        ),
    });
    text.extend(result.warnings.iter().map(|warning| format!("note: {warning}\n")));
    text.push_str(
        "error: simulated against Linux; exact = the program alone decides, total = within a tenth or the spread of Linux's boots; \
         too few, noisy (Linux's boots are more than a quarter apart), a repeated count ('is') and timing are not judged; what both \
         have as 0 is left out\n",
    );
    text
}

/// Count by count.
fn grid(result: &Beside, width: usize) -> String {
    let booted = result.rows.iter().any(|row| row.booted.is_some());
    let spreads: Vec<&str> = [(result.boots > 1, "spread"), (result.setup.runs > 1, "of seeds")]
        .into_iter()
        .filter_map(|(shown, heading)| shown.then_some(heading))
        .collect();
    let mut headings = vec!["count", "linux"];
    headings.extend(&spreads);
    headings.push("simulated");
    headings.extend(&spreads);
    headings.extend(booted.then_some("booted"));
    headings.extend(["error", "agreement"]);
    let last = headings.len() - 1;
    let mut grid = Grid::new(headings);
    let of = |boots: Option<f64>, seeds: Option<f64>| {
        let number = |share: Option<f64>| share.map_or("n/a".to_owned(), |share| format!("{share:.1}%"));
        let boots = (result.boots > 1).then(|| number(boots));
        boots.into_iter().chain((result.setup.runs > 1).then(|| number(seeds)))
    };
    for row in result.rows.iter().filter(|row| row.unjudged != Some(Unjudged::Zero)) {
        let mut cells = vec![row.metric.clone(), human::number(row.linux, &row.unit)];
        cells.extend(of(row.linux_spread_pct, row.linux_seeds_pct));
        cells.push(human::number(row.simulated, &row.unit));
        cells.extend(of(row.simulated_spread_pct, row.simulated_seeds_pct));
        cells.extend(row.booted.map(|value| human::number(value, &row.unit)));
        cells.push(row.error_pct.map_or("n/a".to_owned(), human::percent));
        cells.push(verdict(row));
        grid.row(cells);
    }
    grid.render(|column| column == 0 || column == last, width)
}

/// What a row is judged by, or why it is not.
fn verdict(row: &Row) -> String {
    let word = match row.agreement {
        Agreement::Exact => "exact",
        Agreement::Total => "total",
        Agreement::Timing => "timing",
    };
    match (row.unjudged, &row.copy_of) {
        (Some(Unjudged::Copy), Some(of)) => format!("is {of}"),
        (Some(Unjudged::Few), _) => format!("{word}: too few"),
        (Some(Unjudged::Noisy), _) => format!("{word}: noisy"),
        _ if row.missed == Some(true) => format!("{word}: MISSED"),
        _ => word.to_owned(),
    }
}

/// The conditions that both share, in lines.
fn conditions(found: &Conditions) -> String {
    let Conditions {
        kernel,
        cpus,
        pages,
        pages_by_node,
        kernel_pages,
        hidden_pages,
        managed_pages,
        swap,
        speed: Speed { fault_nanos, access_nanos, read_micros, .. },
        ..
    } = found;
    let mut text = format!(
        "linux    {kernel}, {}, {} free pages for the program and {kernel_pages:.0} for the kernel, {managed_pages:.0} managed, {hidden_pages:.0} locked \
         away, \
         {} of swap\n{}",
        human::plural(u64::from(*cpus), "CPU", "CPUs"),
        human::grouped(*pages),
        human::bytes(*swap as f64),
        match &pages_by_node[..] {
            [fast, slow] => format!(
                "nodes    {} pages on the first, {} on the second\n",
                human::grouped(*fast),
                human::grouped(*slow)
            ),
            _ => String::new(),
        }
    );
    text.push_str(&format!(
        "speed    {fault_nanos:.0} ns for a fault on new memory, {access_nanos:.1} ns in user mode for an access, {read_micros:.0} us \
         for a disk's read; the twin is as slow{}\n",
        if found.icount { "; a nanosecond for each instruction" } else { "" }
    ));
    let short = |line: &String| {
        let (file, value) = line.split_once(' ').unwrap_or((line, ""));
        let mut parts = file.rsplit('/');
        let name = parts.next().unwrap_or(file);
        let folder = parts.next().filter(|_| name == "enabled").map(|folder| format!("{folder}/"));
        format!("{}{name}={value}", folder.unwrap_or_default())
    };
    let settings: Vec<String> = found.settings.iter().map(short).collect();
    text.push_str(&format!("settings {}\n", settings.join(" ")));
    if !found.append.is_empty() {
        text.push_str(&format!("kernel   {}\n", found.append));
    }
    if !found.unequal.is_empty() {
        let all: Vec<String> = found.unequal.iter().map(Unequal::to_text).collect();
        text.push_str(&format!("unequal  {}\n", all.join("; ")));
    }
    text
}

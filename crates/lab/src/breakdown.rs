//! Where the time went: kernel work by kind, and input and output by device.

use crate::grid::Grid;
use crate::human;
use crate::record::{CostRecord, RunRecord};
use mm::units::PAGE_SIZE;
use serde::Serialize;
use std::collections::BTreeMap;

/// Kernel work by kind, summed over the runs of one profile.
pub type Costs = BTreeMap<String, CostRecord>;

/// What a block device did, summed over the runs of one profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DeviceIo {
    /// Read requests.
    pub reads: f64,
    /// Bytes read.
    pub read_bytes: f64,
    /// Write requests.
    pub writes: f64,
    /// Bytes written.
    pub written_bytes: f64,
    /// Seconds in which it was busy.
    pub busy: f64,
}

/// Add up the kinds of work that were done.
pub fn costs<'a>(runs: impl IntoIterator<Item = &'a RunRecord>) -> Costs {
    let mut sum = Costs::new();
    for (name, cost) in runs.into_iter().flat_map(|run| &run.costs).filter(|(_, cost)| cost.count > 0) {
        let entry = sum.entry(name.clone()).or_default();
        entry.count += cost.count;
        entry.nanos += cost.nanos;
    }
    sum
}

/// Add up what the devices did; the machine names its metrics `DEVICE_reads` and so on.
pub fn devices<'a>(runs: impl IntoIterator<Item = &'a RunRecord>) -> BTreeMap<String, DeviceIo> {
    type Field = fn(&mut DeviceIo) -> &mut f64;
    const FIELDS: [(&str, Field, f64); 5] = [
        ("_reads", |io| &mut io.reads, 1.0),
        ("_read_pages", |io| &mut io.read_bytes, PAGE_SIZE as f64),
        ("_writes", |io| &mut io.writes, 1.0),
        ("_written_pages", |io| &mut io.written_bytes, PAGE_SIZE as f64),
        ("_busy", |io| &mut io.busy, 1e-9),
    ];
    let mut sum = BTreeMap::<String, DeviceIo>::new();
    for measured in runs.into_iter().flat_map(|run| &run.metrics) {
        for (suffix, field, factor) in FIELDS {
            if let Some(device) = measured.name.strip_suffix(suffix) {
                *field(sum.entry(device.to_owned()).or_default()) += measured.value * factor;
            }
        }
    }
    sum
}

/// How many kinds of work the table shows.
const SHOWN: usize = 10;

/// [`costs_grid`] as text; nothing where no work was done.
pub fn costs_text(costs: &Costs, runs: u32, width: usize) -> String {
    costs_grid(costs, runs).map_or(String::new(), |grid| grid.render(|column| column == 0, width))
}

/// The kinds of work that took most time, as means over the runs, with their shares.
pub fn costs_grid(costs: &Costs, runs: u32) -> Option<Grid> {
    let runs = f64::from(runs.max(1));
    let total: u64 = costs.values().map(|cost| cost.nanos).sum();
    let mut sorted: Vec<(&String, &CostRecord)> = costs.iter().filter(|(_, cost)| cost.nanos > 0).collect();
    if sorted.is_empty() {
        return None;
    }
    sorted.sort_by(|a, b| b.1.nanos.cmp(&a.1.nanos).then(a.0.cmp(b.0)));
    let mut grid = Grid::new(["kernel work", "count", "time", "share"]);
    let mut row = |name: &str, count: Option<u64>, nanos: u64| {
        grid.row([
            name.to_owned(),
            count.map_or(String::new(), |count| human::number(count as f64 / runs, "")),
            human::number(nanos as f64 / runs, "ns"),
            format!("{:.1} %", nanos as f64 * 100.0 / total as f64),
        ]);
    };
    for (name, cost) in sorted.iter().take(SHOWN) {
        row(name, Some(cost.count), cost.nanos);
    }
    if let Some(rest @ [_, ..]) = sorted.get(SHOWN..) {
        let nanos = rest.iter().map(|(_, cost)| cost.nanos).sum();
        row(&format!("{} more", human::plural(rest.len() as u64, "kind", "kinds")), None, nanos);
    }
    row("all", None, total);
    Some(grid)
}

/// [`devices_grid`] as text; nothing without devices.
pub fn devices_text(devices: &BTreeMap<String, DeviceIo>, runs: u32, run_time: f64, width: usize) -> String {
    let grid = devices_grid(devices, runs, run_time);
    grid.map_or(String::new(), |grid| grid.render(|column| column == 0, width))
}

/// What each device did in a run, on average; `run_time` in seconds.
pub fn devices_grid(devices: &BTreeMap<String, DeviceIo>, runs: u32, run_time: f64) -> Option<Grid> {
    let runs = f64::from(runs.max(1));
    // An emulated machine does not know how long its devices were busy.
    let timed = devices.values().any(|io| io.busy > 0.0);
    let mut headings = vec!["device", "reads", "read", "writes", "written"];
    headings.extend(timed.then_some("busy"));
    let mut grid = Grid::new(headings);
    for (name, io) in devices {
        let busy = io.busy / runs;
        let share = if run_time > 0.0 { busy * 100.0 / run_time } else { 0.0 };
        let mut cells = vec![
            name.clone(),
            human::number(io.reads / runs, ""),
            human::bytes(io.read_bytes / runs),
            human::number(io.writes / runs, ""),
            human::bytes(io.written_bytes / runs),
        ];
        cells.extend(timed.then(|| format!("{} ({share:.0} %)", human::number(busy, "s"))));
        grid.row(cells);
    }
    (!devices.is_empty()).then_some(grid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::{measured, run};
    use crate::record::Better;

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    #[test]
    fn the_largest_kinds_come_first_and_shares_add_up() {
        let mut record = run("a", 1, 1, &[]);
        for i in 0..14u64 {
            record.costs.insert(format!("kind{i:02}"), CostRecord { count: i, nanos: i * 100 });
        }
        let costs = costs([&record, &record]);
        assert_eq!(costs.len(), 13, "what was not done is left out");
        assert_eq!(costs["kind13"], CostRecord { count: 26, nanos: 2600 });
        let text = costs_text(&costs, 2, 100);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(words(lines[2]), ["kind13", "13", "1.30", "us", "14.3", "%"]);
        assert_eq!(words(lines[12]), ["3", "kinds", "more", "600", "ns", "6.6", "%"]);
        assert_eq!(words(lines[13]), ["all", "9.10", "us", "100.0", "%"]);
        assert_eq!(costs_text(&Costs::new(), 1, 100), "");
    }

    #[test]
    fn devices_are_found_by_the_names_of_their_metrics() {
        let mut record = run("a", 1, 1, &[]);
        for (name, value) in
            [("nvme0_reads", 3.0), ("nvme0_read_pages", 256.0), ("nvme0_busy", 5e8), ("tlb_misses", 9.0)]
        {
            record.metrics.push(measured(name, value, "", Better::Lower));
        }
        let devices = devices([&record, &record]);
        assert_eq!(devices.len(), 1);
        assert_eq!((devices["nvme0"].reads, devices["nvme0"].read_bytes), (6.0, 2097152.0));
        let text = devices_text(&devices, 2, 2.0, 100);
        assert_eq!(
            words(text.lines().last().unwrap()),
            ["nvme0", "3", "1.00", "MiB", "0", "0", "B", "500", "ms", "(25", "%)"]
        );
    }
}

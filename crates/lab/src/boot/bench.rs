//! How many instructions an operation takes, beside the kernel that everyone has.
//!
//! Under `-icount shift=0,sleep=off` QEMU's time is the count of instructions, of kernel and program together, so the
//! guest reads its clock around an operation and has the count, the same in every run. Linux was measured under the
//! same QEMU with a counter of executed blocks, and by this method, which agrees to a thousandth. That says how much
//! work a kernel does, not how long it takes: caches and interrupts that cross a real bus are not in it.

use super::protocol::Report;
use crate::document::Document;
use crate::grid::Grid;
use crate::human;
use serde::Serialize;

/// Where Linux's figures come from.
pub const SOURCE: &str = "Linux 6.12.117 (Debian's cloud kernel) under QEMU 7.2 without hardware acceleration, measured on \
     2026-11-21; repeatable to 0.1 %";

/// An operation that Linux was measured at.
struct Figure {
    name: &'static str,
    help: &'static str,
    linux: f64,
    /// The goal is Linux's figure divided by this.
    goal: f64,
}

/// Of Linux's two reclaim policies, the figure is that of the cheaper one.
const FIGURES: &[Figure] = &[
    Figure {
        name: "anon_fault",
        help: "first write to an anonymous page, without clearing it",
        linux: 3061.0,
        goal: 3.0,
    },
    Figure { name: "munmap_1", help: "unmap 1 touched page, per call", linux: 7086.0, goal: 3.0 },
    Figure {
        name: "munmap_512",
        help: "unmap 512 touched pages, per page",
        linux: 542_008.0 / 512.0,
        goal: 3.0,
    },
    Figure {
        name: "stream",
        help: "read a mapped file of twice the memory, per page: fault, read-ahead, reclaim",
        linux: 9603.0,
        goal: 3.0,
    },
    Figure {
        name: "reclaim_file",
        help: "reclaim a clean page that is mapped once",
        linux: 4502.0,
        goal: 3.0,
    },
    Figure {
        name: "reclaim_file_mglru",
        help: "the same under MGLRU",
        linux: 4502.0,
        // At most 1,000 instructions.
        goal: 4.502,
    },
    // Linux: all young, a walk that debugfs asks for.
    Figure {
        name: "age_page",
        help: "walk of MGLRU over pages that were all used, per page",
        linux: 210.0,
        goal: 210.0 / 40.0,
    },
    // Linux: a write to vm.compact_memory on a machine that has run for a while, ten pages looked at for each that it
    // moved.
    Figure {
        name: "compact_page",
        help: "compact memory of which every other page is free, per page moved, with its copy",
        linux: 5575.0,
        goal: 5575.0 / 1500.0,
    },
    // The call alone, the initiator's part of a flush, and three CPUs that answer.
    Figure {
        name: "munmap_shared_4",
        help: "unmap 1 page that 4 CPUs may hold, per call, on all CPUs together",
        linux: 7086.0 + 480.0 + 3.0 * 373.0,
        goal: 5.0,
    },
];

/// What an operation is; empty if it is not known.
pub fn help(operation: &str) -> &'static str {
    FIGURES.iter().find(|figure| figure.name == operation).map_or("", |figure| figure.help)
}

/// One operation beside Linux's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The operation.
    pub operation: String,
    /// What it is.
    pub help: String,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Instructions for each unit.
    pub instructions: f64,
    /// Units that were counted.
    pub units: u64,
    /// Linux's instructions; `null` where it was not measured, as the two that follow.
    pub linux: Option<f64>,
    /// Ours by Linux's.
    pub ratio: Option<f64>,
    /// What the ratio should be at most.
    pub goal: Option<f64>,
}

/// The benchmark's result; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bench {
    /// Where Linux's figures come from.
    pub linux_source: String,
    /// Operation by operation, in the guest's order.
    pub rows: Vec<Row>,
}

impl Bench {
    /// From reports, each with its machine's number of CPUs.
    pub fn of<'a>(reports: impl IntoIterator<Item = (u32, &'a Report)>) -> Bench {
        let rows = reports.into_iter().flat_map(|(cpus, report)| {
            report.instructions.iter().map(move |measured| {
                let figure = FIGURES.iter().find(|figure| figure.name == measured.name);
                Row {
                    operation: measured.name.clone(),
                    help: help(&measured.name).to_owned(),
                    cpus,
                    instructions: measured.per,
                    units: measured.units,
                    linux: figure.map(|figure| figure.linux),
                    ratio: figure.map(|figure| measured.per / figure.linux),
                    goal: figure.map(|figure| 1.0 / figure.goal),
                }
            })
        });
        Bench { linux_source: SOURCE.to_owned(), rows: rows.collect() }
    }
}

impl Document for Bench {
    const COMMAND: &'static str = "boot-bench";

    fn text(&self, width: usize) -> String {
        render(self, width)
    }
}

fn render(bench: &Bench, width: usize) -> String {
    let mut grid = Grid::new([
        "operation",
        "CPUs",
        "units",
        "instructions",
        "Linux 6.12",
        "ratio",
        "goal",
        "",
        "what it is",
    ]);
    let whole = |value: f64| human::grouped(value.round() as u64);
    for row in &bench.rows {
        let met = match (row.ratio, row.goal) {
            (Some(ratio), Some(goal)) if ratio <= goal => "met",
            (Some(_), Some(_)) => "missed",
            _ => "",
        };
        let share = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
        grid.row([
            row.operation.clone(),
            row.cpus.to_string(),
            human::grouped(row.units),
            whole(row.instructions),
            row.linux.map_or(String::new(), whole),
            share(row.ratio),
            share(row.goal),
            met.to_owned(),
            row.help.clone(),
        ]);
    }
    format!(
        "{}\ninstructions of kernel and program for each unit, counted by QEMU (-icount)\nLinux: {}\n",
        grid.render(|column| column == 0 || column > 6, width),
        bench.linux_source
    )
}

#[cfg(test)]
mod tests {
    use super::super::protocol::Instructions;
    use super::*;
    use crate::grid::tests::words;

    #[test]
    fn operations_are_shown_with_linuxs() {
        let measured = |name: &str, per| Instructions { name: name.into(), per, units: 1000 };
        let one = Report {
            instructions: vec![measured("anon_fault", 1000.4), measured("new_one", 7.0)],
            ..Report::default()
        };
        let four = Report { instructions: vec![measured("munmap_shared_4", 8000.0)], ..Report::default() };
        let bench = Bench::of([(1, &one), (4, &four)]);
        assert_eq!((bench.rows[0].linux, bench.rows[1].linux, bench.rows[2].cpus), (Some(3061.0), None, 4));
        assert!(bench.rows[2].ratio > bench.rows[2].goal);
        let text = render(&bench, 200);
        assert_eq!(
            words(&text, "anon_fault")[..8],
            ["anon_fault", "1", "1,000", "1,000", "3,061", "0.33", "0.33", "met"]
        );
        assert_eq!(words(&text, "new_one"), ["new_one", "1", "1,000", "7"]);
        assert!(words(&text, "munmap_shared_4").contains(&"missed"));
    }
}

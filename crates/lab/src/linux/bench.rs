//! Instructions of known work on a Linux kernel, counted as the booted machine's are (`pagefold boot --bench`).

use crate::boot::{Report, bench};
use crate::document::Document;
use crate::grid::Grid;
use crate::human;
use serde::Serialize;

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The operation.
    pub operation: String,
    /// What it is.
    pub help: String,
    /// Units that were counted on Linux.
    pub units: u64,
    /// Linux's instructions for each unit.
    pub linux: f64,
    /// The booted machine's; `null` if it did not run.
    pub booted: Option<f64>,
    /// The booted machine's by Linux's.
    pub ratio: Option<f64>,
}

/// The result; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinuxBench {
    /// Version of the kernel.
    pub kernel: String,
    /// Operation by operation, in the guest's order.
    pub rows: Vec<Row>,
}

impl LinuxBench {
    /// From what Linux's guest has reported, and the booted machine.
    pub fn of(kernel: &str, linux: &Report, booted: Option<&Report>) -> LinuxBench {
        let ours = |name: &str| {
            let found = booted?.instructions.iter().find(|ours| ours.name == name)?;
            Some(found.per)
        };
        let rows = linux.instructions.iter().map(|measured| {
            let booted = ours(&measured.name);
            Row {
                operation: measured.name.clone(),
                help: bench::help(&measured.name).to_owned(),
                units: measured.units,
                linux: measured.per,
                booted,
                ratio: booted.map(|booted| booted / measured.per),
            }
        });
        LinuxBench { kernel: kernel.to_owned(), rows: rows.collect() }
    }
}

impl Document for LinuxBench {
    const COMMAND: &'static str = "linux-bench";

    fn text(&self, width: usize) -> String {
        let mut grid = Grid::new(["operation", "units", "Linux", "booted", "ratio", "what it is"]);
        let whole = |value: f64| human::grouped(value.round() as u64);
        for row in &self.rows {
            grid.row([
                row.operation.clone(),
                human::grouped(row.units),
                whole(row.linux),
                row.booted.map_or(String::new(), whole),
                row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")),
                row.help.clone(),
            ]);
        }
        format!(
            "{}\ninstructions of kernel and program for each unit, counted by QEMU (-icount)\nLinux {}\n",
            grid.render(|column| column == 0 || column == 5, width),
            self.kernel
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::protocol::Instructions;

    #[test]
    fn operations_are_compared_by_name() {
        let report = |measured: &[(&str, f64)]| Report {
            instructions: measured
                .iter()
                .map(|&(name, per)| Instructions { name: name.into(), per, units: 64 })
                .collect(),
            ..Report::default()
        };
        let linux = report(&[("anon_fault", 3000.0), ("age_page", 210.0)]);
        let booted = report(&[("munmap_1", 5.0), ("anon_fault", 1000.0)]);
        let bench = LinuxBench::of("6.12", &linux, Some(&booted));
        let found: Vec<_> = bench.rows.iter().map(|row| (&row.operation[..], row.booted)).collect();
        assert_eq!(found, [("anon_fault", Some(1000.0)), ("age_page", None)]);
        let text = bench.text(100);
        assert!(text.contains("0.33") && text.contains("first write to an anonymous page"), "{text}");
        assert_eq!(LinuxBench::of("6.12", &linux, None).rows[0].ratio, None);
    }
}

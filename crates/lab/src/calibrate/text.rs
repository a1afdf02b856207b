//! The result for people.

use super::Calibration;
use super::quantity::{Row, State, WIDEST};
use crate::grid::Grid;
use crate::human;
use std::fmt::Write;

/// The table and what to know of it.
pub fn render(calibration: &Calibration, width: usize) -> String {
    let mut text = format!("machine  {}\nbase     {}\n\n", system(calibration), calibration.base);
    let mut grid = Grid::new(["what", "unit", "median", "95% interval", &calibration.base, "key"]);
    grid.keys(1);
    for row in &calibration.rows {
        grid.row(cells(row));
    }
    text += &grid.render(|column| matches!(column, 0 | 1 | 5), width);
    text += "\n(key): only a part of what the key is computed from\n";
    for (state, rows) in left_out(calibration) {
        let _ = writeln!(text, "{state}: {rows}");
    }
    text += &slow().map(|note| format!("note: {note}\n")).unwrap_or_default();
    if calibration.is_virtual {
        text += "note: in a virtual machine; interrupts, faults and walks of page tables take what its hypervisor adds, and \
                 other machines on the same computer disturb\n";
    }
    text
}

/// What is wrong with the times of a build for tests.
pub fn slow() -> Option<&'static str> {
    let note = "this build of pagefold is not optimised, and its times are too long; measure with cargo run --release";
    cfg!(debug_assertions).then_some(note)
}

/// The machine that was measured, with its system.
pub fn system(calibration: &Calibration) -> String {
    let kind = if calibration.is_virtual { ", a virtual machine" } else { "" };
    format!("{}{kind}; Linux {}", machine(calibration), calibration.kernel)
}

/// Its CPUs.
pub fn machine(calibration: &Calibration) -> String {
    format!("{}, {}", calibration.cpu, human::plural(calibration.cpus as u64, "CPU", "CPUs"))
}

/// Rows that are not in the file, with the reason.
pub fn left_out(calibration: &Calibration) -> Vec<(String, String)> {
    let named = |row: &&Row| match &row.why {
        Some(why) => format!("{} ({why})", row.quantity.what),
        None => row.quantity.what.to_owned(),
    };
    let of = |state: State| {
        let rows: Vec<String> =
            calibration.rows.iter().filter(|row| row.state == state).map(|row| named(&row)).collect();
        rows.join(", ")
    };
    let unstable = format!("not stable (interval wider than {:.0} % of the median)", WIDEST * 100.0);
    let states = [(unstable, of(State::Unstable)), ("not measured".to_owned(), of(State::Missing))];
    states.into_iter().filter(|(_, rows)| !rows.is_empty()).collect()
}

fn cells(row: &Row) -> [String; 6] {
    let quantity = &row.quantity;
    let shown = |value: f64| match quantity.unit {
        "bytes" => human::bytes(value),
        _ => digits(value),
    };
    let interval = match row.interval {
        Some([low, high]) => format!("[{}, {}]", digits(low), digits(high)),
        None => String::new(),
    };
    let key = quantity.key.strip_prefix("costs.").unwrap_or(&quantity.key);
    [
        quantity.what.to_owned(),
        if quantity.unit == "bytes" { String::new() } else { quantity.unit.to_owned() },
        row.median.map_or("n/a".to_owned(), shown),
        interval,
        row.base.map_or("n/a".to_owned(), shown),
        if quantity.part { format!("({key})") } else { key.to_owned() },
    ]
}

/// A number with about three significant digits, without a prefix.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    if size >= 99.95 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::calibrate::quantity::{Estimate, Quantity};

    #[test]
    fn table_says_what_is_written_and_what_is_not() {
        let row = |what, estimate| {
            let mut row = Row::new(Quantity::new(what, "ns", "costs.work.syscall", "a method"), estimate);
            row.base = Some(178.57);
            row
        };
        let estimate = |median, interval| Ok(Estimate { median, interval: Some(interval), rounds: 9 });
        let calibration = Calibration {
            date: "2026-11-29".into(),
            kernel: "6.18".into(),
            cpu: "A CPU".into(),
            cpus: 1,
            is_virtual: true,
            base: "laptop".into(),
            seconds: 20.0,
            rows: vec![
                row("call", estimate(155.1, [150.0, 160.2])),
                row("fault", estimate(100.0, [80.0, 120.0])),
                row("flush", Err("one CPU".into())),
            ],
            memory: [0; 3],
        };
        let text = render(&calibration, 100);
        assert!(
            text.starts_with("machine  A CPU, 1 CPU, a virtual machine; Linux 6.18\nbase     laptop\n"),
            "{text}"
        );
        for expected in [
            "call   ns       155    [150, 160]     179  work.syscall\n",
            "(interval wider than 20 % of the median): fault\n",
            "not measured: flush (one CPU)\n",
            "note: in a virtual machine",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, expected) in
            [(1234.5, "1234"), (99.96, "100"), (12.34, "12.3"), (2.944, "2.94"), (64.0, "64")]
        {
            assert_eq!(digits(value), expected);
        }
    }
}

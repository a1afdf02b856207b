//! An explanation in sentences, and the table that proves them.

use super::cause::Cause;
use super::{Both, CauseRow, Explanation};
use crate::grid::Grid;
use crate::human;
use crate::table::heading;
use std::fmt::Write;

/// The most causes that get a sentence, and the share of the largest cause's difference that one must have for it.
const SENTENCES: usize = 6;
const WORTH_IT: f64 = 0.05;
/// The same of rows by themselves; the first few have one in any case.
const ROWS: usize = 15;
const WORTH_A_ROW: f64 = 0.02;
const FIRST_ROWS: usize = 5;

/// The explanation in sentences, without those that the head of the table has.
pub(super) fn sentences(of: &Explanation) -> Vec<String> {
    let mut sentences = vec![difference(of)];
    if of.run_time.diff == 0.0 {
        return sentences;
    }
    let large = of.causes.iter().take_while(|row| is_large(of, row, WORTH_IT)).take(SENTENCES);
    sentences.extend(large.enumerate().map(|(at, row)| sentence(at + 1, row)));
    let [base, with] = of.at_work.map(|tasks| format!("{tasks:.2}"));
    let tasks = if base == with {
        String::new()
    } else {
        format!("; {with} tasks were at work at once instead of {base}")
    };
    let rest = signed(of.unexplained.diff);
    sentences.push(match of.unexplained.share_pct {
        None => format!("Not explained: {rest}{tasks}."),
        share => format!("Not explained: {} of the difference ({rest}{tasks}).", percent(share)),
    });
    sentences
}

/// Whether a cause makes at least this share of what the largest does.
fn is_large(of: &Explanation, row: &CauseRow, share: f64) -> bool {
    let largest = of.causes.first().map_or(0.0, |row| row.time.diff.abs());
    row.time.diff != 0.0 && row.time.diff.abs() >= largest * share
}

/// What is to be explained.
fn difference(of: &Explanation) -> String {
    let Both { base, with, diff, diff_ci } = of.run_time;
    let [name_base, name_with] = [0, 1].map(|side| of.setup.profiles.get(side).map_or("", |name| name));
    if diff == 0.0 {
        return format!("{name_with} takes as long as {name_base}: {}.", time(base));
    }
    let relative = if base > 0.0 { format!(" ({:.2} %)", diff.abs() * 100.0 / base) } else { String::new() };
    let interval = match diff_ci {
        Some(ends) => format!(", difference {}", interval(ends)),
        None => String::new(),
    };
    let chance = if of.run_time.may_be_chance() {
        " The difference may be chance, so no shares of it are told."
    } else {
        ""
    };
    format!(
        "{name_with} takes {}{relative} {} than {name_base}: {} instead of {}{interval}.{chance}",
        time(diff.abs()),
        if diff > 0.0 { "longer" } else { "less" },
        time(with),
        time(base),
    )
}

/// What a cause does to the difference, with the number of its row.
fn sentence(number: usize, row: &CauseRow) -> String {
    let what = if row.what.is_empty() { String::new() } else { format!(" ({})", row.what) };
    let [base, with] = [row.base_count, row.with_count].map(|count| human::number(count, ""));
    let counts = match row.base_count + row.with_count {
        0.0 => String::new(),
        _ if base == with => format!(" (count {base} on both sides)"),
        _ => format!(" (count {with} instead of {base})"),
    };
    let chance = if row.time.may_be_chance() { ", which may be chance" } else { "" };
    let phase = match mostly(row) {
        None => String::new(),
        Some(phase) => format!(", most of it in phase {phase} of {}", row.phases.len()),
    };
    let share = match row.share_pct {
        None => String::new(),
        share => format!(": {} of the difference", percent(share)),
    };
    format!(
        "{}{what} takes {} {}{counts}{share}{phase}{chance} [{number}].",
        Cause::subject(&row.kind),
        time(row.time.diff.abs()),
        if row.time.diff > 0.0 { "more" } else { "less" },
    )
}

/// The phase, from 1, that has more than half of a cause's difference.
fn mostly(row: &CauseRow) -> Option<usize> {
    let most = row.phases.iter().position(|diff| diff / row.time.diff > 0.5)?;
    Some(most + 1)
}

/// Sentences and tables.
pub(super) fn render(of: &Explanation, width: usize) -> String {
    let mut text = heading(&of.setup);
    if let Some(machine) = &of.setup.with_machine {
        let _ = writeln!(text, "with     machine {machine}");
    }
    if let Some(memory) = of.setup.with_memory {
        let _ = writeln!(text, "with     memory {}", human::bytes(memory as f64));
    }
    for area in &of.setup.with_swap {
        let _ = writeln!(text, "with     swap {area}");
    }
    text.push('\n');
    for sentence in &of.sentences {
        text.push_str(&human::wrapped(sentence, 0, width));
    }
    let _ = write!(text, "\n{}\n{}{}", causes(of, width), phases(of, width), daemons(of, width));
    text.push('\n');
    let [base, with] = of.at_work;
    let _ = writeln!(
        text,
        "times of causes are parts of the run time: the tasks' time by {base:.2}, the tasks at work at once in the base (with: \
         {with:.2})"
    );
    text.extend(of.warnings.iter().map(|warning| format!("note: {warning}\n")));
    text
}

fn causes(of: &Explanation, width: usize) -> String {
    let mut grid =
        Grid::new(["row", "cause", "base", "with", "difference", "share", "95% interval", "times"]);
    let row = |grid: &mut Grid, [number, name, share, counts]: [String; 4], time_of: &Both| {
        grid.row([
            number,
            name,
            time(time_of.base),
            time(time_of.with),
            signed(time_of.diff),
            share,
            time_of.diff_ci.map_or("n/a".to_owned(), interval),
            counts,
        ]);
    };
    let large = of.causes.iter().take_while(|row| is_large(of, row, WORTH_A_ROW)).count();
    let (shown, rest) = of.causes.split_at(large.clamp(FIRST_ROWS, ROWS).min(of.causes.len()));
    for (at, cause) in shown.iter().enumerate() {
        let words = [(at + 1).to_string(), cause.name(), percent(cause.share_pct), cause.counts()];
        row(&mut grid, words, &cause.time);
    }
    let mut plain = |name: String, base: f64, with: f64, diff: f64| {
        let share = of.run_time.share(diff);
        grid.row([
            String::new(),
            name,
            time(base),
            time(with),
            signed(diff),
            percent(share),
            String::new(),
            String::new(),
        ]);
    };
    if !rest.is_empty() {
        let sum = |of: fn(&Both) -> f64| rest.iter().map(|row| of(&row.time)).sum();
        plain(
            human::plural(rest.len() as u64, "smaller cause", "smaller causes"),
            sum(|time| time.base),
            sum(|time| time.with),
            sum(|time| time.diff),
        );
    }
    let sum = |of_time: fn(&Both) -> f64| -> f64 { of.causes.iter().map(|row| of_time(&row.time)).sum() };
    let [base, with] = [of.run_time.base - sum(|time| time.base), of.run_time.with - sum(|time| time.with)];
    plain("not explained".to_owned(), base, with, of.unexplained.diff);
    let run_time = ["", "run time", &percent(of.run_time.share(of.run_time.diff)), ""].map(str::to_owned);
    row(&mut grid, run_time, &of.run_time);
    grid.keys(1);
    grid.join([2, 3, 4, 5, 7]);
    grid.render(|column| column <= 1, width)
}

/// How the differences of the largest causes arise from phase to phase; empty if there is one.
fn phases(of: &Explanation, width: usize) -> String {
    let count = of.causes.iter().map(|row| row.phases.len()).max().unwrap_or(0);
    if count == 0 {
        return String::new();
    }
    let shown = &of.causes[..FIRST_ROWS.min(of.causes.len())];
    let of_rows = (1..=shown.len()).map(|number| format!("[{number}]"));
    let mut grid = Grid::new(["phase".to_owned(), "all causes".to_owned()].into_iter().chain(of_rows));
    for phase in 0..count {
        let all: f64 = of.causes.iter().map(|row| row.phases[phase]).sum();
        let cells = shown.iter().map(|row| signed(row.phases[phase]));
        grid.row([(phase + 1).to_string(), signed(all)].into_iter().chain(cells));
    }
    grid.render(|column| column == 0, width) + "\n"
}

fn daemons(of: &Explanation, width: usize) -> String {
    let mut grid = Grid::new(["CPU time besides the tasks'", "base", "with", "difference", "95% interval"]);
    for (name, both) in of.daemons.iter().filter(|(_, both)| both.base + both.with > 0.0) {
        let interval = both.diff_ci.map_or("n/a".to_owned(), interval);
        grid.row([name.clone(), time(both.base), time(both.with), signed(both.diff), interval]);
    }
    grid.render(|column| column == 0, width)
}

fn time(nanos: f64) -> String {
    human::number(nanos, "ns")
}

fn signed(nanos: f64) -> String {
    format!("{}{}", if nanos > 0.0 { "+" } else { "" }, time(nanos))
}

fn interval([low, high]: [f64; 2]) -> String {
    format!("[{}, {}]", signed(low), signed(high))
}

fn percent(share: Option<f64>) -> String {
    // Adding zero turns -0 into 0.
    share.map_or("n/a".to_owned(), |share| format!("{:.1} %", (share * 10.0).round() / 10.0 + 0.0))
}

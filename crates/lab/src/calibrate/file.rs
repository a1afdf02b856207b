//! The machine file: the base's description with what was measured in its place, and sources that say which is which.

use super::base::{Base, find};
use super::quantity::Row;
use super::{Calibration, text};
use crate::document::{Origin, SCHEMA};
use crate::error::{Error, Result};
use crate::human;
use toml::{Table, Value};

/// Keys of numbers that have no fraction.
const WHOLE: [&str; 2] = ["node.0.cpus", "tlb.lines"];
/// Significant digits of the others.
const DIGITS: i32 = 4;
/// Keys of a table whose numbers its source is not for.
const ABOUT: [&str; 3] = ["source", "name", "loaded"];
/// The most ways of a level of the TLB.
const MOST_WAYS: u32 = 16;
/// The width of comments.
const COLUMNS: usize = 98;
/// What a source begins with that is not of a measurement.
const NOT_MEASURED: &str = "not measured";

/// The text of the file.
pub fn render(calibration: &Calibration, base: &Base) -> Result<String> {
    let mut table = base.table().clone();
    say_where(&mut table, base.name());
    let written: Vec<&Row> = calibration.rows.iter().filter(|row| row.written).collect();
    for row in &written {
        set(&mut table, row, calibration);
    }
    for place in ["cpu", "tlb", "node.0"].map(str::to_owned).into_iter().chain(devices(&table)) {
        name_sources(&mut table, &place, &written, calibration);
    }
    let description = format!("{}, measured {}", text::machine(calibration), calibration.date);
    table.insert("description".into(), description.into());
    let body = toml::to_string(&table)
        .map_err(|error| Error::Failed(format!("cannot write the machine as TOML: {error}")))?;
    Ok(heading(calibration) + &body)
}

/// Comments above the description.
fn heading(calibration: &Calibration) -> String {
    let Origin { version, commit, .. } = Origin::here(SCHEMA);
    let Calibration { date, base, seconds, .. } = calibration;
    let mut heading = format!(
        "# Measured by pagefold calibrate {version} ({commit}) on {date}, rounds of {seconds} s in all:\n\
         # {}.\n\
         # Each source says how, with the 95 % interval of the median. What is not measured is as in {base}: so say\n\
         # sources; what has none, and costs that are not named here, too.\n",
        text::system(calibration)
    );
    let left_out = text::left_out(calibration).into_iter().map(|(state, rows)| format!("{state}: {rows}"));
    for line in left_out.chain(text::slow().map(str::to_owned)) {
        heading += &human::wrapped(&line, 0, COLUMNS)
            .lines()
            .fold(String::new(), |all, line| all + "# " + line + "\n");
    }
    heading
}

/// The places of devices.
fn devices(table: &Table) -> Vec<String> {
    let count = table.get("device").and_then(Value::as_array).map_or(0, Vec::len);
    (0..count).map(|number| format!("device.{number}")).collect()
}

/// Have all sources say that they are the base's.
fn say_where(table: &mut Table, base: &str) {
    for (key, value) in table.iter_mut() {
        match value {
            Value::String(source) if key == "source" && !source.starts_with(NOT_MEASURED) => {
                *source = format!("{NOT_MEASURED}, from {base}: {source}");
            }
            Value::Table(inner) => say_where(inner, base),
            Value::Array(entries) => {
                entries.iter_mut().filter_map(Value::as_table_mut).for_each(|inner| say_where(inner, base));
            }
            _ => {}
        }
    }
}

/// Where a number is from.
fn source(row: &Row, calibration: &Calibration) -> String {
    let (date, method, unit) = (&calibration.date, row.quantity.method, row.quantity.unit);
    match row.interval {
        None => format!("read {date}: {method}"),
        Some([low, high]) => format!(
            "measured {date} on {}, Linux {}: {method}; median of {} rounds, 95 % interval {} to {}{}{unit}",
            calibration.cpu,
            calibration.kernel,
            row.rounds,
            text::digits(low),
            text::digits(high),
            if unit.is_empty() { "" } else { " " }
        ),
    }
}

/// Put a row's number in its place.
fn set(table: &mut Table, row: &Row, calibration: &Calibration) {
    let Some(median) = row.median else { return };
    let key = &row.quantity.key;
    let number = match WHOLE.contains(&&**key) {
        true => Value::Integer(median.round() as i64),
        false => Value::Float(rounded(median)),
    };
    match key.split('.').collect::<Vec<_>>()[..] {
        ["costs", ref path @ ..] => {
            let unit = if path == ["kernel_ipc"] { "value" } else { "ns" };
            let cost = Table::from_iter([
                (unit.to_owned(), number),
                ("source".to_owned(), source(row, calibration).into()),
            ]);
            let (last, above) = path.split_last().expect("a cost has a name");
            let costs = above.iter().fold(inner(table, "costs"), |table, step| inner(table, step));
            costs.insert((*last).to_owned(), cost.into());
        }
        ["node", _, "memory"] => put(table, key, ranges(calibration.memory)),
        ["tlb", level, "entries"] => {
            let known = find(table, &format!("tlb.{level}.ways")).and_then(Value::as_integer).unwrap_or(1);
            let (entries, ways) = geometry(median.round() as u32, known as u32);
            put(table, key, Value::Integer(entries.into()));
            put(table, &format!("tlb.{level}.ways"), Value::Integer(ways.into()));
        }
        _ => put(table, key, number),
    }
}

/// The table with this key, which is added if it is not there.
fn inner<'a>(table: &'a mut Table, key: &str) -> &'a mut Table {
    let entry = table.entry(key).or_insert_with(|| Table::new().into());
    entry.as_table_mut().expect("the base was read as a machine, so this is a table")
}

/// Replace the value at a key that the base has.
fn put(table: &mut Table, key: &str, value: Value) {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let mut place = table.get_mut(first);
    for step in rest.split('.').filter(|step| !step.is_empty()) {
        place = match place {
            Some(Value::Array(entries)) => step.parse::<usize>().ok().and_then(|at| entries.get_mut(at)),
            Some(Value::Table(inner)) => Some(inner.entry(step).or_insert(Value::Integer(0))),
            _ => None,
        };
    }
    if let Some(place) = place {
        *place = value;
    }
}

/// Ranges of memory, in whole MiB.
fn ranges(memory: [u64; 3]) -> Value {
    let range = |(bytes, zone): (u64, &str)| {
        let size = format!("{}M", bytes >> 20);
        Value::from(Table::from_iter([("size".to_owned(), size.into()), ("zone".to_owned(), zone.into())]))
    };
    let zones = memory.into_iter().zip(["dma32", "normal", "movable"]);
    zones.filter(|(bytes, _)| bytes >> 20 > 0).map(range).collect::<Vec<_>>().into()
}

/// Entries, and ways as near as possible to the known ones for which the number of sets is a power of two.
fn geometry(entries: u32, known: u32) -> (u32, u32) {
    let entries = entries.max(1);
    let odd = entries >> entries.trailing_zeros();
    let ways = (0..=entries.trailing_zeros()).map(|power| odd << power).filter(|&ways| ways <= MOST_WAYS);
    let apart = |ways: &u32| (f64::from(*ways) / f64::from(known.max(1))).ln().abs();
    let nearest = ways.min_by(|a, b| apart(a).total_cmp(&apart(b)));
    (entries, nearest.unwrap_or(entries))
}

/// Have the source of a table say of each key where it is from.
fn name_sources(table: &mut Table, place: &str, written: &[&Row], calibration: &Calibration) {
    let prefix = format!("{place}.");
    let within = |row: &Row| row.quantity.key.strip_prefix(&prefix).map(str::to_owned);
    let measured: Vec<(String, &Row)> = written.iter().filter_map(|row| Some((within(row)?, *row))).collect();
    let Some(Value::Table(here)) = find(table, place) else { return };
    let (Some(Value::String(base)), false) = (here.get("source"), measured.is_empty()) else { return };
    let mut said: Vec<String> =
        measured.iter().map(|(key, row)| format!("{key}: {}", source(row, calibration))).collect();
    let is_base = |key: &&str| {
        let first = |(own, _): &(String, &Row)| own.split('.').next() == Some(*key);
        !ABOUT.contains(key) && !measured.iter().any(first)
    };
    let others: Vec<&str> = here.keys().map(String::as_str).filter(is_base).collect();
    if !others.is_empty() {
        said.push(format!("{}: {base}", others.join(", ")));
    }
    put(table, &format!("{place}.source"), said.join("; ").into());
}

/// A number with a few significant digits.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return value;
    }
    let digits = (DIGITS - 1 - value.abs().log10().floor() as i32).max(0);
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests;

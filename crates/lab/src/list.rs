//! The names that commands accept, generated from the tables that declare them.

use crate::engine::{self, Machine};
use crate::error::Result;
use crate::grid::Grid;
use crate::human::wrapped;
use crate::{metrics, profile, reproduce};
use mm::event::Event;
use mm::knobs::Knob;
use mm::stat::Stat;
use serde_json::{Map, Value};

/// A list with named columns.
#[derive(Debug)]
pub struct Listing {
    columns: &'static [&'static str],
    rows: Vec<Vec<Value>>,
}

impl Listing {
    fn new(columns: &'static [&'static str], rows: impl IntoIterator<Item = Vec<Value>>) -> Listing {
        Listing { columns, rows: rows.into_iter().collect() }
    }

    /// For people.
    pub fn to_text(&self, width: usize) -> String {
        // The source of a number takes sentences: it is shown under the row, not beside it.
        let shown = self.columns.len() - usize::from(self.columns.last() == Some(&"source"));
        let mut grid = Grid::new(self.columns[..shown].iter().copied());
        for row in &self.rows {
            grid.row(shown_cells(&row[..shown]));
        }
        let is_text = |column: usize| self.rows.iter().all(|row| row[column].is_string());
        let text = grid.render(is_text, usize::MAX);
        let mut lines = text.lines();
        let rule = text.lines().nth(1).unwrap_or_default();
        let help_at = rule.rfind(' ').map_or(0, |at| at + 1);
        let mut out: String =
            lines.by_ref().take(2).map(|line| format!("{}\n", clipped(line, width))).collect();
        for (line, row) in lines.zip(&self.rows) {
            out.push_str(&folded(line, help_at, width));
            let below = row.get(shown).and_then(Value::as_str).unwrap_or_default();
            out.push_str(&wrapped(below, 6, width));
        }
        out
    }

    /// The names of the rows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(|row| row[0].as_str())
    }

    /// Whether a row has this name.
    pub fn has(&self, name: &str) -> bool {
        self.rows.iter().any(|row| row[0] == name)
    }

    /// For documents: a table of Markdown.
    pub fn to_markdown(&self) -> String {
        let cells = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let text = |value: &Value| match value {
            Value::String(text) => text.replace('|', "\\|"),
            other => other.to_string(),
        };
        let first_as_code = |row: &Vec<Value>| {
            let name = format!("`{}`", text(&row[0]));
            cells(std::iter::once(name).chain(row[1..].iter().map(text)).collect())
        };
        let head = cells(self.columns.iter().map(|&column| column.to_owned()).collect());
        let rule = format!("|{}\n", " --- |".repeat(self.columns.len()));
        head + &rule + &self.rows.iter().map(first_as_code).collect::<String>()
    }

    /// For scripts: an array of objects.
    pub fn to_json(&self) -> Value {
        let object = |row: &Vec<Value>| {
            let pairs = self.columns.iter().zip(row);
            Value::Object(
                pairs.map(|(key, value)| (key.replace(' ', "_"), value.clone())).collect::<Map<_, _>>(),
            )
        };
        Value::Array(self.rows.iter().map(object).collect())
    }
}

/// The cells of a row as text. The words that a knob takes are shown in its help, since there may be many.
fn shown_cells(row: &[Value]) -> Vec<String> {
    let mut cells: Vec<String> = row
        .iter()
        .map(|value| match value {
            Value::String(text) => text.clone(),
            Value::Number(number) if number.is_f64() => format!("{:.1}", number.as_f64().unwrap_or(0.0)),
            other => other.to_string(),
        })
        .collect();
    let Some((help, rest)) = cells.split_last_mut() else { return cells };
    if let Some(words) = rest.iter_mut().skip(1).find(|cell| cell.contains('|')) {
        *help = format!("{help}: {}", words.replace('|', ", "));
        *words = "word".to_owned();
    }
    cells
}

/// A heading or the rule under it, cut to one line.
fn clipped(line: &str, width: usize) -> String {
    line.chars().take(width).collect::<String>().trim_end().to_owned()
}

/// A row whose last column begins at `help_at`. Text that does not fit continues in that column or below the row.
fn folded(line: &str, help_at: usize, width: usize) -> String {
    if line.chars().count() <= width {
        return format!("{line}\n");
    }
    let (cells, help) = line.split_at_checked(help_at).unwrap_or((line, ""));
    if help_at > width / 2 {
        return format!("{}\n{}", squeezed(cells.trim_end(), width), wrapped(help, 6, width));
    }
    let below = wrapped(help, help_at, width);
    format!("{cells}{}", below.trim_start())
}

/// A line that is too wide, without some of the blanks behind its first cell; if they are not enough, that cell has a
/// line of its own.
fn squeezed(line: &str, width: usize) -> String {
    let over = line.chars().count().saturating_sub(width);
    let (name, rest) = line.split_once("  ").unwrap_or((line, ""));
    let blanks = rest.len() - rest.trim_start().len();
    match over > blanks && blanks < rest.len() {
        true => format!("{name}\n      {}", rest.trim_start()),
        false => format!("{name}  {}", &rest[over.min(blanks)..]).trim_end().to_owned(),
    }
}

/// A row of values.
macro_rules! row {
    ($($cell:expr),*) => { vec![$(Value::from($cell)),*] };
}

/// The lists themselves, with help.
pub fn topics(all: impl Iterator<Item = (String, String)>) -> Listing {
    Listing::new(&["topic", "help"], all.map(|(name, help)| row![name, help]))
}

/// Machines with a name.
pub fn machines() -> Listing {
    Listing::new(&["machine", "help"], engine::machines().into_iter().map(|(name, help)| row![name, help]))
}

/// Profiles.
pub fn profiles() -> Listing {
    Listing::new(&["profile", "help"], profile::PRESETS.iter().map(|preset| row![preset.name, preset.help]))
}

/// Built-in programs.
pub fn programs() -> Listing {
    Listing::new(&["program", "help"], engine::programs().into_iter().map(|(name, help)| row![name, help]))
}

/// Knobs.
pub fn knobs() -> Listing {
    let row = |knob: &Knob| {
        let info = knob.info();
        let unit = if info.words.is_empty() { info.unit.to_owned() } else { info.words.join("|") };
        row![info.name, info.default, info.min, info.max, unit, info.help]
    };
    Listing::new(&["knob", "default", "min", "max", "unit", "help"], Knob::ALL.iter().map(row))
}

/// Counters.
pub fn counters() -> Listing {
    let row = |stat: &Stat| row![stat.name(), if stat.is_level() { "level" } else { "event" }, stat.help()];
    Listing::new(&["counter", "kind", "help"], Stat::ALL.iter().map(row))
}

/// Rows of every result.
pub fn metrics() -> Listing {
    Listing::new(
        &["metric", "unit", "help"],
        metrics::ROWS
            .iter()
            .chain(metrics::BOUND_ROWS)
            .chain(metrics::OPTIMUM_ROWS)
            .chain(metrics::MOVES_ROWS)
            .chain(metrics::PLACEMENT_ROWS)
            .map(|metric| row![metric.name, metric.unit, metric.help]),
    )
}

/// Trace events.
pub fn events() -> Listing {
    Listing::new(&["event", "help"], Event::ALL.iter().map(|event| row![event.name(), event.help()]))
}

/// Published comparisons that can be done again.
pub fn reproductions() -> Listing {
    let row = |one: &reproduce::Reproduction| row![one.name, one.help];
    Listing::new(&["reproduction", "help"], reproduce::ALL.iter().map(row))
}

/// Costs of work on a machine.
pub fn costs(machine: &str) -> Result<Listing> {
    let costs = Machine::find(machine)?.costs();
    Ok(Listing::new(
        &["work", "ns", "help", "source"],
        costs.into_iter().map(|cost| row![cost.name, cost.nanos, cost.help, cost.source]),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::tests::words;
    use crate::human::WIDTH;

    #[test]
    fn lists_have_every_knob_counter_and_event() {
        let knobs = knobs();
        assert_eq!(knobs.rows.len(), Knob::ALL.len());
        let text = knobs.to_text(WIDTH);
        assert_eq!(words(&text, "vm.swappiness")[1..4], ["60", "0", "200"]);
        assert_eq!(counters().rows.len(), Stat::COUNT);
        assert_eq!(events().rows.len(), Event::COUNT);
        assert!(metrics().to_text(WIDTH).contains("run_time"));
        assert!(profiles().to_text(WIDTH).contains("classic"));
    }

    #[test]
    fn source_is_shown_under_its_row() {
        let text = costs(engine::DEFAULT_MACHINE).unwrap().to_text(WIDTH);
        assert!(!text.lines().next().unwrap().contains("source"));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().filter(|line| line.starts_with("      ")).count() > 20);
        assert_eq!(wrapped("a b", 6, WIDTH), "      a b\n");
        assert_eq!(wrapped("", 6, WIDTH), "");
    }

    #[test]
    fn lines_of_lists_are_at_most_100_wide() {
        let costs = costs(engine::DEFAULT_MACHINE).unwrap();
        for listing in [
            machines(),
            profiles(),
            programs(),
            knobs(),
            counters(),
            metrics(),
            events(),
            reproductions(),
            costs,
        ] {
            let text = listing.to_text(WIDTH);
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= WIDTH, "{longest}: {text}");
        }
        let knobs = knobs().to_text(WIDTH);
        let at = knobs.find("reclaim.policy").unwrap();
        assert!(knobs[at..].lines().take(6).collect::<String>().contains("s3-fifo, arc"), "{knobs}");
    }

    #[test]
    fn json_list_is_an_array_of_objects() {
        let json = knobs().to_json();
        let first = json[0].as_object().unwrap();
        assert_eq!(first["knob"], "vm.swappiness");
        assert_eq!(first["default"], 60);
    }
}

//! Levels and rates over time.

use super::parts::table;
use crate::grid::Grid;
use crate::history::{GENERATIONS, History, LISTS, Sample, Watched};
use crate::human;
use crate::plot::{DASHES, legend, round_up, stroke};
use crate::svg::{WIDTH, label, line, paragraph};
use maud::{Markup, PreEscaped, html};
use std::fmt::Write;

/// Left edge of a plot, what is free to its right, and its height.
const PLOT: (f64, f64, f64) = (62.0, 20.0, 150.0);
/// Rows of the table of numbers.
const NUMBERS: usize = 16;

/// What a panel shows of a sample.
enum Shows {
    /// A level.
    Level(fn(&Sample) -> f64),
    /// How much a count grows in a second.
    Rate(fn(&Sample) -> u64),
    /// The share of time, in per cent, that a sum of nanoseconds grows by.
    Share(fn(&Sample) -> u64),
}

/// A quantity that has a panel of its own, with a line for each profile.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    shows: Shows,
}

const QUANTITIES: [Quantity; 7] = [
    Quantity { name: "Free memory", unit: "bytes", shows: Shows::Level(|sample| sample.free as f64) },
    Quantity { name: "Page faults per second", unit: "", shows: Shows::Rate(|sample| sample.faults) },
    Quantity { name: "Major faults per second", unit: "", shows: Shows::Rate(|sample| sample.major) },
    Quantity { name: "Requests to flush per second", unit: "", shows: Shows::Rate(|sample| sample.rounds) },
    Quantity {
        name: "Flushes by request per second",
        unit: "",
        shows: Shows::Rate(|sample| sample.receptions),
    },
    Quantity { name: "CPU time of kswapd", unit: "%", shows: Shows::Share(|sample| sample.kswapd) },
    Quantity { name: "Pressure", unit: "%", shows: Shows::Share(|sample| sample.pressure) },
];

/// Where a policy proposes, what it has decided.
const DECISIONS: [Quantity; 2] = [
    Quantity {
        name: "Folios that the policy let go per second",
        unit: "",
        shows: Shows::Rate(|sample| sample.decisions[0]),
    },
    Quantity {
        name: "Folios that the policy moved instead per second",
        unit: "",
        shows: Shows::Rate(|sample| sample.decisions[1]),
    },
];

/// The quantities of a run with these samples.
fn quantities(samples: &[Sample]) -> impl Iterator<Item = &'static Quantity> {
    let proposed = samples.iter().any(|sample| sample.decisions != [0; DECISIONS.len()]);
    QUANTITIES.iter().chain(DECISIONS.iter().filter(move |_| proposed))
}

impl Quantity {
    /// Its values by time; a rate or a share is of the time since the sample before.
    fn values(&self, samples: &[Sample]) -> Vec<(u64, f64)> {
        let rate = |pair: &[Sample], of: fn(&Sample) -> u64| {
            let [before, now] = [&pair[0], &pair[1]];
            (of(now) - of(before)) as f64 / (now.nanos - before.nanos).max(1) as f64
        };
        let pairs = || samples.windows(2);
        match self.shows {
            Shows::Level(of) => samples.iter().map(|sample| (sample.nanos, of(sample))).collect(),
            Shows::Rate(of) => pairs().map(|pair| (pair[1].nanos, rate(pair, of) * 1e9)).collect(),
            Shows::Share(of) => pairs().map(|pair| (pair[1].nanos, rate(pair, of) * 100.0)).collect(),
        }
    }
}

/// A value for people; shares need no decimals.
fn show(value: f64, unit: &str) -> String {
    if unit == "%" { human::share(value / 100.0) } else { human::number(value, unit) }
}

/// Values of one name by time.
type Line = (String, Vec<(u64, f64)>);

/// The panels of all profiles, and their numbers.
pub(super) fn series(all: &[Watched]) -> Markup {
    let profile = |of: &Watched| of.profile.clone();
    let lines = |quantity: &Quantity| -> Vec<Line> {
        all.iter().map(|one| (profile(one), quantity.values(&one.history.samples))).collect()
    };
    let every: Vec<Sample> = all.iter().flat_map(|one| &one.history.samples).copied().collect();
    html! {
        div.panels {
            @for quantity in &QUANTITIES[..1] { (panel((quantity.name, quantity.unit), Hold::Until, &lines(quantity))) }
            @for one in all { (lists(one, all.len() > 1)) }
            @for quantity in quantities(&every).skip(1) { (panel((quantity.name, quantity.unit), Hold::From, &lines(quantity))) }
        }
        p.faint {
            "Pressure is the share of time in which at least one task waited for memory, as in Linux's \
             /proc/pressure/memory: it reclaimed or compacted, or waited for a page of the working set. CPU time of kswapd is of one CPU; several nodes \
             have a daemon each. Rates and shares are means between two looks at the machine. A CPU may be ahead of a \
             look by what it does in one go, so that the share of a short time may be above 100 %."
        }
        @for one in all {
            details {
                summary { "Numbers over time: " (one.profile) }
                (numbers(one))
            }
        }
    }
}

/// What is on the lists of a profile, or in its generations.
fn lists(of: &Watched, several: bool) -> Markup {
    let samples = &of.history.samples;
    let has_generations = samples.iter().any(|sample| sample.generations != [0; GENERATIONS.len()]);
    let (name, names) = if has_generations { ("Generations", GENERATIONS) } else { ("Lists", LISTS) };
    let values = |at: usize| {
        let value =
            move |sample: &Sample| if has_generations { sample.generations[at] } else { sample.lists[at] };
        samples.iter().map(|sample| (sample.nanos, value(sample) as f64)).collect()
    };
    let lines: Vec<Line> =
        names.iter().enumerate().map(|(at, name)| ((*name).to_owned(), values(at))).collect();
    let title = if several { format!("{name}: {}", of.profile) } else { name.to_owned() };
    panel((&title, "bytes"), Hold::Until, &lines)
}

/// Which part of a line has the value of a point.
#[derive(Clone, Copy, PartialEq)]
enum Hold {
    /// That from the point before: a rate is of the time before its sample.
    From,
    /// That until the next point: a level stays until another is seen.
    Until,
}

/// A panel, and the same in words.
fn panel((title, unit): (&str, &str), hold: Hold, lines: &[Line]) -> Markup {
    let end =
        lines.iter().filter_map(|(_, values)| values.last()).map(|&(nanos, _)| nanos).max().unwrap_or(0);
    let highest = lines.iter().flat_map(|(_, values)| values).map(|&(_, value)| value).fold(0.0, f64::max);
    let (elements, height) = draw((title, unit), (lines, hold), (end.max(1), round_number(highest, unit)));
    let words: Vec<String> = lines.iter().map(|line| in_words(line, unit)).collect();
    let words = format!("{title} over {}. {}", human::number(end as f64, "ns"), words.join(" "));
    html! {
        figure {
            svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(words) font-size="13" {
                (PreEscaped(elements))
            }
        }
    }
}

/// The next number that is round in its unit.
fn round_number(value: f64, unit: &str) -> f64 {
    let power = if unit == "bytes" && value > 1.0 { (value.log2() / 10.0).floor() * 10.0 } else { 0.0 };
    round_up(value / power.exp2()) * power.exp2()
}

fn in_words((name, values): &Line, unit: &str) -> String {
    let show = |value: f64| show(value, unit);
    let value = |at: Option<&(u64, f64)>| at.map_or(0.0, |&(_, value)| value);
    let highest = values.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let lowest = values.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    format!(
        "{name}: first {}, at least {}, at most {} at {}, last {}.",
        show(value(values.first())),
        show(value(lowest)),
        show(value(highest)),
        human::number(highest.map_or(0, |&(nanos, _)| nanos) as f64, "ns"),
        show(value(values.last())),
    )
}

/// The elements of a panel, and its height. `top`: the ends of both axes.
fn draw(
    (title, unit): (&str, &str),
    (lines, hold): (&[Line], Hold),
    (end, top): (u64, f64),
) -> (String, f64) {
    let (left, right, height) = PLOT;
    let mut text = String::new();
    let from = paragraph(&mut text, (12.0, 16.0), ("t", 66), title) - 4.0;
    let (span, bottom) = (WIDTH - left - right, from + height);
    let across = |nanos: u64| left + nanos as f64 / end as f64 * span;
    let down = |value: f64| bottom - value / top * height;
    for mark in 0..=4 {
        let value = top * f64::from(mark) / 4.0;
        line(&mut text, (left, down(value)), (left + span, down(value)), if mark == 0 { "a" } else { "g" });
        label(&mut text, (left - 6.0, down(value) + 4.5), ("end", "f"), &show(value, unit));
    }
    let step = round_up(end as f64 / 5.0);
    let marks = (0..).map(|mark| f64::from(mark) * step).take_while(|&nanos| nanos <= end as f64);
    for nanos in marks {
        let x = across(nanos as u64);
        line(&mut text, (x, bottom), (x, bottom + 4.0), "f");
        label(&mut text, (x, bottom + 17.0), ("middle", "f"), &human::number(nanos, "ns"));
    }
    for (number, (_, values)) in lines.iter().enumerate() {
        stroke(&mut text, number, &path(values, hold, &across, &down));
    }
    let names: Vec<String> = lines.iter().map(|(name, _)| name.clone()).collect();
    let mut end = bottom + 26.0;
    if names.len() > 1 {
        end = legend(&mut text, (left - 50.0, bottom + 38.0, WIDTH), &names);
    }
    (text, end)
}

/// Steps from point to point.
fn path(
    values: &[(u64, f64)],
    hold: Hold,
    across: &impl Fn(u64) -> f64,
    down: &impl Fn(f64) -> f64,
) -> String {
    let mut path = String::new();
    let mut height = String::new();
    for &(nanos, value) in values {
        let (x, y) = (format!("{:.1}", across(nanos)), format!("{:.1}", down(value)));
        let _ = match hold {
            _ if path.is_empty() => write!(path, "M{:.1} {y}H{x}", across(0)),
            _ if height == y => write!(path, "H{x}"),
            Hold::From => write!(path, "V{y}H{x}"),
            Hold::Until => write!(path, "H{x}V{y}"),
        };
        height = y;
    }
    path
}

/// A table of some moments.
fn numbers(of: &Watched) -> Markup {
    let History { samples, .. } = &of.history;
    let shown: Vec<&Quantity> = quantities(samples).collect();
    let mut grid = Grid::new(["time"].into_iter().chain(shown.iter().map(|quantity| quantity.name)));
    let step = samples.len().div_ceil(NUMBERS).max(1);
    // Of each part the last sample, and the first of all.
    let ends = samples.chunks(step).filter_map(<[Sample]>::last);
    let some: Vec<Sample> = samples.iter().take(1).chain(ends).copied().collect();
    let columns: Vec<Vec<(u64, f64)>> = shown.iter().map(|quantity| quantity.values(&some)).collect();
    for at in 1..some.len() {
        let time = human::number(some[at].nanos as f64, "ns");
        let cells = shown.iter().zip(&columns).map(|(quantity, values)| {
            let first = values.len() + 1 - some.len();
            show(values[at - 1 + first].1, quantity.unit)
        });
        grid.row([time].into_iter().chain(cells));
    }
    let caption = format!("{} of the samples of {}; rates since the line above", some.len() - 1, of.profile);
    table(&caption, &grid, 0, |_| false)
}

/// The number of kinds of lines: more profiles than that look alike.
pub(super) const KINDS: usize = DASHES.len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers_of_their_units() {
        let show = |value: f64, unit| show(round_number(value, unit), unit);
        assert_eq!(show(41_000_000.0, "bytes"), "40.0 MiB");
        assert_eq!([show(900.0, "bytes"), show(41_000.0, ""), show(0.0, "%")], ["1000 B", "50.0 k", "1 %"]);
    }

    #[test]
    fn decisions_are_shown_where_a_policy_proposes() {
        let names = |taken| {
            let samples = [Sample::default(), Sample { decisions: [taken, 0], ..Sample::default() }];
            quantities(&samples).count()
        };
        assert_eq!((names(0), names(3)), (QUANTITIES.len(), QUANTITIES.len() + DECISIONS.len()));
    }

    #[test]
    fn rates_are_of_the_time_between_two_samples() {
        let sample = |nanos, major, pressure| Sample { nanos, major, pressure, ..Sample::default() };
        let samples = [sample(0, 0, 0), sample(1000, 2, 500), sample(3000, 2, 500)];
        let [_, _, major, .., pressure] = &QUANTITIES;
        assert_eq!(major.values(&samples), [(1000, 2e6), (3000, 0.0)]);
        assert_eq!(pressure.values(&samples), [(1000, 50.0), (3000, 0.0)]);
        let path = |hold| path(&major.values(&samples), hold, &|nanos| nanos as f64, &|value| value / 1e6);
        assert_eq!(path(Hold::From), "M0.0 2.0H1000.0V0.0H3000.0");
        assert_eq!(path(Hold::Until), "M0.0 2.0H1000.0H3000.0V0.0");
    }
}

//! Line charts, panel beside or under panel: plain SVG, as [`crate::svg`] makes it.

use crate::record::Better;
use crate::svg::{WIDTH, frame, heading, label, line, paragraph};
use std::fmt::Write;

/// Left edge of a panel's plot, and what is free to its right.
const MARGIN: (f64, f64) = (62.0, 20.0);
/// The gap between panels that are side by side.
const GAP: f64 = 8.0;
const HEIGHT: f64 = 150.0;
/// Dashes of lines, in order, which distinguish them without colours.
pub(crate) const DASHES: [&str; 6] = ["", "6 3", "2 2", "8 3 2 3", "4 4", "1 3"];
/// The width of a character, at most.
const LETTER: f64 = 7.0;

/// A measured point.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its place on the axis.
    pub x: f64,
    /// The mean.
    pub y: f64,
    /// Its interval, if there is one.
    pub interval: Option<[f64; 2]>,
    /// All that was measured, if each is to be seen.
    pub dots: Vec<f64>,
}

/// One quantity over an axis, with a line for each name.
pub struct Panel<'a> {
    /// The title.
    pub title: String,
    /// Which direction is good.
    pub better: Option<Better>,
    /// The axis, which panels may share.
    pub axis: &'a Axis,
    /// Lines by name; a line has a gap where it has no point.
    pub lines: Vec<(String, Vec<Option<Point>>)>,
    /// Formats a value for people.
    pub show: Box<dyn Fn(f64) -> String>,
}

/// The horizontal axis.
pub struct Axis {
    /// Its marks, ascending, with their texts; at least two. One without a text is above the axis.
    pub marks: Vec<(f64, String)>,
    /// Its label.
    pub label: String,
}

/// The picture: its title, a sentence about it, and panels in `columns` columns.
pub fn render((title, about): (&str, &str), panels: &[Panel<'_>], columns: usize) -> String {
    let mut text = String::new();
    let mut y = heading(&mut text, 24.0, title);
    y = paragraph(&mut text, (12.0, y), ("f", 66), about);
    let names = |panel: &Panel<'_>| panel.lines.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let shared = panels.windows(2).all(|pair| names(&pair[0]) == names(&pair[1]));
    if let Some(first) = panels.first().filter(|_| shared) {
        y = legend(&mut text, (12.0, y, WIDTH), &names(first));
    }
    let width = (WIDTH - GAP * (columns - 1) as f64) / columns as f64;
    for row in panels.chunks(columns) {
        let mut bottom = y;
        for (column, panel) in row.iter().enumerate() {
            let left = column as f64 * (width + GAP);
            let mut end = draw(&mut text, (left, y, width), panel);
            if !shared {
                end = legend(&mut text, (left + 12.0, end, left + width), &names(panel));
            }
            bottom = f64::max(bottom, end);
        }
        y = bottom;
    }
    let shown: Vec<&str> = panels.iter().map(|panel| &panel.title[..]).collect();
    frame(y, (title, &format!("{about} {}", shown.join("; "))), &text)
}

/// Names of lines from `left` to `right`; returns where the next line is.
pub(crate) fn legend(text: &mut String, (left, top, right): (f64, f64, f64), names: &[String]) -> f64 {
    let (mut x, mut y) = (left, top);
    for (at, name) in names.iter().enumerate() {
        let width = 34.0 + name.chars().count() as f64 * LETTER + 12.0;
        if x > left && x + width > right {
            (x, y) = (left, y + 18.0);
        }
        stroke(text, at, &format!("M{x} {}h24", y - 4.0));
        label(text, (x + 30.0, y), ("start", "t"), name);
        x += width;
    }
    y + 20.0
}

/// The line of this number along a path.
pub(crate) fn stroke(text: &mut String, number: usize, path: &str) {
    let at = number % DASHES.len();
    let _ = writeln!(
        text,
        "<path d=\"{path}\" class=\"l{at} line\" stroke-width=\"1.6\" stroke-dasharray=\"{}\"/>",
        DASHES[at]
    );
}

/// The vertical scale.
#[derive(Clone, Copy)]
enum Scale {
    /// From `from`, 0 or less, to `to`, with a mark at each step.
    Linear { from: f64, to: f64, step: f64 },
    /// From one power of ten to another; 0 has a line of its own below them, if there is a 0.
    Logarithmic { from: i32, to: i32, zero: bool },
}

/// The share of the height between the line of 0 and that of the smallest power of ten.
const BELOW: f64 = 0.14;

impl Scale {
    /// A logarithmic scale if values are far apart, else a linear one.
    fn of(panel: &Panel<'_>) -> Scale {
        let points = || panel.lines.iter().flat_map(|(_, points)| points.iter().flatten());
        let all = || {
            points().flat_map(|point| {
                point.dots.iter().copied().chain([point.y]).chain(point.interval.into_iter().flatten())
            })
        };
        let (lowest, highest) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
        let linear = |lowest: f64| {
            let step = round_up((highest - lowest) / 4.0);
            Scale::Linear { from: (lowest / step).floor() * step, to: (highest / step).ceil() * step, step }
        };
        // The low end of an interval may be far below all that was measured.
        let measured = points().flat_map(|point| point.dots.iter().copied().chain([point.y]));
        let least = measured.filter(|&y| y > 0.0).fold(f64::INFINITY, f64::min);
        if points().any(|point| point.y < 0.0) {
            linear(lowest)
        } else if highest > 50.0 * least {
            let (from, to) = (least.log10().floor() as i32, highest.log10().ceil() as i32);
            Scale::Logarithmic { from, to, zero: all().any(|value| value <= 0.0) }
        } else if lowest < 0.0 {
            linear(lowest)
        } else {
            let to = round_up(highest);
            Scale::Linear { from: 0.0, to, step: to / 4.0 }
        }
    }

    /// The height of a value as a share of the plot's.
    fn share(self, value: f64) -> f64 {
        match self {
            Scale::Linear { from, to, .. } => (value.max(from) - from) / (to - from),
            Scale::Logarithmic { zero: true, .. } if value <= 0.0 => 0.0,
            Scale::Logarithmic { from, to, zero } => {
                let power = value.max(f64::MIN_POSITIVE).log10().max(f64::from(from));
                let share = (power - f64::from(from)) / f64::from(to - from);
                if zero { BELOW + share * (1.0 - BELOW) } else { share }
            }
        }
    }

    fn marks(self) -> Vec<f64> {
        match self {
            Scale::Linear { from, to, step } => {
                let last = ((to - from) / step).round() as u32;
                (0..=last).map(|mark| from + f64::from(mark) * step).collect()
            }
            Scale::Logarithmic { from, to, zero } => {
                let powers = (from..=to).map(|power| 10f64.powi(power));
                zero.then_some(0.0).into_iter().chain(powers).collect()
            }
        }
    }
}

/// A panel; returns where the next line is.
fn draw(text: &mut String, (left, top, width): (f64, f64, f64), panel: &Panel<'_>) -> f64 {
    let (scale, axis) = (Scale::of(panel), panel.axis);
    let better = match panel.better {
        Some(Better::Lower) => " (less is better \u{2193})",
        Some(Better::Higher) => " (more is better \u{2191})",
        None => "",
    };
    let kind = if matches!(scale, Scale::Logarithmic { .. }) { ", logarithmic" } else { "" };
    let columns = ((width - 12.0) / LETTER) as usize;
    let title = format!("{}{kind}{better}", panel.title);
    let top = paragraph(text, (left + 12.0, top + 8.0), ("t", columns), &title) - 4.0;
    let (from, span) = (left + MARGIN.0, width - MARGIN.0 - MARGIN.1);
    let (first, last) = (axis.marks[0].0, axis.marks[axis.marks.len() - 1].0);
    let across = |x: f64| from + (x - first) / (last - first) * span;
    let down = |y: f64| top + HEIGHT * (1.0 - scale.share(y));
    for value in scale.marks() {
        let class = if value == 0.0 { "a" } else { "g" };
        line(text, (from, down(value)), (from + span, down(value)), class);
        label(text, (from - 6.0, down(value) + 4.5), ("end", "f"), &(panel.show)(value));
    }
    let mut free = f64::NEG_INFINITY;
    for (mark, words) in &axis.marks {
        let (x, half) = (across(*mark), words.chars().count() as f64 * LETTER / 2.0);
        if words.is_empty() {
            line(text, (x, top + HEIGHT), (x, top + HEIGHT - 7.0), "a");
            continue;
        }
        line(text, (x, top + HEIGHT), (x, top + HEIGHT + 4.0), "f");
        if x - half >= free {
            label(text, (x, top + HEIGHT + 17.0), ("middle", "f"), words);
            free = x + half + 8.0;
        }
    }
    for (at, (_, points)) in panel.lines.iter().enumerate() {
        curve(text, at, points, &across, &down);
    }
    label(text, (from + span / 2.0, top + HEIGHT + 34.0), ("middle", "f"), &axis.label);
    top + HEIGHT + 54.0
}

/// A line with its points, their intervals and what was measured.
fn curve(
    text: &mut String,
    number: usize,
    points: &[Option<Point>],
    across: &impl Fn(f64) -> f64,
    down: &impl Fn(f64) -> f64,
) {
    let class = number % DASHES.len();
    let (mut path, mut pen_up) = (String::new(), true);
    for point in points {
        let Some(point) = point else {
            pen_up = true;
            continue;
        };
        let (x, y) = (across(point.x), down(point.y));
        let _ = write!(path, "{}{x:.1} {y:.1}", if pen_up { 'M' } else { 'L' });
        pen_up = false;
        for &dot in &point.dots {
            let _ = writeln!(
                text,
                "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"2\" class=\"l{class} dot\"/>",
                down(dot)
            );
        }
        if point.dots.is_empty() {
            let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" class=\"l{class} bar\"/>");
        }
        if let Some([low, high]) = point.interval {
            line(text, (x, down(low)), (x, down(high)), &format!("l{class}"));
        }
    }
    stroke(text, number, &path);
}

/// The next of 1, 2, 4, 5, 8 and 10 times a power of ten; 1 for 0.
pub(crate) fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|&step| step >= value * 0.999_999).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_ends_at_a_round_number() {
        let ends = [0.0, 0.7, 1.0, 1.1, 30.0, 45.0, 79.0, 81.0, 100.0].map(round_up);
        assert_eq!(ends, [1.0, 0.8, 1.0, 2.0, 40.0, 50.0, 80.0, 100.0, 100.0]);
    }

    fn axis(marks: &[f64]) -> Axis {
        Axis { marks: marks.iter().map(|&mark| (mark, format!("{mark}"))).collect(), label: "x".into() }
    }

    fn panel<'a>(axis: &'a Axis, name: &str, points: Vec<Option<Point>>) -> Panel<'a> {
        let show = Box::new(|value: f64| format!("{value}"));
        Panel { title: "y".into(), better: None, axis, lines: vec![(name.into(), points)], show }
    }

    #[test]
    fn scale_is_logarithmic_for_values_far_apart() {
        let points = [0.0, 40.0, 25_000.0].map(|y| Some(Point { x: y, y, interval: None, dots: Vec::new() }));
        let scale = Scale::of(&panel(&axis(&[0.0, 1.0]), "", points.to_vec()));
        assert_eq!(scale.marks(), [0.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        // 0 is not on the line of 10.
        let shares = [0.0, 10.0, 1000.0, 100_000.0].map(|value| (scale.share(value) * 100.0).round());
        assert_eq!(shares, [0.0, 14.0, 57.0, 100.0]);
    }

    #[test]
    fn logarithmic_scale_has_room_for_each_run() {
        let points = [(500.0, vec![3.0, 997.0]), (90_000.0, vec![90_000.0])];
        let points = points.map(|(y, dots)| Some(Point { x: y, y, interval: None, dots }));
        let scale = Scale::of(&panel(&axis(&[0.0, 1.0]), "", points.to_vec()));
        assert_eq!(scale.marks(), [1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
    }

    #[test]
    fn scale_has_room_for_negative_values() {
        let points = [(-3.0, [-7.0, 1.0]), (12.0, [11.0, 13.0])];
        let points =
            points.map(|(y, interval)| Some(Point { x: y, y, interval: Some(interval), dots: Vec::new() }));
        let scale = Scale::of(&panel(&axis(&[0.0, 1.0]), "", points.to_vec()));
        assert_eq!(scale.marks(), [-10.0, -5.0, 0.0, 5.0, 10.0, 15.0]);
        assert_eq!([-10.0, 0.0, 15.0].map(|value| scale.share(value)), [0.0, 0.4, 1.0]);
        let one = Some(Point { x: 0.0, y: 3.0, interval: Some([-1.0, 7.0]), dots: Vec::new() });
        let marks = Scale::of(&panel(&axis(&[0.0, 1.0]), "", vec![one])).marks();
        assert!(marks[0] < 0.0, "the end of an interval has room, too: {marks:?}");
    }

    #[test]
    fn panels_are_side_by_side_and_say_which_way_is_better() {
        let axis = axis(&[0.0, 1.0]);
        let one = |better| {
            let point = |x| Some(Point { x, y: 1.0, interval: None, dots: Vec::new() });
            Panel { better, ..panel(&axis, "line", vec![point(0.0), point(1.0)]) }
        };
        let panels = [one(Some(Better::Lower)), one(Some(Better::Higher)), one(None), one(None)];
        let height = |columns: usize| -> f64 {
            let text = render(("title", "about"), &panels, columns);
            assert!(text.contains("(less is better \u{2193})") && text.contains("(more is better \u{2191})"));
            assert_eq!(text.matches(">line<").count(), 1, "lines that all panels have are named once");
            let size = text.split("viewBox=\"0 0 480 ").nth(1).unwrap();
            size.split('"').next().unwrap().parse().unwrap()
        };
        assert!(height(2) < 0.6 * height(1));
    }

    #[test]
    fn line_stops_at_a_missing_point() {
        let at = |x, y| Some(Point { x, y, interval: Some([y - 1.0, y + 1.0]), dots: vec![y] });
        let points = vec![at(0.0, 2.0), None, at(1.0, 4.0)];
        let text = render(("title", "about"), &[panel(&axis(&[0.0, 0.5, 1.0]), "a<b", points)], 1);
        let path = text
            .lines()
            .find(|line| line.starts_with("<path d=\"M62.0 "))
            .expect("the line begins at the left");
        assert!(path.matches('M').count() == 2 && !path.contains('L'), "{path}");
        assert!(text.contains("a&lt;b") && text.contains("<circle") && !text.contains("NaN"));
    }
}

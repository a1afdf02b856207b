//! Line charts over one axis, panel under panel: plain SVG, as [`crate::svg`] makes it.

use crate::svg::{TEXT, frame, label, line};
use std::fmt::Write;

/// Left edge, width and height of a panel's plot.
const PLOT: (f64, f64, f64) = (92.0, 600.0, 200.0);
/// Colours of lines, in order, and dashes, which distinguish them without colours.
const LINES: [(&str, &str); 6] = [
    ("#2a5fa5", ""),
    ("#b8472f", "6 3"),
    ("#2a7f62", "2 2"),
    ("#8a5aa8", "8 3 2 3"),
    ("#b38600", "4 4"),
    ("#5b616b", "1 3"),
];
const FAINT: &str = "#8a8f98";

/// A measured point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Its place on the axis.
    pub x: f64,
    /// The mean.
    pub y: f64,
    /// Its interval, if there is one.
    pub interval: Option<[f64; 2]>,
}

/// One quantity over an axis, with a line for each name.
pub struct Panel<'a> {
    /// The title.
    pub title: String,
    /// The axis, which panels may share.
    pub axis: &'a Axis,
    /// Lines by name; a line has a gap where it has no point.
    pub lines: Vec<(String, Vec<Option<Point>>)>,
    /// Formats a value for people.
    pub show: Box<dyn Fn(f64) -> String>,
}

/// The horizontal axis.
pub struct Axis {
    /// Its marks, ascending, with their texts; at least two.
    pub marks: Vec<(f64, String)>,
    /// Its label.
    pub label: String,
}

/// The picture. Of consecutive panels that share an axis, the last has its label.
pub fn render(title: &str, panels: &[Panel<'_>]) -> String {
    let mut text = String::new();
    let mut y = 30.0;
    label(&mut text, (16.0, y), ("start", TEXT), title);
    for (at, panel) in panels.iter().enumerate() {
        y += 34.0;
        draw(&mut text, y, panel);
        y += PLOT.2 + 40.0;
        if panels.get(at + 1).is_none_or(|next| !std::ptr::eq(next.axis, panel.axis)) {
            label(&mut text, (PLOT.0 + PLOT.1 / 2.0, y), ("middle", FAINT), &panel.axis.label);
            y += 16.0;
        }
    }
    frame(y, &text)
}

/// The vertical scale.
#[derive(Clone, Copy)]
enum Scale {
    /// From `from`, 0 or less, to `to`, with a mark at each step.
    Linear { from: f64, to: f64, step: f64 },
    /// From one power of ten to another; smaller values are at the bottom.
    Logarithmic(i32, i32),
}

impl Scale {
    /// A logarithmic scale if values are far apart, else a linear one.
    fn of(panel: &Panel<'_>) -> Scale {
        let points = || panel.lines.iter().flat_map(|(_, points)| points.iter().flatten());
        let end = |at: usize| points().map(move |point| point.interval.map_or(point.y, |ends| ends[at]));
        let (lowest, highest) = (end(0).fold(0.0, f64::min), end(1).fold(0.0, f64::max));
        let below = points().any(|point| point.y < 0.0);
        let least = points().map(|point| point.y).filter(|&y| y > 0.0).fold(f64::INFINITY, f64::min);
        if below {
            let step = round_up((highest - lowest) / 4.0);
            Scale::Linear { from: (lowest / step).floor() * step, to: (highest / step).ceil() * step, step }
        } else if highest > 50.0 * least {
            Scale::Logarithmic(least.log10().floor() as i32, highest.log10().ceil() as i32)
        } else {
            let to = round_up(highest);
            Scale::Linear { from: 0.0, to, step: to / 4.0 }
        }
    }

    /// The height of a value as a share of the plot's.
    fn share(self, value: f64) -> f64 {
        match self {
            Scale::Linear { from, to, .. } => (value.max(from) - from) / (to - from),
            Scale::Logarithmic(from, to) => {
                let power = value.max(f64::MIN_POSITIVE).log10().max(f64::from(from));
                (power - f64::from(from)) / f64::from(to - from)
            }
        }
    }

    fn marks(self) -> Vec<f64> {
        match self {
            Scale::Linear { from, to, step } => {
                let last = ((to - from) / step).round() as u32;
                (0..=last).map(|mark| from + f64::from(mark) * step).collect()
            }
            Scale::Logarithmic(from, to) => (from..=to).map(|power| 10f64.powi(power)).collect(),
        }
    }
}

fn draw(text: &mut String, top: f64, panel: &Panel<'_>) {
    let (scale, axis) = (Scale::of(panel), panel.axis);
    let title = match scale {
        Scale::Linear { .. } => panel.title.clone(),
        Scale::Logarithmic(..) => format!("{} (logarithmic, 0 at the bottom)", panel.title),
    };
    label(text, (16.0, top - 12.0), ("start", TEXT), &title);
    let (first, last) = (axis.marks[0].0, axis.marks[axis.marks.len() - 1].0);
    let across = |x: f64| PLOT.0 + (x - first) / (last - first) * PLOT.1;
    let down = |y: f64| top + PLOT.2 * (1.0 - scale.share(y));
    for value in scale.marks() {
        line(text, (PLOT.0, down(value)), (PLOT.0 + PLOT.1, down(value)), "#e3e6ea");
        label(text, (PLOT.0 - 8.0, down(value) + 4.0), ("end", FAINT), &(panel.show)(value));
    }
    for (mark, words) in &axis.marks {
        let x = across(*mark);
        line(text, (x, top + PLOT.2), (x, top + PLOT.2 + 4.0), FAINT);
        label(text, (x, top + PLOT.2 + 17.0), ("middle", FAINT), words);
    }
    for (at, (name, points)) in panel.lines.iter().enumerate() {
        let (color, dashes) = LINES[at % LINES.len()];
        let mut path = String::new();
        let mut pen_up = true;
        for point in points {
            let Some(point) = point else {
                pen_up = true;
                continue;
            };
            let (x, y) = (across(point.x), down(point.y));
            let _ = write!(path, "{}{x:.1} {y:.1}", if pen_up { 'M' } else { 'L' });
            pen_up = false;
            let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{color}\"/>");
            if let Some([low, high]) = point.interval {
                line(text, (x, down(low)), (x, down(high)), color);
            }
        }
        let _ = writeln!(
            text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.6\" stroke-dasharray=\"{dashes}\"/>"
        );
        let (x, y) = (PLOT.0 + PLOT.1 + 20.0, top + 12.0 + at as f64 * 18.0);
        let _ = writeln!(
            text,
            "<path d=\"M{x} {y}h24\" stroke=\"{color}\" stroke-width=\"1.6\" stroke-dasharray=\"{dashes}\"/>"
        );
        label(text, (x + 30.0, y + 4.0), ("start", TEXT), name);
    }
}

/// The next of 1, 2, 4, 5, 8 and 10 times a power of ten; 1 for 0.
fn round_up(value: f64) -> f64 {
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
        Panel { title: "y".into(), axis, lines: vec![(name.into(), points)], show }
    }

    #[test]
    fn scale_is_logarithmic_for_values_far_apart() {
        let points = [0.0, 40.0, 25_000.0].map(|y| Some(Point { x: y, y, interval: None }));
        let scale = Scale::of(&panel(&axis(&[0.0, 1.0]), "", points.to_vec()));
        assert_eq!(scale.marks(), [10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        assert_eq!([0.0, 10.0, 1000.0, 100_000.0].map(|value| scale.share(value)), [0.0, 0.0, 0.5, 1.0]);
    }

    #[test]
    fn scale_has_room_for_negative_values() {
        let points = [(-3.0, [-7.0, 1.0]), (12.0, [11.0, 13.0])];
        let points = points.map(|(y, interval)| Some(Point { x: y, y, interval: Some(interval) }));
        let scale = Scale::of(&panel(&axis(&[0.0, 1.0]), "", points.to_vec()));
        assert_eq!(scale.marks(), [-10.0, -5.0, 0.0, 5.0, 10.0, 15.0]);
        assert_eq!([-10.0, 0.0, 15.0].map(|value| scale.share(value)), [0.0, 0.4, 1.0]);
    }

    #[test]
    fn line_stops_at_a_missing_point() {
        let at = |x, y| Some(Point { x, y, interval: Some([y - 1.0, y + 1.0]) });
        let points = vec![at(0.0, 2.0), None, at(1.0, 4.0)];
        let text = render("title", &[panel(&axis(&[0.0, 0.5, 1.0]), "a<b", points)]);
        // The scale is 0 to 5, the plot begins at 64 and is 200 high.
        assert!(text.contains("<path d=\"M92.0 184.0M692.0 104.0\""), "{text}");
        assert!(text.contains("a&lt;b") && text.contains("<circle") && !text.contains("NaN"));
    }
}

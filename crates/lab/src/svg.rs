//! A comparison as a picture: for each metric a bar from 0 to the change, with its interval.
//!
//! The picture is plain SVG without scripts or fonts of its own, so a README can show it. The axis ends at ±100 %;
//! larger changes are cut there, and the number in the row gives the change.

use crate::human;
use crate::summary::{Summary, SummaryRow};
use std::fmt::Write;

const WIDTH: f64 = 880.0;
/// Left edge and width of the plot.
const PLOT: (f64, f64) = (240.0, 300.0);
const ROW: f64 = 20.0;
const GOOD: &str = "#2a7f62";
const BAD: &str = "#b8472f";
/// The colour of words.
pub(crate) const TEXT: &str = "#1d2129";
const NONE: &str = "#8a8f98";

/// Whether there are changes to draw.
pub fn has_changes(summary: &Summary) -> bool {
    summary.setup.profiles.len() > 1
}

/// The picture.
pub fn render(summary: &Summary) -> String {
    let mut drawing = Drawing { text: String::new(), y: 26.0 };
    drawing.heading(summary);
    let base = summary.setup.profiles.first().map_or("", String::as_str);
    for profile in summary.setup.profiles.iter().skip(1) {
        drawing.panel(summary, base, profile);
    }
    drawing.label(
        16.0,
        "start",
        NONE,
        "to the right: better · green/red: the interval excludes no change · grey: it does not",
    );
    frame(drawing.y + 14.0, &drawing.text)
}

/// The elements so far, and the height that they take.
struct Drawing {
    text: String,
    y: f64,
}

impl Drawing {
    fn heading(&mut self, summary: &Summary) {
        let setup = &summary.setup;
        let memory = setup.memory.map_or("all memory".to_owned(), |bytes| human::bytes(bytes as f64));
        let title = format!("{} on {}, {memory}, {} runs", setup.program, setup.machine, setup.runs);
        let y = self.y;
        let _ = writeln!(
            self.text,
            "<text x=\"16\" y=\"{y}\" font-size=\"15\" font-weight=\"600\" fill=\"#1d2129\">{}</text>",
            escape(&title)
        );
        self.y += 26.0;
    }

    /// One profile against the base.
    fn panel(&mut self, summary: &Summary, base: &str, profile: &str) {
        self.label(16.0, "start", TEXT, &format!("{profile} against {base}, change in %"));
        self.y += 8.0;
        let top = self.y;
        let rows: Vec<(&SummaryRow, &SummaryRow)> = summary
            .rows
            .iter()
            .filter(|row| row.profile == profile)
            .filter_map(|row| {
                let base = summary.rows.iter().find(|b| b.metric == row.metric && b.profile == base)?;
                // A metric that is 0 on both sides is left out.
                (base.value != 0.0 || row.value != 0.0).then_some((base, row))
            })
            .collect();
        let bottom = top + rows.len() as f64 * ROW;
        for mark in [-100.0, -50.0, 0.0, 50.0, 100.0] {
            self.grid_line(mark, top, bottom);
        }
        for (base, row) in rows {
            self.row(base, row);
        }
        self.y = bottom + 16.0;
        for mark in [-100.0, -50.0, 0.0, 50.0, 100.0] {
            self.label(place(mark), "middle", NONE, &format!("{mark:+.0}").replace("+0", "0"));
        }
        self.y += 26.0;
    }

    fn grid_line(&mut self, mark: f64, top: f64, bottom: f64) {
        let (x, color) = (place(mark), if mark == 0.0 { "#5b616b" } else { "#e3e6ea" });
        let _ = writeln!(
            self.text,
            "<line x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"{color}\"/>"
        );
    }

    fn row(&mut self, base: &SummaryRow, row: &SummaryRow) {
        let middle = self.y + ROW / 2.0;
        let color = match row.change_pct {
            Some(change) if row.significant && change > 0.0 => GOOD,
            Some(_) if row.significant => BAD,
            _ => NONE,
        };
        if let Some(change) = row.change_pct {
            let (from, to) = (place(change.min(0.0)), place(change.max(0.0)));
            let _ = writeln!(
                self.text,
                "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"10\" fill=\"{color}\" fill-opacity=\"0.55\"/>",
                middle - 5.0,
                to - from
            );
        }
        if let Some([low, high]) = row.change_ci_pct {
            let _ = writeln!(
                self.text,
                "<path d=\"M{low:.1} {a:.1}v8M{high:.1} {a:.1}v8M{low:.1} {middle:.1}H{high:.1}\" stroke=\"#1d2129\" fill=\"none\"/>",
                low = place(low),
                high = place(high),
                a = middle - 4.0
            );
        }
        self.y = middle + 4.0;
        self.label(PLOT.0 - 12.0, "end", TEXT, &row.metric);
        let change = row.change_pct.map_or("n/a".to_owned(), human::percent);
        self.label(PLOT.0 + PLOT.1 + 84.0, "end", color, &change);
        let values = format!(
            "{} \u{2192} {}",
            human::number(base.value, &base.unit),
            human::number(row.value, &row.unit)
        );
        self.label(PLOT.0 + PLOT.1 + 100.0, "start", "#5b616b", &values);
        self.y = middle + ROW / 2.0;
    }

    fn label(&mut self, x: f64, anchor: &str, color: &str, words: &str) {
        label(&mut self.text, (x, self.y), (anchor, color), words);
    }
}

/// A picture of this height with these elements.
pub(crate) fn frame(height: f64, elements: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"ui-sans-serif, system-ui, sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{elements}</svg>\n"
    )
}

pub(crate) fn line(text: &mut String, from: (f64, f64), to: (f64, f64), color: &str) {
    let _ = writeln!(
        text,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{color}\"/>",
        from.0, from.1, to.0, to.1
    );
}

pub(crate) fn label(text: &mut String, (x, y): (f64, f64), (anchor, color): (&str, &str), words: &str) {
    let _ = writeln!(
        text,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\">{}</text>",
        escape(words)
    );
}

/// The place of a change, cut at the ends of the axis.
fn place(change: f64) -> f64 {
    PLOT.0 + PLOT.1 * (change.clamp(-100.0, 100.0) + 100.0) / 200.0
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::{setup, three_seeds};

    #[test]
    fn every_metric_but_zeroes_has_a_row() {
        let mut named = setup(&["a", "b"]);
        named.program = "a<b>&c.pft".into();
        let summary = Summary::of(named, &three_seeds(), 0.0, false);
        assert!(has_changes(&summary));
        let text = render(&summary);
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert!(text.contains("a&lt;b&gt;&amp;c.pft on small, 128 MiB, 3 runs"));
        assert!(text.contains(">run_time<") && text.contains(">+10.00%<") && text.contains("b against a"));
        assert!(!text.contains(">pgscan_kswapd<"), "a metric that is 0 on both sides is left out");
        // A change from 0 has no percentage, but has a row.
        assert!(text.contains(">pgscan_direct<") && text.contains(">n/a<") && text.contains("0 \u{2192} 5"));
        assert_eq!(text, render(&summary), "the picture is a function of the result");
    }

    #[test]
    fn axis_ends_at_100_per_cent() {
        assert_eq!((place(-100.0), place(0.0), place(1e9)), (240.0, 390.0, 540.0));
    }

    #[test]
    fn single_profile_has_no_changes() {
        assert!(!has_changes(&Summary::of(setup(&["a"]), &three_seeds(), 0.0, false)));
    }
}

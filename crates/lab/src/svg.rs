//! A comparison as a picture: for each metric a bar from 0 to the change, with its interval.
//!
//! The picture is plain SVG without scripts or fonts of its own, so a README can show it; it follows the reader's light
//! or dark background. It is so narrow that its words can be read where it is shown 400 pixels wide. The axis ends at
//! ±100 %; larger changes are cut there, and the number in the row gives the change.

use crate::human;
use crate::summary::{Summary, SummaryRow};
use std::fmt::Write;

/// The width of all pictures.
pub(crate) const WIDTH: f64 = 480.0;
/// Left edge and width of the plot.
const PLOT: (f64, f64) = (206.0, 194.0);
const ROW: f64 = 20.0;

/// Colours by class, on a light background and on a dark one. Words: t, fainter ones f; the background b; lines of the
/// grid g, the axis a; changes that are better, worse, neither; lines l0 to l5.
const CLASSES: [(&str, &str, &str); 14] = [
    ("b", "#ffffff", "#0d1117"),
    ("t", "#1d2129", "#e6e9ee"),
    ("f", "#5b616b", "#9aa3af"),
    ("g", "#e3e6ea", "#2c333d"),
    ("a", "#5b616b", "#9aa3af"),
    ("good", "#2a7f62", "#5cc29c"),
    ("bad", "#b8472f", "#f08a70"),
    ("none", "#777d87", "#8b94a1"),
    ("l0", "#2a5fa5", "#77aef2"),
    ("l1", "#b8472f", "#f08a70"),
    ("l2", "#2a7f62", "#5cc29c"),
    ("l3", "#8a5aa8", "#c79be6"),
    ("l4", "#8f6b00", "#e0b84a"),
    ("l5", "#5b616b", "#9aa3af"),
];

/// The picture.
pub fn render(summary: &Summary) -> String {
    let setup = &summary.setup;
    let memory = setup.memory.map_or("all memory".to_owned(), |bytes| human::bytes(bytes as f64));
    let title = format!("{} on {}, {memory}, {} runs", setup.program, setup.machine, setup.runs);
    let mut drawing = Drawing { text: String::new(), y: 24.0 };
    drawing.heading(&title);
    let base = setup.profiles.first().map_or("", String::as_str);
    let mut description = String::from("Changes of metrics in per cent, to the right better.");
    for profile in setup.profiles.iter().skip(1) {
        drawing.panel(summary, base, profile);
        let time = summary.rows.iter().find(|row| row.metric == "run_time" && row.profile == *profile);
        if let Some(change) = time.and_then(|row| row.change_pct) {
            let _ = write!(description, " {profile} against {base}: run time {}.", human::percent(change));
        }
    }
    drawing.words("f", "green, red: the interval excludes no change; grey: it does not");
    frame(drawing.y, (&title, &description), &drawing.text)
}

/// The elements so far, and the height that they take.
struct Drawing {
    text: String,
    y: f64,
}

impl Drawing {
    fn heading(&mut self, title: &str) {
        self.y = heading(&mut self.text, self.y, title);
    }

    /// One profile against the base.
    fn panel(&mut self, summary: &Summary, base: &str, profile: &str) {
        self.y += 8.0;
        self.words("t", &format!("{profile} against {base}"));
        self.y -= 8.0;
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
            let class = if mark == 0.0 { "a" } else { "g" };
            line(&mut self.text, (place(mark), top), (place(mark), bottom), class);
        }
        for (base, row) in rows {
            self.row(base, row);
        }
        self.y = bottom + 16.0;
        for mark in [-100.0, 0.0, 100.0] {
            self.label(place(mark), "middle", "f", &format!("{mark:+.0}%").replace("+0", "0"));
        }
        self.y += 17.0;
        self.label(place(-100.0) - 20.0, "start", "f", "\u{2190} worse");
        self.label(place(100.0) + 20.0, "end", "f", "better \u{2192}");
        self.y += 26.0;
    }

    fn row(&mut self, base: &SummaryRow, row: &SummaryRow) {
        let middle = self.y + ROW / 2.0;
        let class = match row.change_pct {
            Some(change) if row.significant && change > 0.0 => "good",
            Some(_) if row.significant => "bad",
            _ => "none",
        };
        let [before, after] = [base, row].map(|row| human::number(row.value, &row.unit));
        // A viewer with a mouse shows it.
        let _ = writeln!(self.text, "<g><title>{}: {before} \u{2192} {after}</title>", escape(&row.metric));
        if let Some(change) = row.change_pct {
            let (from, to) = (place(change.min(0.0)), place(change.max(0.0)));
            let _ = writeln!(
                self.text,
                "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"10\" class=\"{class} bar\"/>",
                middle - 5.0,
                to - from
            );
        }
        if let Some([low, high]) = row.change_ci_pct {
            let _ = writeln!(
                self.text,
                "<path d=\"M{low:.1} {a:.1}v8M{high:.1} {a:.1}v8M{low:.1} {middle:.1}H{high:.1}\" class=\"t line\"/>",
                low = place(low),
                high = place(high),
                a = middle - 4.0
            );
        }
        self.y = middle + 4.5;
        self.label(PLOT.0 - 10.0, "end", "t", &row.metric);
        let change = row.change_pct.map_or("n/a".to_owned(), human::percent);
        self.label(WIDTH - 8.0, "end", class, &change);
        self.text.push_str("</g>\n");
        self.y = middle + ROW / 2.0;
    }

    /// Words from the left edge, on as many lines as they need.
    fn words(&mut self, class: &str, words: &str) {
        self.y = paragraph(&mut self.text, (12.0, self.y), (class, 66), words);
    }

    fn label(&mut self, x: f64, anchor: &str, class: &str, words: &str) {
        label(&mut self.text, (x, self.y), (anchor, class), words);
    }
}

/// A picture of this height with these elements, and its title and description for readers that do not see it.
pub(crate) fn frame(height: f64, (title, description): (&str, &str), elements: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-labelledby=\"title description\" font-family=\"ui-sans-serif, system-ui, sans-serif\" font-size=\"13\">\n\
         <title id=\"title\">{}</title>\n<desc id=\"description\">{}</desc>\n\
         <style>{}</style>\n\
         <rect width=\"100%\" height=\"100%\" class=\"b\"/>\n{elements}</svg>\n",
        escape(title),
        escape(description),
        style()
    )
}

/// What the classes look like.
pub(crate) fn style() -> String {
    let colors = |dark: bool| -> String {
        let color = |(class, light, night): (&str, &'static str, &'static str)| {
            let c = if dark { night } else { light };
            format!(".{class}{{fill:{c}}}.{class}.line,line.{class}{{fill:none;stroke:{c}}}")
        };
        CLASSES.map(color).concat()
    };
    format!(
        "{}.bar{{fill-opacity:.6}}.dot{{fill-opacity:.45}}@media (prefers-color-scheme:dark){{{}}}",
        colors(false),
        colors(true)
    )
}

/// The title of a picture at `y`; returns where the next line is.
pub(crate) fn heading(text: &mut String, y: f64, title: &str) -> f64 {
    let mut y = y;
    for line in human::wrapped(title, 0, 58).lines() {
        let _ = writeln!(
            text,
            "<text x=\"12\" y=\"{y}\" font-size=\"15\" font-weight=\"600\" class=\"t\">{}</text>",
            escape(line)
        );
        y += 20.0;
    }
    y
}

/// Words on lines of at most `columns` characters; returns where the next line is.
pub(crate) fn paragraph(
    text: &mut String,
    (x, y): (f64, f64),
    (class, columns): (&str, usize),
    words: &str,
) -> f64 {
    let mut y = y;
    for line in human::wrapped(words, 0, columns).lines() {
        label(text, (x, y), ("start", class), line);
        y += 18.0;
    }
    y
}

pub(crate) fn line(text: &mut String, from: (f64, f64), to: (f64, f64), class: &str) {
    let _ = writeln!(
        text,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" class=\"{class}\"/>",
        from.0, from.1, to.0, to.1
    );
}

pub(crate) fn label(text: &mut String, (x, y): (f64, f64), (anchor, class): (&str, &str), words: &str) {
    let _ = writeln!(
        text,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
        escape(words)
    );
}

/// The place of a change, cut at the ends of the axis.
fn place(change: f64) -> f64 {
    PLOT.0 + PLOT.1 * (change.clamp(-100.0, 100.0) + 100.0) / 200.0
}

pub(crate) fn escape(text: &str) -> String {
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
        let text = render(&summary);
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert!(text.contains("a&lt;b&gt;&amp;c.pft on small, 128 MiB, 3 runs"));
        assert!(text.contains(">run_time<") && text.contains(">+10.00%<") && text.contains("b against a"));
        assert!(!text.contains(">pgscan_kswapd<"), "a metric that is 0 on both sides is left out");
        // A change from 0 has no percentage, but has a row.
        assert!(text.contains(">pgscan_direct<") && text.contains(">n/a<") && text.contains("0 \u{2192} 5"));
        assert_eq!(text, render(&summary), "the picture is a function of the result");
    }

    /// Words at 13 of 480 units have 10.8 pixels where the picture has 400.
    #[test]
    fn picture_is_narrow_has_both_backgrounds_and_tells_what_it_shows() {
        let text = render(&Summary::of(setup(&["a", "b"]), &three_seeds(), 0.0, false));
        assert!(text.contains("viewBox=\"0 0 480 ") && text.contains("font-size=\"13\""));
        assert!(text.contains("prefers-color-scheme:dark") && text.contains("role=\"img\""));
        let (title, description) =
            ("<title id=\"title\">zipf:256M on small", "b against a: run time +10.00%.</desc>");
        assert!(text.contains(title) && text.contains(description), "{text}");
        assert!(text.contains("better \u{2192}") && text.contains("\u{2190} worse"));
        assert!(!text.contains("fill=\"#"), "colours are of classes, which follow the background");
    }

    #[test]
    fn axis_ends_at_100_per_cent() {
        assert_eq!((place(-100.0), place(0.0), place(1e9)), (206.0, 303.0, 400.0));
    }
}

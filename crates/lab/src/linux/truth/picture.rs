//! The document's table of both policies as a picture: which wins with which program, on Linux and here.

use super::Done;
use super::ranking::{METRICS, Ranks, WINS_BY, rankings};
use crate::svg::{escape, frame, heading, label, line, paragraph};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Left and right end of the axis, and the changes there in per cent.
const PLOT: (f64, f64) = (196.0, 460.0);
const ENDS: f64 = 60.0;
/// Height of a mark's row.
const ROW: f64 = 15.0;
/// Colours of kernels, in their order.
const COLOURS: usize = 6;

/// The picture of all rankings.
pub fn picture(results: &[Done]) -> String {
    let kernels: Vec<&str> =
        results.iter().map(|done| done.kernel.as_str()).collect::<BTreeSet<_>>().into_iter().collect();
    let title = "From classic to generations: Linux and simulated";
    let about = format!(
        "Change of a count: a dot is Linux, a ring the simulated machine. To the left, generations need less. Changes of less than \
         {WINS_BY:.0} % have no winner; those beyond {ENDS:.0} % are at the edge."
    );
    let mut text = String::new();
    let mut y = heading(&mut text, 24.0, title);
    y = paragraph(&mut text, (12.0, y), ("f", 66), &about);
    if kernels.len() > 1 {
        for (at, kernel) in kernels.iter().enumerate() {
            dot(&mut text, (18.0 + 80.0 * at as f64, y - 4.0), at, Side::Linux);
            label(&mut text, (26.0 + 80.0 * at as f64, y), ("start", "t"), kernel);
        }
        y += 20.0;
    }
    for metric in METRICS {
        y = panel(&mut text, y, metric, &kernels, results);
    }
    frame(y, (title, &about), &text)
}

/// One count of all programs. Returns where the next panel is.
fn panel(text: &mut String, top: f64, metric: &str, kernels: &[&str], results: &[Done]) -> f64 {
    let mut marks = String::new();
    let first = top + 14.0;
    let mut y = first;
    let (mut agree, mut of) = (0, 0);
    let mut before = "";
    for done in results {
        let all = rankings(done);
        let Some(ranking) = all.iter().find(|ranking| ranking.rows[0].metric == metric) else { continue };
        let kernel = kernels.iter().position(|kernel| *kernel == done.kernel).unwrap_or(0);
        let name = done.case.name;
        let middle = y + ROW / 2.0;
        let _ = writeln!(
            marks,
            "<g><title>{}, {}: Linux {:+.1} %, simulated {:+.1} %</title>",
            escape(name),
            done.kernel,
            ranking.linux,
            ranking.here
        );
        line(&mut marks, (place(ranking.linux), middle), (place(ranking.here), middle), "g");
        dot(&mut marks, (place(ranking.linux), middle), kernel, Side::Linux);
        dot(&mut marks, (place(ranking.here), middle), kernel, Side::Here);
        if name != before {
            let class = if ranking.ranks == Ranks::Inverted { "bad" } else { "t" };
            label(&mut marks, (PLOT.0 - 8.0, middle + 4.5), ("end", class), name);
        }
        marks.push_str("</g>\n");
        before = name;
        of += 1;
        agree += u32::from(ranking.ranks == Ranks::Agree);
        y += ROW;
    }
    if of == 0 {
        return top;
    }
    label(
        text,
        (12.0, top + 4.0),
        ("start", "t"),
        &format!("{metric}: {agree} of {of} have the same winner"),
    );
    for mark in [-ENDS, -ENDS / 2.0, 0.0, ENDS / 2.0, ENDS] {
        let class = if mark == 0.0 { "a" } else { "g" };
        line(text, (place(mark), first), (place(mark), y), class);
        label(text, (place(mark), y + 14.0), ("middle", "f"), &format!("{mark:+.0}%").replace("+0", "0"));
    }
    text.push_str(&marks);
    y + 40.0
}

/// Whose mark it is.
enum Side {
    Linux,
    Here,
}

fn dot(text: &mut String, (x, y): (f64, f64), colour: usize, side: Side) {
    let colour = colour % COLOURS;
    let (radius, class) = match side {
        Side::Linux => (3.6, String::new()),
        Side::Here => (5.2, " line".to_owned()),
    };
    let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"l{colour}{class}\"/>");
}

fn place(change: f64) -> f64 {
    PLOT.0 + (PLOT.1 - PLOT.0) * (change.clamp(-ENDS, ENDS) + ENDS) / (2.0 * ENDS)
}

#[cfg(test)]
mod tests {
    use super::super::CASES;
    use super::super::tests::done;
    use super::*;
    use crate::svg::WIDTH;

    #[test]
    fn every_ranking_has_a_dot_and_a_ring() {
        let results = [
            done(&CASES[2], [10_000, 9_000], [8_000, 9_000]),
            done(&CASES[3], [10_000, 8_000], [8_000, 9_000]),
        ];
        let text = picture(&results);
        let all: usize = results.iter().map(|done| rankings(done).len()).sum();
        assert!(all > 1);
        assert_eq!(text.matches("class=\"l0\"/>").count(), all, "{text}");
        assert_eq!(text.matches("class=\"l0 line\"/>").count(), all);
        assert!(text.contains(&format!(">{}<", CASES[2].name)) && text.contains("pgscan: "));
        assert!(text.contains("Linux -20.0 %, simulated"), "{text}");
    }

    #[test]
    fn a_picture_without_results_has_its_title() {
        assert!(picture(&[]).contains("From classic to generations"));
        assert_eq!(
            (place(0.0), place(-90.0), place(f64::INFINITY)),
            ((PLOT.0 + PLOT.1) / 2.0, PLOT.0, PLOT.1)
        );
        assert!(PLOT.1 < WIDTH);
    }
}

//! A table of text: cells in aligned columns under headings. It knows nothing of results.

use std::fmt::Write;

/// Cells under headings.
#[derive(Default)]
pub struct Grid {
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// A grid with these headings.
    pub fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Grid {
        Grid { rows: vec![headings.into_iter().map(Into::into).collect()] }
    }

    /// Add a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The text, with a rule under the headings. A column for which `left` is true is aligned to the left, as words
    /// are; the others are aligned to the right, as numbers are.
    pub fn render(&self, left: impl Fn(usize) -> bool) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let (gap, width) = (if column == 0 { "" } else { "  " }, widths[column]);
                if left(column) {
                    let _ = write!(line, "{gap}{cell:<width$}");
                } else {
                    let _ = write!(line, "{gap}{cell:>width$}");
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
            if number == 0 {
                let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
                text.push_str(&rule.join("  "));
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The words of the first line of a text that begins with `start`.
    pub(crate) fn words<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
        text.lines().find(|line| line.starts_with(start)).expect(start).split_whitespace().collect()
    }

    #[test]
    fn words_are_aligned_left_and_numbers_right() {
        let mut grid = Grid::new(["name", "n"]);
        grid.row(["a", "100"]);
        grid.row(["longer", "7"]);
        assert_eq!(grid.render(|column| column == 0), "name      n\n------  ---\na       100\nlonger    7\n");
    }
}

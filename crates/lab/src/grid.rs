//! A table of text: cells in aligned columns under headings, within a width. It knows nothing of results.
//!
//! A table that is too wide gets headings of several lines first. If that is not enough, its columns are shown in
//! blocks below each other, each of which begins with the columns that say what a row is.

use std::fmt::Write;
use std::ops::Range;

/// Blanks between columns.
const GAP: usize = 2;

/// Cells under headings.
#[derive(Default)]
pub struct Grid {
    rows: Vec<Vec<String>>,
    keys: Option<usize>,
    joined: Vec<usize>,
}

impl Grid {
    /// A grid with these headings.
    pub fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Grid {
        let rows = vec![headings.into_iter().map(Into::into).collect()];
        Grid { rows, keys: None, joined: Vec::new() }
    }

    /// Begin each block with the first `keys` columns, instead of all on the left that hold words.
    pub fn keys(&mut self, keys: usize) {
        self.keys = Some(keys);
    }

    /// Keep these columns in the block of the column before.
    pub fn join(&mut self, columns: impl IntoIterator<Item = usize>) {
        self.joined.extend(columns);
    }

    /// Add a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The headings, and the other rows.
    pub fn contents(&self) -> (&[String], &[Vec<String>]) {
        (&self.rows[0], &self.rows[1..])
    }

    /// The text in at most `width` columns, with a rule under the headings. A column for which `left` is true is
    /// aligned to the left, as words are; the others are aligned to the right, as numbers are.
    pub fn render(&self, left: impl Fn(usize) -> bool, width: usize) -> String {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let words = (0..count).take_while(|&column| left(column)).count();
        let keys = self.keys.unwrap_or(words.max(1)).min(count);
        let mut text = String::new();
        for (number, block) in self.blocks(keys, count, width).into_iter().enumerate() {
            if number > 0 {
                text.push('\n');
            }
            let columns: Vec<usize> = (0..keys).chain(block).collect();
            self.block(&columns, &left, width, &mut text);
        }
        text
    }

    /// The columns besides the keys, divided so that each part fits beside them.
    fn blocks(&self, keys: usize, count: usize, width: usize) -> Vec<Range<usize>> {
        let least = |columns: Range<usize>| columns.map(|column| self.least(column) + GAP).sum::<usize>();
        let room = width.saturating_add(GAP).saturating_sub(least(0..keys));
        let mut blocks: Vec<Range<usize>> = Vec::new();
        let mut from = keys;
        while from < count {
            let end = (from + 1..count).find(|column| !self.joined.contains(column)).unwrap_or(count);
            match blocks.last_mut() {
                Some(block) if least(block.start..end) <= room => block.end = end,
                _ => blocks.push(from..end),
            }
            from = end;
        }
        if blocks.is_empty() {
            blocks.push(keys..count);
        }
        blocks
    }

    /// One block.
    fn block(&self, columns: &[usize], left: &impl Fn(usize) -> bool, width: usize, text: &mut String) {
        let mut widths = self.widths(columns, width);
        let all: usize = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        // Where even that is too wide, the first cells that do not fit have lines of their own.
        if let Some(first) = widths.first_mut() {
            *first -= all.saturating_sub(width).min(first.saturating_sub(4));
        }
        let headings: Vec<Vec<String>> = columns
            .iter()
            .zip(&widths)
            .map(|(&column, &width)| broken(self.rows[0].get(column).map_or("", String::as_str), width))
            .collect();
        let height = headings.iter().map(Vec::len).max().unwrap_or(0);
        let mut put = |cells: &[&str]| {
            let mut line = String::new();
            for (at, (&cell, &width)) in cells.iter().zip(&widths).enumerate() {
                let gap = if at == 0 { 0 } else { GAP };
                let _ = match left(columns[at]) {
                    true => write!(line, "{:gap$}{cell:<width$}", ""),
                    false => write!(line, "{:gap$}{cell:>width$}", ""),
                };
                if at == 0 && cell.chars().count() > width {
                    text.push_str(line.trim_end());
                    line = format!("\n{:width$}", "");
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        };
        for line in 0..height {
            // Headings end at the rule.
            let piece = |lines: &Vec<String>| {
                (line + lines.len()).checked_sub(height).map_or(String::new(), |at| lines[at].clone())
            };
            let pieces: Vec<String> = headings.iter().map(piece).collect();
            put(&pieces.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        put(&rules.iter().map(String::as_str).collect::<Vec<_>>());
        for row in &self.rows[1..] {
            put(&columns
                .iter()
                .filter_map(|&column| row.get(column))
                .map(String::as_str)
                .collect::<Vec<_>>());
        }
    }

    /// The widths of columns: with their headings on one line each if that fits, else wider than the least from left
    /// to right while there is room.
    fn widths(&self, columns: &[usize], width: usize) -> Vec<usize> {
        let whole =
            |column: usize| self.cells(column).max(self.rows[0].get(column).map_or(0, |cell| length(cell)));
        let mut widths: Vec<usize> = columns.iter().map(|&column| self.least(column)).collect();
        let mut room =
            width.saturating_sub(widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1));
        for (own, &column) in widths.iter_mut().zip(columns) {
            let more = (whole(column) - *own).min(room);
            *own += more;
            room -= more;
        }
        widths
    }

    /// The width of a column whose heading has a line for each piece.
    fn least(&self, column: usize) -> usize {
        let pieces = pieces(self.rows[0].get(column).map_or("", String::as_str));
        pieces.iter().map(|piece| length(piece.trim_end())).max().unwrap_or(0).max(self.cells(column))
    }

    fn cells(&self, column: usize) -> usize {
        self.rows[1..].iter().filter_map(|row| row.get(column)).map(|cell| length(cell)).max().unwrap_or(0)
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// A heading in the pieces that may be on lines of their own.
fn pieces(heading: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for (at, character) in heading.char_indices().skip(1) {
        let after = heading[..at].ends_with([' ', '.', '=', '/']);
        if (after || character == '+') && at > from {
            pieces.push(&heading[from..at]);
            from = at;
        }
    }
    pieces.push(&heading[from..]);
    pieces
}

/// A heading on lines of at most `width` characters, unless a piece is longer.
fn broken(heading: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for piece in pieces(heading) {
        match lines.last_mut() {
            Some(line) if line.is_empty() || length(line) + length(piece.trim_end()) <= width => {
                line.push_str(piece);
            }
            _ => lines.push(piece.to_owned()),
        }
    }
    lines.iter_mut().for_each(|line| line.truncate(line.trim_end().len()));
    lines
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
        let text = "name      n\n------  ---\na       100\nlonger    7\n";
        assert_eq!(grid.render(|column| column == 0, 80), text);
    }

    #[test]
    fn headings_of_a_table_that_is_too_wide_take_several_lines() {
        let mut grid = Grid::new(["metric", "classic+vm.swappiness=10", "n"]);
        grid.row(["run_time", "7 ms", "1"]);
        let text = "          classic+vm.\n          swappiness=\nmetric             10  n\n--------  -----------  -\n\
                    run_time         7 ms  1\n";
        assert_eq!(grid.render(|column| column == 0, 24), text);
    }

    #[test]
    fn columns_that_do_not_fit_follow_below_with_the_keys_again() {
        let mut grid = Grid::new(["metric", "base", "one", "change", "two", "change"]);
        grid.row(["run_time", "10", "9", "+10%", "8", "+20%"]);
        grid.keys(2);
        grid.join([3, 5]);
        let lines = "metric    base  one  change\n--------  ----  ---  ------\nrun_time    10    9    +10%\n\n\
                     metric    base  two  change\n--------  ----  ---  ------\nrun_time    10    8    +20%\n";
        assert_eq!(grid.render(|column| column == 0, 30), lines);
        assert_eq!(grid.render(|column| column == 0, 99).lines().count(), 3);
    }

    #[test]
    fn long_name_in_a_narrow_table_has_a_line_of_its_own() {
        let mut grid = Grid::new(["metric", "value"]);
        grid.row(["a_very_long_name", "1234567"]);
        grid.row(["short", "1"]);
        let text = "metric       value\n---------  -------\na_very_long_name\n           1234567\nshort            1\n";
        assert_eq!(grid.render(|column| column == 0, 18), text);
    }

    #[test]
    fn table_without_columns_has_no_text() {
        assert_eq!(Grid::new([""; 0]).render(|_| true, 80).trim(), "");
    }

    #[test]
    fn no_line_is_wider_than_asked_for() {
        let mut grid = Grid::new(["metric", "classic", "mglru", "classic+a.b=1", "change"]);
        grid.row(["workingset_refault_file", "12.3 MiB", "12.3 MiB", "12.3 MiB", "+1.00%*"]);
        for width in 34..120 {
            let text = grid.render(|column| column == 0, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        }
    }
}

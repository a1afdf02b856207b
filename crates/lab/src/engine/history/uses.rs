//! Accesses by address and time, counted while the program runs.

use crate::history::{UsedRow, Uses};
use std::collections::{BTreeMap, HashMap};

/// The most columns, of time, and the most rows, of addresses.
pub(super) const MOST_COLUMNS: usize = 192;
pub(super) const MOST_ROWS: usize = 2048;
/// Picoseconds of a column of a short run: 10 us.
const FIRST_COLUMN: u64 = 10_000_000;

/// Consecutive pages of a space: its number, and which of them, if all rows are of the same size.
type Place = (u32, u64);

/// Counts by row and column.
pub(super) struct Counted {
    /// Picoseconds of a column.
    column: u64,
    /// The power of two of a row's pages.
    order: u32,
    /// The number of each row in `counts`.
    rows: HashMap<Place, usize>,
    counts: Vec<Vec<u64>>,
    /// The row that was used last: programs stay at a place.
    last: Option<(Place, usize)>,
}

impl Default for Counted {
    fn default() -> Counted {
        Counted { column: FIRST_COLUMN, order: 0, rows: HashMap::new(), counts: Vec::new(), last: None }
    }
}

impl Counted {
    /// `count` accesses to a page, given by its space and its number there.
    pub(super) fn add(&mut self, picos: u64, (space, page): Place, count: u32) {
        while picos / self.column >= MOST_COLUMNS as u64 {
            self.column *= 2;
            self.counts.iter_mut().for_each(halve);
        }
        let (row, column) = (self.row(space, page), (picos / self.column) as usize);
        let counts = &mut self.counts[row];
        if counts.len() <= column {
            counts.resize(column + 1, 0);
        }
        counts[column] += u64::from(count);
    }

    /// The row of a page.
    fn row(&mut self, space: u32, page: u64) -> usize {
        let place = (space, page >> self.order);
        if let Some((last, row)) = self.last
            && last == place
        {
            return row;
        }
        if !self.rows.contains_key(&place) && self.counts.len() >= MOST_ROWS {
            self.join_rows();
            return self.row(space, page);
        }
        let row = *self.rows.entry(place).or_insert(self.counts.len());
        if row == self.counts.len() {
            self.counts.push(Vec::new());
        }
        self.last = Some((place, row));
        row
    }

    /// Make rows twice as large.
    fn join_rows(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        let mut old: Vec<(Place, usize)> = self.rows.drain().collect();
        old.sort_unstable();
        self.order += 1;
        self.last = None;
        for ((space, place), row) in old {
            let joined = *self.rows.entry((space, place >> 1)).or_insert(self.counts.len());
            match self.counts.get_mut(joined) {
                Some(sum) => add(sum, &counts[row]),
                None => self.counts.push(counts[row].clone()),
            }
        }
    }

    /// The counts until now. `processes`: the process that each space belongs to.
    pub(super) fn sorted(&self, processes: &BTreeMap<u32, u32>) -> Uses {
        let row = |(&(space, place), &row): (&Place, &usize)| UsedRow {
            process: processes.get(&space).copied().unwrap_or(space),
            page: place << self.order,
            counts: self.counts[row].clone(),
        };
        let mut rows: Vec<UsedRow> = self.rows.iter().map(row).collect();
        rows.sort_by_key(|row| (row.process, row.page));
        Uses { column: self.column / 1000, pages: 1 << self.order, rows }
    }
}

/// Make two columns one.
fn halve(counts: &mut Vec<u64>) {
    *counts = counts.chunks(2).map(|pair| pair.iter().sum()).collect();
}

fn add(sum: &mut Vec<u64>, more: &[u64]) {
    sum.resize(sum.len().max(more.len()), 0);
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_and_large_programs_have_coarser_counts_and_lose_none() {
        let mut counted = Counted::default();
        let mut all = 0;
        for step in 0..20_000u64 {
            counted.add(step * FIRST_COLUMN / 3, (5, step * 7 % 6000), 3);
            all += 3;
        }
        let uses = counted.sorted(&BTreeMap::from([(5, 1)]));
        assert!(uses.rows.len() <= MOST_ROWS && uses.pages == 4, "{} rows", uses.rows.len());
        assert!(uses.rows.iter().all(|row| row.counts.len() <= MOST_COLUMNS && row.process == 1));
        assert_eq!(uses.rows.iter().flat_map(|row| &row.counts).sum::<u64>(), all);
        assert!(uses.rows.is_sorted_by_key(|row| row.page));
    }

    #[test]
    fn an_access_is_counted_at_its_page_and_time() {
        let mut counted = Counted::default();
        for (time, page) in [(0, 3), (1, 3), (5, 4), (5, 90)] {
            counted.add(time * FIRST_COLUMN, (0, page), 1);
        }
        let uses = counted.sorted(&BTreeMap::from([(0, 0)]));
        let rows: Vec<_> = uses.rows.iter().map(|row| (row.page, row.counts.clone())).collect();
        let late = vec![0, 0, 0, 0, 0, 1];
        assert_eq!(rows, [(3, vec![1, 1]), (4, late.clone()), (90, late)]);
        assert_eq!((uses.pages, uses.column), (1, FIRST_COLUMN / 1000));
    }
}

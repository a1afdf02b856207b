//! A warehouse of TPC-C: its tables with their row sizes, and the rows that its five transactions touch
//! (TPC-C, revision 5.11).

use crate::Signal;
use crate::rng::Rng;
use core::ops::Range;

/// Bytes of an index entry: a key and a position.
const ENTRY: u64 = 16;
/// Districts of a warehouse.
const DISTRICTS: u64 = 10;

/// How a row is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowAccess {
    Read,
    Change,
    Insert,
}

/// The result of a transaction.
type Outcome = Result<(), Signal>;

/// Access a row of a table.
pub(super) trait Touch: FnMut(&Table, u64, RowAccess) -> Outcome {}

impl<F: FnMut(&Table, u64, RowAccess) -> Outcome> Touch for F {}

/// A table: an index of entries, whose first page is the root, followed by rows.
#[derive(Clone, Debug)]
pub(super) struct Table {
    page: u64,
    first: u64,
    index_pages: u64,
    row_bytes: u64,
    rows: u64,
}

/// Where a row's index entry and the row are: page, and byte in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Location {
    pub(super) index: (u64, u64),
    pub(super) row: (u64, u64),
}

impl Table {
    /// A table of at most `pages` pages, at least three, beginning at page `first`.
    fn new(page: u64, first: u64, pages: u64, row_bytes: u64) -> Table {
        assert!(pages >= 3, "a table of {pages} pages");
        let rows_of = |index_pages: u64| (pages - 1 - index_pages) * (page / row_bytes);
        let index_pages = (1..)
            .find(|&index| rows_of(index) <= index * (page / ENTRY))
            .expect("some number of index pages must be enough");
        Table { page, first, index_pages, row_bytes, rows: rows_of(index_pages) }
    }

    pub(super) fn root(&self) -> u64 {
        self.first
    }

    pub(super) fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Where a row is.
    pub(super) fn find(&self, row: u64) -> Location {
        let (entries, rows) = (self.page / ENTRY, self.page / self.row_bytes);
        let leaf = self.first + 1 + row / entries;
        let page = self.first + 1 + self.index_pages + row / rows;
        Location { index: (leaf, row % entries * ENTRY), row: (page, row % rows * self.row_bytes) }
    }
}

/// Bytes of a row, and rows of a warehouse (clauses 1.2 and 4.2.2).
const WAREHOUSE_AND_DISTRICTS: (u64, u64) = (95, 1 + DISTRICTS);
const CUSTOMER: (u64, u64) = (655, 30_000);
const STOCK: (u64, u64) = (306, 100_000);
const ORDER_LINE: (u64, u64) = (54, 300_000);
const ITEM: (u64, u64) = (82, 100_000);
const ORDER: (u64, u64) = (32, 30_000);
const HISTORY: (u64, u64) = (46, 30_000);

/// The tables of one.
#[derive(Debug)]
pub(super) struct Warehouse {
    warehouse: Table,
    customers: Table,
    stock: Table,
    lines: Table,
    items: Table,
    orders: Table,
    history: Table,
    /// Rows inserted so far; the newest rows replace the oldest.
    ordered: u64,
    lined: u64,
    paid: u64,
    /// Orders delivered.
    delivered: u64,
}

impl Warehouse {
    /// The fewest pages that it takes: three for each table.
    pub(super) const LEAST_PAGES: u64 = 3 * 7;

    /// A warehouse on a range of a file's pages, divided among the tables by their sizes in TPC-C.
    pub(super) fn new(pages: Range<u64>, page: u64) -> Warehouse {
        let weight = |(bytes, rows): (u64, u64)| (bytes + ENTRY) * rows;
        let all: u64 = [CUSTOMER, STOCK, ORDER_LINE, ITEM, ORDER, HISTORY].into_iter().map(weight).sum();
        // Three pages for the smallest table, and at least three for each of the others.
        let (mut first, shared) = (pages.start, pages.end - pages.start - Warehouse::LEAST_PAGES);
        let mut table = |kind: (u64, u64), share: u64| {
            let table = Table::new(page, first, 3 + shared * share / all, kind.0);
            first += 3 + shared * share / all;
            table
        };
        let mut of = |kind| table(kind, weight(kind));
        let [customers, stock, lines, items, orders, history] =
            [CUSTOMER, STOCK, ORDER_LINE, ITEM, ORDER, HISTORY].map(&mut of);
        let warehouse = table(WAREHOUSE_AND_DISTRICTS, 0);
        let (ordered, lined) = (orders.rows, lines.rows);
        Warehouse {
            warehouse,
            customers,
            stock,
            lines,
            items,
            orders,
            history,
            ordered,
            lined,
            paid: 0,
            delivered: 0,
        }
    }

    /// Run the next transaction, by the minimum shares of the standard (clause 5.2.3).
    pub(super) fn transaction(&mut self, rng: &mut Rng, mut row: impl Touch) -> Outcome {
        match rng.below(100) {
            0..45 => self.new_order(rng, &mut row),
            45..88 => self.payment(rng, &mut row),
            88..92 => self.order_status(rng, &mut row),
            92..96 => self.delivery(rng, &mut row),
            _ => self.stock_level(rng, &mut row),
        }
    }

    fn customer(&self, rng: &mut Rng) -> u64 {
        // NURand(1023, 1, 3000) of a district.
        let each = self.customers.rows / DISTRICTS;
        rng.below(DISTRICTS) * each + skewed(rng, each, 3)
    }

    fn new_order(&mut self, rng: &mut Rng, row: &mut impl Touch) -> Outcome {
        row(&self.warehouse, 0, RowAccess::Read)?;
        row(&self.warehouse, 1 + rng.below(DISTRICTS), RowAccess::Change)?;
        row(&self.customers, self.customer(rng), RowAccess::Read)?;
        row(&self.orders, self.ordered % self.orders.rows, RowAccess::Insert)?;
        self.ordered += 1;
        for _ in 0..5 + rng.below(11) {
            // NURand(8191, 1, 100000).
            let item = skewed(rng, self.items.rows.min(self.stock.rows), 12);
            row(&self.items, item, RowAccess::Read)?;
            row(&self.stock, item, RowAccess::Change)?;
            row(&self.lines, self.lined % self.lines.rows, RowAccess::Insert)?;
            self.lined += 1;
        }
        Ok(())
    }

    fn payment(&mut self, rng: &mut Rng, row: &mut impl Touch) -> Outcome {
        row(&self.warehouse, 0, RowAccess::Change)?;
        row(&self.warehouse, 1 + rng.below(DISTRICTS), RowAccess::Change)?;
        row(&self.customers, self.customer(rng), RowAccess::Change)?;
        row(&self.history, self.paid % self.history.rows, RowAccess::Insert)?;
        self.paid += 1;
        Ok(())
    }

    fn order_status(&mut self, rng: &mut Rng, row: &mut impl Touch) -> Outcome {
        row(&self.customers, self.customer(rng), RowAccess::Read)?;
        // The age of a customer's last order is random.
        let age = rng.below(self.orders.rows);
        row(&self.orders, (self.ordered - 1 - age) % self.orders.rows, RowAccess::Read)?;
        self.lines_of(age, RowAccess::Read, row)
    }

    fn delivery(&mut self, rng: &mut Rng, row: &mut impl Touch) -> Outcome {
        for _ in 0..DISTRICTS {
            // The oldest order that is not delivered; at first these are three in ten (clause 4.3.3).
            let waiting =
                (self.orders.rows * 3 / 10 + self.ordered - self.orders.rows).saturating_sub(self.delivered);
            let age = waiting.clamp(1, self.orders.rows) - 1;
            row(&self.orders, (self.ordered - 1 - age) % self.orders.rows, RowAccess::Change)?;
            self.lines_of(age, RowAccess::Change, row)?;
            row(&self.customers, self.customer(rng), RowAccess::Change)?;
            self.delivered += 1;
        }
        Ok(())
    }

    fn stock_level(&mut self, rng: &mut Rng, row: &mut impl Touch) -> Outcome {
        row(&self.warehouse, 1 + rng.below(DISTRICTS), RowAccess::Read)?;
        for age in 0..20u64.min(self.orders.rows) {
            self.lines_of(age, RowAccess::Read, row)?;
            for _ in 0..10 {
                row(&self.stock, skewed(rng, self.stock.rows, 12), RowAccess::Read)?;
            }
        }
        Ok(())
    }

    /// The ten lines of the order with `age` orders after it.
    fn lines_of(&self, age: u64, access: RowAccess, row: &mut impl Touch) -> Outcome {
        (0..10).try_for_each(|line| {
            let back = (age * 10 + line) % self.lines.rows;
            row(&self.lines, (self.lined - 1 - back) % self.lines.rows, access)
        })
    }
}

/// TPC-C's NURand over `0..n`: the bitwise or of a number below a power of two near `n / share` and a number
/// below `n` (clause 2.1.6).
fn skewed(rng: &mut Rng, n: u64, share: u64) -> u64 {
    let few = (n / share).max(1).next_power_of_two();
    (rng.below(few) | rng.below(n)) % n
}

#[cfg(test)]
mod tests;

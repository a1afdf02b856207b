//! Tables of runs with all that they measured, for other programs: as CSV, Parquet, and Arrow in memory.

#[cfg(feature = "parquet")]
pub mod parquet;

use crate::metrics;
use crate::record::RunRecord;
use std::collections::BTreeSet;

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// The columns, all of the same length, each with its name.
    pub columns: Vec<(String, Column)>,
}

/// The values of a column, one for each row; `None` where the row has none.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Texts.
    Text(Vec<Option<String>>),
    /// Counts.
    Count(Vec<Option<u64>>),
    /// Numbers.
    Number(Vec<Option<f64>>),
}

impl Column {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Column::Text(values) => values.len(),
            Column::Count(values) => values.len(),
            Column::Number(values) => values.len(),
        }
    }

    /// A value as CSV has it; empty where there is none.
    fn csv(&self, row: usize) -> String {
        fn text<T: ToString>(value: &Option<T>) -> String {
            value.as_ref().map_or(String::new(), T::to_string)
        }
        match self {
            Column::Text(values) => text(&values[row]),
            Column::Count(values) => text(&values[row]),
            Column::Number(values) => text(&values[row]),
        }
    }
}

impl Columns {
    /// Add a column.
    pub fn add(&mut self, name: &str, column: Column) {
        debug_assert!(self.columns.iter().all(|(_, other)| other.rows() == column.rows()), "{name}");
        self.columns.push((name.to_owned(), column));
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.rows())
    }

    /// Add everything that runs have measured, in the units of `pagefold list metrics`: a row for each run, and none of
    /// it for a run that could not be done.
    pub fn add_measured(&mut self, runs: &[Option<&RunRecord>]) {
        let records = || runs.iter().copied().flatten();
        let counters: BTreeSet<&str> =
            records().flat_map(|run| run.counters.keys().map(String::as_str)).collect();
        let metrics: BTreeSet<&str> =
            records().flat_map(|run| run.metrics.iter().map(|one| &one.name[..])).collect();
        for name in ["run_time"].into_iter().chain(metrics).chain(counters) {
            let value = |run: &Option<&RunRecord>| {
                let run = (*run)?;
                metrics::find(run, name).map(|metric| metric.value(run))
            };
            self.add(name, Column::Number(runs.iter().map(value).collect()));
        }
    }

    /// The runs of an experiment.
    pub fn of_runs(runs: &[RunRecord]) -> Columns {
        let mut columns = Columns::default();
        columns.add("profile", Column::Text(runs.iter().map(|run| Some(run.profile.clone())).collect()));
        columns.add("seed", Column::Count(runs.iter().map(|run| Some(run.seed)).collect()));
        columns.add_measured(&runs.iter().map(Some).collect::<Vec<_>>());
        columns
    }

    /// The table as CSV; the first line names the columns.
    pub fn csv(&self) -> String {
        let mut csv = csv::Writer::from_writer(Vec::new());
        let written = "a row is written to memory";
        csv.write_record(self.columns.iter().map(|(name, _)| name)).expect(written);
        for row in 0..self.rows() {
            csv.write_record(self.columns.iter().map(|(_, column)| column.csv(row))).expect(written);
        }
        String::from_utf8(csv.into_inner().expect(written)).expect("it was made of text")
    }
}

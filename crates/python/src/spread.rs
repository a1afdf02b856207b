//! A sweep whose runs the workers of a cluster do.

use crate::commands::carry_out;
use crate::errors::exception;
use crate::table::Table;
use lab::caller::Caller;
use lab::cli::spread;
use lab::error::Result;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// An open directory of a sweep.
#[pyclass(frozen, module = "pagefold._pagefold")]
pub struct Spread {
    words: Vec<String>,
    spread: Mutex<Option<spread::Spread>>,
}

impl Spread {
    fn with<T>(&self, use_it: impl FnOnce(&spread::Spread) -> Result<T>) -> PyResult<T> {
        let spread = self.spread.lock().unwrap_or_else(PoisonError::into_inner);
        let spread = spread.as_ref().ok_or_else(|| PyValueError::new_err("the sweep is finished"))?;
        use_it(spread).map_err(|error| exception(&error))
    }

    fn take(&self) -> Option<spread::Spread> {
        self.spread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Spread {
    #[new]
    fn new(py: Python<'_>, words: Vec<String>) -> PyResult<Spread> {
        let words: Vec<String> = ["pagefold".to_owned()].into_iter().chain(words).collect();
        // A caller's: errors and notes, and no handler of signals.
        let opened = py.detach(|| Caller::new(words.clone()).call(|| spread::Spread::open(&words)));
        let spread = Mutex::new(Some(opened.map_err(|error| exception(&error))?));
        Ok(Spread { words, spread })
    }

    /// The runs that are left, in order.
    fn left(&self) -> PyResult<Vec<String>> {
        self.with(spread::Spread::left)
    }

    /// The files that workers must have.
    fn files(&self) -> PyResult<Vec<String>> {
        self.with(|spread| Ok(spread.files().into_iter().collect()))
    }

    /// Keep what a worker has answered to a run.
    fn keep(&self, py: Python<'_>, run: &str, answer: &str) -> PyResult<()> {
        py.detach(|| self.with(|spread| spread.keep(run, answer)))
    }

    /// Close the directory with the result. Returns what `sweep` prints, and the table of runs.
    fn finish(&self, py: Python<'_>, complete: bool) -> PyResult<(String, Option<Table>)> {
        let spread = self.take().ok_or_else(|| PyValueError::new_err("the sweep is finished"))?;
        let caller = Caller::new(self.words.clone());
        py.detach(|| caller.call(|| spread.finish(complete))).map_err(|error| exception(&error))?;
        let told = caller.told();
        Ok((told.printed, told.runs.map(Table::of).transpose()?))
    }

    /// Leave the directory to others, with the runs that are kept. An exception may keep this object for long.
    fn close(&self) {
        drop(self.take());
    }
}

/// Version and commit of this build.
#[pyfunction]
pub fn build() -> String {
    spread::build()
}

/// Do a run, with copies of files: by the names of the files, where they are.
#[pyfunction]
pub fn work(py: Python<'_>, run: String, copies: BTreeMap<String, String>) -> PyResult<String> {
    let (answer, _) = carry_out(py, vec!["pagefold".to_owned()], move || spread::work(&run, &copies))?;
    answer.map_err(|error| exception(&error))
}

//! Traces of page numbers that are in arrays of numpy.

use crate::commands::carry_out;
use crate::errors::exception;
use lab::cli::{Accesses, import_accesses};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A piece of the arrays: page numbers, stores, threads, each as little-endian bytes.
type Piece = (PyBackedBytes, PyBackedBytes, PyBackedBytes);

/// Write a trace. `piece(i)` gives the i-th piece of the arrays, or None after the last; it is asked for all of them
/// twice.
#[pyfunction]
pub fn write_trace(py: Python<'_>, output: PathBuf, pages: Option<String>, piece: Py<PyAny>) -> PyResult<()> {
    let raised = Arc::new(Mutex::new(None));
    let raise = raised.clone();
    let work = move || {
        import_accesses(&output, pages.as_deref(), &mut |sink| {
            for number in 0_u64.. {
                let next = Python::attach(|py| -> PyResult<Option<Piece>> {
                    piece.call1(py, (number,))?.extract(py)
                });
                match next {
                    Ok(Some(piece)) => {
                        if lab::caller::is_stopped() || !pass_on(&piece, sink) {
                            return false;
                        }
                    }
                    Ok(None) => return true,
                    Err(error) => {
                        *raise.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                        return false;
                    }
                }
            }
            true
        })
    };
    let (result, _) = carry_out(py, vec!["pagefold".to_owned(), "import".to_owned()], work)?;
    if let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    result.map_err(|error| exception(&error))
}

fn pass_on((pages, stores, threads): &Piece, sink: &mut dyn FnMut(Accesses<'_>) -> bool) -> bool {
    let words = |bytes: &[u8]| -> Vec<u64> {
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
    };
    let (pages, threads) = (words(pages), words(threads));
    let stores: Vec<bool> = stores.iter().map(|&byte| byte != 0).collect();
    sink(Accesses { pages: &pages, stores: &stores, threads: &threads })
}

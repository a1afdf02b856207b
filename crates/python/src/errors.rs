//! Errors of commands as exceptions.

use lab::error::Error;
use pyo3::create_exception;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    pagefold,
    RunFailed,
    PyRuntimeError,
    "A run failed. The message has the command that repeats it; `result` is the result of the other runs, or None."
);

/// The exception of an error, with the line that the command would print.
pub fn exception(error: &Error) -> PyErr {
    let line = error.line();
    match error {
        Error::Input(_) | Error::OutOfMemory(_) | Error::TimeLimit(_) => PyValueError::new_err(line),
        Error::Failed(_) => RunFailed::new_err(line),
        Error::Full(_) | Error::BrokenPipe => PyOSError::new_err(line),
        Error::Interrupted(_) => PyKeyboardInterrupt::new_err(line),
    }
}

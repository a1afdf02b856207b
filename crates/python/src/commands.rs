//! Commands: on a thread of their own, without the lock of the interpreter, until they end or Ctrl-C stops them.

use crate::errors::exception;
use crate::table::Table;
use lab::caller::{Caller, Told};
use lab::error::{Error, Result};
use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often the interpreter is asked for signals.
const PATIENCE: Duration = Duration::from_millis(50);
/// The stack of a process's first thread under Linux, on which the command line carries out commands.
const STACK_BYTES: usize = 8 << 20;

/// Carry out a command, given by its words after `pagefold`. Returns what it would have printed, a table of its runs
/// if it keeps any, and the exception of what failed while others went well.
#[pyfunction]
pub fn call(py: Python<'_>, words: Vec<String>) -> PyResult<(String, Option<Table>, Option<Py<PyAny>>)> {
    let words: Vec<String> = ["pagefold".to_owned()].into_iter().chain(words).collect();
    let args: Vec<_> = words.iter().map(Into::into).collect();
    let (result, told) = carry_out(py, words, move || lab::cli::main(args))?;
    let runs = told.runs.map(Table::of).transpose()?;
    match result {
        Ok(()) => Ok((told.printed, runs, None)),
        Err(error) if told.printed.is_empty() => Err(exception(&error)),
        Err(error) => Ok((told.printed, runs, Some(exception(&error).into_value(py).into_any()))),
    }
}

/// Do `work` for a caller with these words. A signal whose handler raises, as that of Ctrl-C does, stops it.
pub fn carry_out<T: Send + 'static>(
    py: Python<'_>,
    words: Vec<String>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<(Result<T>, Told)> {
    let caller = Caller::new(words);
    let (sender, receiver) = channel();
    // A receiver alone may not be used without the lock of the interpreter.
    let receiver = Mutex::new(receiver);
    let next = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(PATIENCE);
    let of_thread = caller.clone();
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        let result = of_thread.call(work);
        // The receiver waits for it.
        let _ = sender.send(result);
    })?;
    let mut raised = None;
    let result = loop {
        match py.detach(next) {
            Ok(result) => break result,
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = py.check_signals() {
                    caller.stop();
                    raised.get_or_insert(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                // The thread panicked; the message is on standard error.
                break Err(Error::Failed("the command ended by a panic".to_owned()));
            }
        }
    };
    let _ = py.detach(|| thread.join());
    match raised {
        Some(error) => Err(error),
        None => Ok((result, caller.told())),
    }
}

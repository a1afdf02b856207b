//! Standard output.

use crate::error::{Error, Result};
use serde::Serialize;
use std::io::{ErrorKind, Write};

/// Print `text`; that the reader has gone away is no error of ours.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Error::BrokenPipe),
        Err(error) => Err(Error::Input(format!("cannot write to standard output: {error}"))),
    }
}

/// One JSON value and a line end.
pub fn json(value: &impl Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Failed(format!("cannot write the result as JSON: {error}")))?;
    text.push('\n');
    Ok(text)
}

//! Folders for files that go away with what they are for.

use crate::error::{Error, Result};
use tempfile::TempDir;

/// A new folder among the system's temporary files.
///
/// # Errors
/// It cannot be made.
pub fn folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("pagefold-").tempdir();
    folder.map_err(|error| Error::output("make a folder in", &std::env::temp_dir(), &error))
}

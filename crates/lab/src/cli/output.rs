//! Output: to standard output and to files that the user named.

use crate::document::{Document, to_json};
use crate::error::{Error, Result};
use crate::list::Listing;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Print `text`. A reader that is gone is not an error of the command.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Error::BrokenPipe),
        Err(error) => Err(Error::Input(format!("cannot write to standard output: {error}"))),
    }
}

/// Print a result as text or as JSON.
pub fn show(document: &impl Document, as_json: bool) -> Result<()> {
    print(&if as_json { document.json()? } else { document.text() })
}

/// The error of a comparison whose sides did not do the same work.
pub fn check_same_work(same: bool, sides: &str) -> Result<()> {
    let why = || format!("the {sides} did not do the same work, so their results cannot be compared");
    if same { Ok(()) } else { Err(Error::Failed(why())) }
}

/// Print a list as text or as JSON.
pub fn print_listing(listing: &Listing, as_json: bool) -> Result<()> {
    if as_json { print(&to_json(&listing.to_json())?) } else { print(&listing.to_text()) }
}

/// Refuse a path at which no file can be created, before time is spent on its contents. Change nothing.
pub fn check_file(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() {
        return Err(Error::file("write", path, "it is a directory"));
    }
    match folder.is_dir() {
        true => Ok(()),
        false => Err(Error::file("write", path, "its folder does not exist")),
    }
}

/// Write `text` to `path`. An existing file stays until all of it is written; a device or a pipe is written to.
pub fn save(path: &Path, text: &str) -> Result<()> {
    let refuse = |error: std::io::Error| Error::file("write", path, error);
    let end = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if end.exists() && !end.is_file() {
        return std::fs::write(&end, text).map_err(refuse);
    }
    let mut part = end.clone().into_os_string();
    part.push(".part");
    let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, &end));
    written.map_err(|error| {
        // The first error matters. The incomplete file must not stay.
        let _ = std::fs::remove_file(&part);
        refuse(error)
    })
}

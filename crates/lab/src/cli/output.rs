//! Output: to standard output and to files that the user named.

use crate::caller::Caller;
use crate::document::{Document, to_json};
use crate::error::{Error, Result};
use crate::human;
use crate::list::Listing;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Print `text`, or hand it to the caller. A reader that is gone is not an error of the command.
pub fn print(text: &str) -> Result<()> {
    if let Some(caller) = Caller::current() {
        caller.print(text);
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Error::BrokenPipe),
        Err(error) => {
            let failed = Error::Input(format!("cannot write to standard output: {error}"));
            Err(Error::full(error.kind(), failed))
        }
    }
}

/// Print a result as text or as JSON.
pub fn show(document: &impl Document, as_json: bool) -> Result<()> {
    if as_json { print(&document.json()?) } else { print_text(|width| document.text(width)) }
}

/// Print a result that is one JSON object, or what `text` makes of it for lines of a width.
pub fn either(as_json: bool, result: &impl Serialize, text: impl FnOnce(usize) -> String) -> Result<()> {
    if as_json { print(&to_json(result)?) } else { print_text(text) }
}

fn print_text(text: impl FnOnce(usize) -> String) -> Result<()> {
    print(&human::rendered(width(), text))
}

/// The width of lines: what COLUMNS says, else the terminal's, else [`human::WIDTH`].
fn width() -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal =
        || terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
    said.or_else(terminal).filter(|&width| width > 0).unwrap_or(human::WIDTH).max(40)
}

/// The error of a comparison whose sides did not do the same work.
pub fn check_same_work(same: bool, sides: &str) -> Result<()> {
    let why = || format!("the {sides} did not do the same work, so their results cannot be compared");
    if same { Ok(()) } else { Err(Error::Failed(why())) }
}

/// Print a list as text or as JSON.
pub fn print_listing(listing: &Listing, as_json: bool) -> Result<()> {
    either(as_json, &listing.to_json(), |width| listing.to_text(width))
}

/// Whether a path is standard output, where nothing else is printed then.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// [`check_file`] for a file besides the result, which may be printed as JSON.
pub fn check_beside(path: &Path, as_json: bool) -> Result<()> {
    if as_json && is_stdout(path) {
        return Err(Error::input("'-' is standard output, where --json prints the result; name a file"));
    }
    check_file(path)
}

/// [`check_beside`] for several files, of which only one can be standard output.
pub fn check_all_beside<'a>(paths: impl Iterator<Item = &'a Path> + Clone, as_json: bool) -> Result<()> {
    if paths.clone().filter(|path| is_stdout(path)).count() > 1 {
        return Err(Error::input("'-' is standard output, where one file can go; name the others"));
    }
    paths.into_iter().try_for_each(|path| check_beside(path, as_json))
}

/// [`check_file`] for a file that is not text.
pub fn check_binary(path: &Path) -> Result<()> {
    match is_stdout(path) {
        true => Err(Error::input("'-' is standard output, where the result is printed; name a file")),
        false => check_file(path),
    }
}

/// Refuse a path at which no file can be created, before time is spent on its contents. Change nothing.
pub fn check_file(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if is_stdout(path) {
        return Ok(());
    }
    if path.is_symlink() && !path.exists() {
        return Err(Error::file("write", path, "it is a link that leads nowhere"));
    }
    if path.is_dir() {
        return Err(Error::file("write", path, "it is a directory"));
    }
    match folder.is_dir() {
        true => Ok(()),
        false => Err(Error::file("write", path, "its folder does not exist")),
    }
}

/// Refuse a path at which no directory is or can be created. Change nothing.
pub fn check_directory(path: &Path) -> Result<()> {
    match path.is_dir() {
        true => Ok(()),
        false if path.exists() => Err(Error::file("write into", path, "it is not a directory")),
        false => check_file(path),
    }
}

/// Write files into a directory, by their paths in it. Folders are created; existing files are replaced.
pub fn save_all(dir: &Path, files: &BTreeMap<String, String>) -> Result<()> {
    for (name, text) in files {
        let path = dir.join(name);
        let folder = path.parent().unwrap_or(dir);
        std::fs::create_dir_all(folder).map_err(|error| Error::output("create", folder, &error))?;
        save(&path, text)?;
    }
    Ok(())
}

/// Write `text` to `path`; `-` is standard output. An existing file stays until all of it is written; a device or a
/// pipe is written to.
pub fn save(path: &Path, text: &str) -> Result<()> {
    if is_stdout(path) {
        return print(text);
    }
    let (mut file, part) = Part::create(path)?;
    part.keep(file.write_all(text.as_bytes()))
}

/// A file that is being written. One that exists stays until all of it is written; a device or a pipe is written to.
pub struct Part {
    path: PathBuf,
    /// Where it is written, and where it goes then; `None`: it is written in place.
    names: Option<(PathBuf, PathBuf)>,
}

impl Part {
    /// Begin to write a file.
    pub fn create(path: &Path) -> Result<(File, Part)> {
        let end = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let names = (!end.exists() || end.is_file()).then(|| {
            let mut part = end.clone().into_os_string();
            part.push(".part");
            (PathBuf::from(part), end.clone())
        });
        let file = File::create(names.as_ref().map_or(&end, |(part, _)| part));
        let file = file.map_err(|error| Error::write(path, &error))?;
        Ok((file, Part { path: path.to_owned(), names }))
    }

    /// Give the file its name if all of it was `written`; otherwise it does not stay.
    pub fn keep(self, written: std::io::Result<()>) -> Result<()> {
        let Some((part, end)) = self.names else {
            return written.map_err(|error| Error::write(&self.path, &error));
        };
        written.and_then(|()| std::fs::rename(&part, &end)).map_err(|error| {
            // The first error matters. The incomplete file must not stay.
            let _ = std::fs::remove_file(&part);
            Error::write(&self.path, &error)
        })
    }
}

//! Run directories: a result as an artefact that can be rendered again.
//!
//! ```text
//! config.json    what was run (the same keys as in the result)
//! raw.json       every run: counters, costs, oracle
//! summary.txt    the table
//! summary.json   the result
//! ```
//!
//! Each file appears whole or not at all: it is written under a temporary name, synced, and renamed. `raw.json` is
//! written anew every second while runs finish, so what was finished survives whatever ends the process.

use crate::error::{Error, Result};
use crate::record::RunRecord;
use crate::summary::Setup;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const CONFIG: &str = "config.json";
const RAW: &str = "raw.json";

/// An output directory that is ours to fill.
pub struct RunDir {
    path: PathBuf,
}

/// What `raw.json` holds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Raw {
    /// Seconds that the experiment has taken so far.
    pub host_seconds: f64,
    /// The runs that were finished.
    pub runs: Vec<RunRecord>,
}

impl RunDir {
    /// Is `path` free for a result? It must not exist, or be an empty directory. Touches nothing.
    pub fn check(path: &Path) -> Result<()> {
        match fs::read_dir(path) {
            Ok(mut entries) => match entries.next() {
                None => Ok(()),
                Some(_) => Err(Error::Input(format!(
                    "the output directory {} is not empty; name a new one, nothing is overwritten",
                    path.display()
                ))),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::file("use the output directory", path, error)),
        }
    }

    /// Take `path` for a result and write what will be run.
    pub fn create(path: &Path, setup: &Setup) -> Result<RunDir> {
        RunDir::check(path)?;
        fs::create_dir_all(path).map_err(|error| Error::file("create the output directory", path, error))?;
        let dir = RunDir { path: path.to_owned() };
        dir.write_json(CONFIG, setup)?;
        Ok(dir)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Write the runs that are finished.
    pub fn save_raw(&self, raw: &Raw) -> Result<()> {
        self.write_json(RAW, raw)
    }

    /// Write the rendered result.
    pub fn save_summary(&self, text: &str, json: &str) -> Result<()> {
        self.write("summary.txt", text.as_bytes())?;
        self.write("summary.json", json.as_bytes())
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let mut text =
            serde_json::to_string_pretty(value).map_err(|error| Error::Failed(error.to_string()))?;
        text.push('\n');
        self.write(name, text.as_bytes())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write(&self.path, name, bytes)
    }
}

/// Write a file of a directory of ours: it appears whole or not at all.
pub fn write(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let (path, temporary) = (dir.join(name), part(dir, name));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, &path));
    written.map_err(|error| {
        // The error that matters is the first; a half-written file should not stay behind it.
        let _ = fs::remove_file(&temporary);
        Error::file("write", &path, error)
    })
}

/// Remove what a process has left that was killed while it wrote a file of a directory of ours.
pub fn remove_part(dir: &Path, name: &str) {
    let _ = fs::remove_file(part(dir, name));
}

fn part(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.part"))
}

/// Read a run directory back.
pub fn load(path: &Path) -> Result<(Setup, Raw)> {
    let setup: Setup = read_json(&path.join(CONFIG))?;
    if setup.schema > crate::summary::SCHEMA {
        return Err(Error::Input(format!(
            "{} was written by a newer Pagefold (schema {}, this one knows {}); use that version",
            path.display(),
            setup.schema,
            crate::summary::SCHEMA
        )));
    }
    Ok((setup, read_json(&path.join(RAW))?))
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).map_err(|error| Error::file("read", path, error))?;
    // The parser's message names line and column.
    serde_json::from_str(&text).map_err(|error| Error::file("understand", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::{setup, three_seeds};

    #[test]
    fn what_is_written_is_read_back() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("deep/result");
        let dir = RunDir::create(&path, &setup(&["a", "b"])).unwrap();
        dir.save_raw(&Raw { host_seconds: 2.5, runs: three_seeds() }).unwrap();
        dir.save_summary("text", "{}").unwrap();
        let (read, raw) = load(&path).unwrap();
        assert_eq!((read, raw.runs, raw.host_seconds), (setup(&["a", "b"]), three_seeds(), 2.5));
        let mut names: Vec<_> = fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["config.json", "raw.json", "summary.json", "summary.txt"]);
    }

    #[test]
    fn a_directory_with_something_in_it_is_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("mine"), "precious").unwrap();
        let error = RunDir::create(scratch.path(), &setup(&["a"])).err().unwrap();
        assert!(error.to_string().contains("is not empty") && error.exit_code() == 2);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
        let file = scratch.path().join("mine");
        assert_eq!(RunDir::check(&file).unwrap_err().exit_code(), 2);
        assert_eq!(fs::read_to_string(file).unwrap(), "precious");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(load(scratch.path()).unwrap_err().to_string().contains("config.json"));
        fs::write(scratch.path().join(CONFIG), "{\n  \"schema\": x").unwrap();
        assert!(load(scratch.path()).unwrap_err().to_string().contains("line 2"));
        let newer = Setup { schema: 99, ..setup(&["a"]) };
        fs::write(scratch.path().join(CONFIG), serde_json::to_string(&newer).unwrap()).unwrap();
        assert!(load(scratch.path()).unwrap_err().to_string().contains("newer Pagefold"));
    }
}

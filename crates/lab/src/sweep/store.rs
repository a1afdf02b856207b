//! The directory of a sweep.
//!
//! ```text
//! sweep.toml     the sweep's file, as it was when the sweep began
//! runs.jsonl     a line for each finished run; the first line says what made them
//! result.*       what is made of them, in the end or after an interrupt
//! ```
//!
//! A line is written whole or, if the process ends in the middle of it, cut off when the sweep goes on. One process at
//! a time: it holds a lock on the file of runs.

use super::What;
use crate::error::{Error, Result};
use crate::record::RunRecord;
use crate::rundir::{self, RunDir};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Version of the file of runs.
const SCHEMA: u32 = 1;
const SWEEP: &str = "sweep.toml";
const RUNS: &str = "runs.jsonl";
/// Finished runs survive a loss of power after this time; that of the process they survive at once.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// The first line.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Made {
    schema: u32,
    version: String,
    commit: String,
}

impl Made {
    fn here() -> Made {
        Made {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("PAGEFOLD_COMMIT").to_owned(),
        }
    }
}

/// Which run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// What it was told.
    #[serde(flatten)]
    pub what: What,
    /// Its seed.
    pub seed: u64,
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Done {
    /// Its numbers.
    Record(Box<RunRecord>),
    /// Why it has none.
    Missing(String),
}

/// Any other line; what it is made of is only lent when it is written.
#[derive(Serialize, Deserialize)]
struct Line<K, D> {
    key: K,
    #[serde(flatten)]
    done: D,
}

/// An open directory.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    runs: File,
    /// Bytes of whole lines.
    len: u64,
    synced: Instant,
}

impl Store {
    /// Take a directory for the sweep of this text: a new or empty one, or one in which it was begun. Returns what is
    /// done already.
    pub fn open(path: &Path, text: &str) -> Result<(Store, BTreeMap<Key, Done>)> {
        let sweep = path.join(SWEEP);
        match std::fs::read_to_string(&sweep) {
            Ok(before) if before == text => {}
            Ok(_) => {
                return Err(Error::Input(format!(
                    "{} differs from the sweep that is asked for; name another directory, nothing is overwritten",
                    sweep.display()
                )));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Half of the file stays where a process was killed that had only begun to write it.
                rundir::remove_part(path, SWEEP);
                RunDir::check(path)?;
                let made = std::fs::create_dir_all(path);
                made.map_err(|error| Error::file("create the output directory", path, error))?;
                rundir::write(path, SWEEP, text.as_bytes())?;
            }
            Err(error) => return Err(Error::file("read", &sweep, error)),
        }
        let at = path.join(RUNS);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&at);
        let runs = opened.map_err(|error| Error::file("open", &at, error))?;
        match runs.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Input(format!("another sweep is at work in {}", path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(Error::file("lock", &at, error)),
        }
        let mut store = Store { path: path.to_owned(), runs, len: 0, synced: Instant::now() };
        let done = store.load()?;
        Ok((store, done))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keep what became of a run.
    pub fn append(&mut self, key: &Key, done: &Done) -> Result<()> {
        self.write(&Line { key, done })?;
        if self.synced.elapsed() > SYNC_EVERY {
            self.synced = Instant::now();
            self.runs.sync_data().map_err(|error| self.failed("write", error))?;
        }
        Ok(())
    }

    fn failed(&self, doing: &str, why: impl std::fmt::Display) -> Error {
        Error::file(doing, &self.path.join(RUNS), why)
    }

    fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string(line).map_err(|error| Error::Failed(error.to_string()))?;
        text.push('\n');
        if let Err(error) = self.runs.write_all(text.as_bytes()) {
            // Without the half that may have been written; if that fails, too, the next who opens it does it.
            let _ = self.runs.set_len(self.len);
            return Err(self.failed("write", format!("{error}; the same command goes on when there is room")));
        }
        self.len += text.len() as u64;
        Ok(())
    }

    /// Read what is there, and cut off what is not whole.
    fn load(&mut self) -> Result<BTreeMap<Key, Done>> {
        let mut bytes = Vec::new();
        self.runs.read_to_end(&mut bytes).map_err(|error| self.failed("read", error))?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.len = whole as u64;
        let cut = self.runs.set_len(self.len).and_then(|()| self.runs.seek(SeekFrom::End(0)));
        cut.map_err(|error| self.failed("write", error))?;
        let mut lines = bytes[..whole].split_inclusive(|&byte| byte == b'\n').zip(1..);
        let Some((first, _)) = lines.next() else {
            self.write(&Made::here())?;
            return Ok(BTreeMap::new());
        };
        let bad = |line: u32, error| self.failed("understand", format!("line {line}: {error}"));
        let made: Made = serde_json::from_slice(first).map_err(|error| bad(1, error))?;
        if made != Made::here() {
            return Err(Error::Input(format!(
                "{} was begun by Pagefold {} at commit {}, and this is {} at {}: a sweep is of one version; name \
                 another directory",
                self.path.display(),
                made.version,
                made.commit,
                Made::here().version,
                Made::here().commit
            )));
        }
        let line = |(bytes, number): (&[u8], u32)| {
            let Line::<Key, Done> { key, done } =
                serde_json::from_slice(bytes).map_err(|error| bad(number, error))?;
            Ok((key, done))
        };
        lines.map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::run;

    fn key(seed: u64) -> Key {
        let what = What {
            program: "zipf:1M".into(),
            machine: "small".into(),
            memory: Some("50%".into()),
            profile: "lazy".into(),
            set: vec!["vm.swappiness=1".into()],
            fragment: None,
            verify: false,
        };
        Key { what, seed }
    }

    fn open(path: &Path) -> (Store, BTreeMap<Key, Done>) {
        Store::open(path, "text").unwrap()
    }

    #[test]
    fn what_is_done_is_read_again_and_half_a_line_is_not() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("deep/sweep");
        let record = Done::Record(Box::new(run("lazy", 1, 5_000, &[])));
        let (mut store, done) = open(&path);
        assert!(done.is_empty());
        store.append(&key(1), &record).unwrap();
        store.append(&key(2), &Done::Missing("out of memory".into())).unwrap();
        drop(store);
        let all = std::fs::read(path.join(RUNS)).unwrap();
        // Wherever the file ends, all whole lines are there, and what comes next is whole, too.
        let ends: Vec<usize> = (0..all.len()).filter(|&at| all[at] == b'\n').map(|at| at + 1).collect();
        for len in (0..=all.len()).step_by(7).chain([all.len()]) {
            std::fs::write(path.join(RUNS), &all[..len]).unwrap();
            let (mut store, done) = open(&path);
            assert_eq!(done.len(), ends.iter().filter(|&&end| end <= len).count().saturating_sub(1), "{len}");
            store.append(&key(3), &record).unwrap();
            drop(store);
            assert_eq!(open(&path).1.get(&key(3)), Some(&record));
        }
    }

    #[test]
    fn a_sweep_that_was_killed_before_it_began_begins() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join(".sweep.toml.part"), "te").unwrap();
        assert!(open(scratch.path()).1.is_empty());
    }

    #[test]
    fn a_directory_that_is_not_this_sweeps_is_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("mine");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("file"), "precious").unwrap();
        let refused = |expected: &str| {
            let error = Store::open(&path, "text").err().unwrap();
            assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{error}");
        };
        refused("is not empty");
        std::fs::write(path.join(SWEEP), "other").unwrap();
        refused("differs from the sweep");
        std::fs::write(path.join(SWEEP), "text").unwrap();
        let (store, _) = open(&path);
        refused("another sweep is at work");
        drop(store);
        std::fs::write(path.join(RUNS), "{\"schema\":1,\"version\":\"0\",\"commit\":\"abc\"}\n").unwrap();
        refused("at commit abc");
        std::fs::write(path.join(RUNS), "nonsense\n").unwrap();
        refused("line 1");
        assert_eq!(std::fs::read_to_string(path.join("file")).unwrap(), "precious");
    }
}

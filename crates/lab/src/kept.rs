//! A store of runs in a directory. Each run is kept as it ends, so that an interrupted command continues with the rest.
//!
//! ```text
//! a plan         what the command was asked to do when the runs began; a different plan is refused
//! runs.jsonl     a line for each finished run; the first line names the build that ran them
//! ```
//!
//! Lines are in the order in which runs end; a command whose runs are all done may put them in that of its plan.
//!
//! If the process ends in the middle of a line, the next one cuts the half line off. A process locks the file of runs,
//! so only one works in a directory at a time.

use crate::document::{Document, Origin, SCHEMA};
use crate::error::{Error, Result};
use crate::human::{WIDTH, rendered};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const RUNS: &str = "runs.jsonl";
/// After this time a finished run survives a loss of power. It survives the end of the process at once.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Any line but the first. For writing, its parts are borrowed.
#[derive(Serialize, Deserialize)]
struct Line<K, D> {
    key: K,
    #[serde(flatten)]
    done: D,
}

/// The purpose of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Its name in messages.
    pub noun: &'static str,
    /// The name of its file.
    pub name: &'static str,
    /// The text of its file.
    pub text: &'a str,
}

/// An open directory: by run (`K`), its outcome (`D`).
#[derive(Debug)]
pub struct Kept<K, D> {
    path: PathBuf,
    runs: File,
    /// The length of all complete lines, in bytes.
    len: u64,
    synced: Instant,
    of: PhantomData<(K, D)>,
}

/// Refuse `path` if it exists and is not an empty directory. Change nothing.
fn check_free(path: &Path) -> Result<()> {
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Error::Input(format!(
                "the output directory {} is not empty; name a new one, nothing is overwritten",
                path.display()
            ))),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::file("use the output directory", path, error)),
    }
}

/// Refuse `path` unless it is new, an empty directory, or holds this plan; return whether it holds it. Change
/// nothing.
pub fn check(path: &Path, plan: Plan<'_>) -> Result<bool> {
    let at = path.join(plan.name);
    match fs::read_to_string(&at) {
        Ok(before) if before == plan.text => Ok(true),
        Ok(_) => Err(Error::Input(format!(
            "{} differs from the requested {}; name another directory, nothing is overwritten",
            at.display(),
            plan.noun
        ))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // A process that was killed while it wrote the plan has left half of it.
            remove_part(path, plan.name);
            check_free(path).map(|()| false)
        }
        // `path` is a file.
        Err(error) if error.kind() == ErrorKind::NotADirectory => check_free(path).map(|()| false),
        Err(error) => Err(Error::file("read", &at, error)),
    }
}

impl<K: Serialize + DeserializeOwned + Ord, D: Serialize + DeserializeOwned> Kept<K, D> {
    /// Open a directory that is new, empty or holds this plan. Also return the runs that are done.
    pub fn open(path: &Path, plan: Plan<'_>) -> Result<(Kept<K, D>, BTreeMap<K, D>)> {
        if !check(path, plan)? {
            let made = fs::create_dir_all(path);
            made.map_err(|error| Error::output("create the output directory", path, &error))?;
            write(path, plan.name, plan.text.as_bytes())?;
        }
        let at = path.join(RUNS);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&at);
        let runs = opened.map_err(|error| Error::output("open", &at, &error))?;
        match runs.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Input(format!("another {} is running in {}", plan.noun, path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(Error::file("lock", &at, error)),
        }
        let mut kept = Kept { path: path.to_owned(), runs, len: 0, synced: Instant::now(), of: PhantomData };
        let done = kept.load(plan.noun)?;
        Ok((kept, done))
    }

    /// The runs that are done, and the build that did them, without opening the directory for more.
    pub fn read(path: &Path) -> Result<(Option<Origin>, BTreeMap<K, D>)> {
        let at = path.join(RUNS);
        let bytes = fs::read(&at).map_err(|error| Error::file("read", &at, error))?;
        parse(&at, &bytes)
    }

    /// Keep the outcome of a run.
    pub fn append(&mut self, key: &K, done: &D) -> Result<()> {
        self.write(&Line { key, done })?;
        if self.synced.elapsed() > SYNC_EVERY {
            self.synced = Instant::now();
            self.runs.sync_data().map_err(|error| Error::write(&self.path.join(RUNS), &error))?;
        }
        Ok(())
    }

    /// Put the runs in this order, now that all are done. So what a directory holds depends on its plan alone, and not
    /// on how many threads or computers have done the runs, or on which ended first.
    pub fn arrange(self, order: &[K]) -> Result<()> {
        #[derive(Deserialize)]
        struct Keyed<K> {
            key: K,
        }
        let bytes = fs::read(self.path.join(RUNS)).map_err(|error| self.failed("read", error))?;
        let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let keyed = |line| serde_json::from_slice(line).map(|Keyed { key }: Keyed<K>| (key, line));
        let lines = lines.map(keyed).collect::<Result<BTreeMap<K, &[u8]>, _>>();
        let lines = lines.map_err(|error| self.failed("understand", error))?;
        let lines = order.iter().filter_map(|key| lines.get(key).copied());
        let arranged = [first].into_iter().chain(lines).collect::<Vec<_>>().concat();
        if arranged == bytes { Ok(()) } else { write(&self.path, RUNS, &arranged) }
    }

    fn failed(&self, doing: &str, why: impl std::fmt::Display) -> Error {
        Error::file(doing, &self.path.join(RUNS), why)
    }

    fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string(line).map_err(|error| Error::Failed(error.to_string()))?;
        text.push('\n');
        if let Err(error) = self.runs.write_all(text.as_bytes()) {
            // Half of the line may have been written. If it cannot be cut off now, the next process does that.
            let _ = self.runs.set_len(self.len);
            let failed =
                self.failed("write", format!("{error}; when there is room, the same command continues"));
            return Err(Error::full(error.kind(), failed));
        }
        self.len += text.len() as u64;
        Ok(())
    }

    /// Read the runs, and cut off an incomplete line.
    fn load(&mut self, noun: &str) -> Result<BTreeMap<K, D>> {
        let mut bytes = Vec::new();
        self.runs.read_to_end(&mut bytes).map_err(|error| self.failed("read", error))?;
        self.len = whole(&bytes) as u64;
        let cut = self.runs.set_len(self.len).and_then(|()| self.runs.seek(SeekFrom::End(0)));
        cut.map_err(|error| Error::write(&self.path.join(RUNS), &error))?;
        let (made, done) = parse(&self.path.join(RUNS), &bytes)?;
        let here = Origin::here(SCHEMA);
        match made {
            None => self.write(&here)?,
            Some(made) if made == here => {}
            Some(made) => {
                return Err(Error::Input(format!(
                    "{} was begun by Pagefold {} at commit {}, and this is {} at {}: {} {noun} is of one version; \
                     name another directory",
                    self.path.display(),
                    made.version,
                    made.commit,
                    here.version,
                    here.commit,
                    if noun.starts_with('e') { "an" } else { "a" }
                )));
            }
        }
        Ok(done)
    }
}

/// The length of all complete lines.
fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)
}

/// The origin of the complete lines, if there is one, and the runs in them.
fn parse<K: DeserializeOwned + Ord, D: DeserializeOwned>(
    at: &Path,
    bytes: &[u8],
) -> Result<(Option<Origin>, BTreeMap<K, D>)> {
    let mut lines = bytes[..whole(bytes)].split_inclusive(|&byte| byte == b'\n').zip(1..);
    let bad = |line: u32, error| Error::file("understand", at, format!("line {line}: {error}"));
    let Some((first, _)) = lines.next() else { return Ok((None, BTreeMap::new())) };
    let made: Origin = serde_json::from_slice(first).map_err(|error| bad(1, error))?;
    let line = |(bytes, number): (&[u8], u32)| {
        let Line::<K, D> { key, done } = serde_json::from_slice(bytes).map_err(|error| bad(number, error))?;
        Ok((key, done))
    };
    Ok((Some(made), lines.map(line).collect::<Result<_>>()?))
}

/// Write a result into a directory: `result.txt`, `result.json` and, if it has a picture, `result.svg`.
pub fn save(dir: &Path, document: &impl Document) -> Result<()> {
    write(dir, "result.txt", rendered(WIDTH, |width| document.text(width)).as_bytes())?;
    write(dir, "result.json", document.json()?.as_bytes())?;
    document.svg().map_or(Ok(()), |svg| write(dir, "result.svg", svg.as_bytes()))
}

/// Write a file into a directory of runs: all of it or nothing.
pub fn write(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let (path, temporary) = (dir.join(name), part(dir, name));
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, &path));
    written.map_err(|error| {
        // The first error matters. The incomplete file must not stay.
        let _ = fs::remove_file(&temporary);
        Error::write(&path, &error)
    })
}

/// Remove the incomplete file that a killed process has left.
fn remove_part(dir: &Path, name: &str) {
    let _ = fs::remove_file(part(dir, name));
}

fn part(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.part"))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Numbers = Kept<u64, BTreeMap<String, u64>>;

    const PLAN: Plan<'_> = Plan { noun: "sweep", name: "sweep.toml", text: "text" };

    fn open(path: &Path) -> (Numbers, BTreeMap<u64, BTreeMap<String, u64>>) {
        Kept::open(path, PLAN).unwrap()
    }

    #[test]
    fn complete_lines_are_read_back_and_half_a_line_is_cut_off() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("deep/sweep");
        let record = BTreeMap::from([("nanos".to_owned(), 5_000)]);
        let (mut kept, done) = open(&path);
        assert!(done.is_empty());
        kept.append(&1, &record).unwrap();
        kept.append(&2, &BTreeMap::new()).unwrap();
        drop(kept);
        let all = fs::read(path.join(RUNS)).unwrap();
        // Wherever the file ends, all complete lines are read, and the next one is appended whole.
        let ends: Vec<usize> = (0..all.len()).filter(|&at| all[at] == b'\n').map(|at| at + 1).collect();
        for len in (0..=all.len()).step_by(7).chain([all.len()]) {
            fs::write(path.join(RUNS), &all[..len]).unwrap();
            assert_eq!(Numbers::read(&path).unwrap().1, open(&path).1);
            let (mut kept, done) = open(&path);
            assert_eq!(done.len(), ends.iter().filter(|&&end| end <= len).count().saturating_sub(1), "{len}");
            kept.append(&3, &record).unwrap();
            drop(kept);
            assert_eq!(open(&path).1.get(&3), Some(&record));
        }
    }

    #[test]
    fn runs_are_put_in_order() {
        let scratch = tempfile::tempdir().unwrap();
        let written = |keys: &[u64]| {
            let path = scratch.path().join(format!("{keys:?}"));
            let (mut kept, _) = open(&path);
            keys.iter()
                .for_each(|key| kept.append(key, &BTreeMap::from([("nanos".to_owned(), *key)])).unwrap());
            kept.arrange(&[1, 2, 3]).unwrap();
            fs::read(path.join(RUNS)).unwrap()
        };
        assert_eq!(written(&[3, 1, 2]), written(&[1, 2, 3]));
        assert_eq!(written(&[2, 3, 1]).iter().filter(|&&byte| byte == b'\n').count(), 4);
    }

    #[test]
    fn half_a_plan_is_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join(".sweep.toml.part"), "te").unwrap();
        assert!(open(scratch.path()).1.is_empty());
    }

    #[test]
    fn foreign_directories_are_refused_and_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("mine");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "precious").unwrap();
        let refused = |expected: &str| {
            let error = Numbers::open(&path, PLAN).err().unwrap();
            assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{error}");
        };
        refused("is not empty");
        fs::write(path.join("sweep.toml"), "other").unwrap();
        refused("differs from the requested sweep");
        fs::write(path.join("sweep.toml"), "text").unwrap();
        let (kept, _) = open(&path);
        refused("another sweep is running");
        drop(kept);
        fs::write(path.join(RUNS), "{\"schema\":1,\"version\":\"0\",\"commit\":\"abc\"}\n").unwrap();
        refused("at commit abc");
        fs::write(path.join(RUNS), "nonsense\n").unwrap();
        refused("line 1");
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "precious");
        assert!(Numbers::open(&path.join("file"), PLAN).is_err());
    }
}

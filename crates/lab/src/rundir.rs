//! Run directories: an experiment on disk, which can be shown again and continued.
//!
//! ```text
//! config.json    what was run (the same keys as in the result)
//! runs.jsonl     every run: counters, costs, oracle
//! end.json       which profiles failed, and whether the time was up; missing if neither
//! summary.txt    the table
//! summary.json   the result
//! ```
//!
//! Each file but `runs.jsonl` ([`crate::kept`]) is written whole or not at all. Finished runs survive the end of the
//! process, and the same command continues.

use crate::document::SCHEMA;
use crate::error::{Error, Result};
use crate::kept::{self, Kept, Plan};
use crate::record::RunRecord;
use crate::summary::Setup;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const CONFIG: &str = "config.json";
const END: &str = "end.json";

/// The plan of the directory: a different one is refused.
#[derive(Serialize)]
struct Config<'a> {
    #[serde(flatten)]
    setup: &'a Setup,
    /// The options of its runs.
    also: &'a str,
}

/// How an experiment ended, where its runs do not show it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Profiles that failed while others ran, and why.
    pub failed: BTreeMap<String, String>,
    /// Whether no more runs began because the time was up.
    pub out_of_time: bool,
}

/// Which run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The name of its profile.
    pub profile: String,
    /// Its seed.
    pub seed: u64,
}

/// A finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Seconds on this computer: of a reproduction those of the run, else of the experiment until the run ended.
    pub host_seconds: f64,
    /// What it measured.
    pub record: RunRecord,
}

/// The text for [`plan`]: everything that determines the runs.
pub fn config(setup: &Setup, also: &str) -> Result<String> {
    let text = serde_json::to_string_pretty(&Config { setup, also });
    text.map(|text| text + "\n").map_err(|error| Error::Failed(error.to_string()))
}

/// The plan of a directory for the experiment with this text.
pub fn plan(config: &str) -> Plan<'_> {
    Plan { noun: "experiment", name: CONFIG, text: config }
}

/// Write the rendered result.
pub fn save_summary(path: &Path, text: &str, json: &str) -> Result<()> {
    kept::write(path, "summary.txt", text.as_bytes())?;
    kept::write(path, "summary.json", json.as_bytes())
}

/// Keep how the experiment ended; forget how it ended before it was continued.
pub fn save_end(path: &Path, end: &End) -> Result<()> {
    if *end != End::default() {
        let text = serde_json::to_string_pretty(end).map_err(|error| Error::Failed(error.to_string()))?;
        return kept::write(path, END, (text + "\n").as_bytes());
    }
    match fs::remove_file(path.join(END)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::write(&path.join(END), &error)),
        _ => Ok(()),
    }
}

/// Read a run directory: what was run, without the profiles that failed, and how it ended.
pub fn load(path: &Path) -> Result<(Setup, Vec<Done>, End)> {
    let setup: Setup = read_json(&path.join(CONFIG))?;
    if setup.origin.schema > SCHEMA {
        return Err(Error::Input(format!(
            "{} was written by a newer Pagefold (schema {}, this one knows {}); use that version",
            path.display(),
            setup.origin.schema,
            SCHEMA
        )));
    }
    let mut done: Vec<Done> = Kept::<Key, Done>::read(path)?.1.into_values().collect();
    // In the order of jobs.
    done.sort_by_key(|Done { record, .. }| {
        (record.seed, setup.profiles.iter().position(|profile| *profile == record.profile))
    });
    let end: End = if path.join(END).exists() { read_json(&path.join(END))? } else { End::default() };
    Ok((setup.without(&end.failed), done, end))
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).map_err(|error| Error::file("read", path, error))?;
    // The message of the parser names line and column.
    serde_json::from_str(&text).map_err(|error| Error::file("understand", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Origin;
    use crate::summary::tests::{setup, three_seeds};

    #[test]
    fn written_directory_is_read_back() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("deep/result");
        let setup = setup(&["a", "b"]);
        let done: Vec<Done> =
            three_seeds().into_iter().map(|record| Done { host_seconds: 2.5, record }).collect();
        let text = config(&setup, "").unwrap();
        let (mut kept, before) = Kept::<Key, Done>::open(&path, plan(&text)).unwrap();
        assert!(before.is_empty());
        for done in &done {
            let key = Key { profile: done.record.profile.clone(), seed: done.record.seed };
            kept.append(&key, done).unwrap();
        }
        save_summary(&path, "text", "{}").unwrap();
        drop(kept);
        let (read, runs, end) = load(&path).unwrap();
        assert_eq!((read, end), (setup.clone(), End::default()));
        let again = Kept::<Key, Done>::open(&path, plan(&text)).unwrap().1;
        assert_eq!((runs.len(), again.len()), (done.len(), done.len()));
        assert!(done.iter().all(|done| runs.contains(done)));
        let mut names: Vec<_> = fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["config.json", "runs.jsonl", "summary.json", "summary.txt"]);
        // How it ended is kept until it ends in another way.
        let end = End { failed: BTreeMap::from([("b".to_owned(), "why".to_owned())]), out_of_time: true };
        save_end(&path, &end).unwrap();
        let (read, _, kept) = load(&path).unwrap();
        assert_eq!((&read.failed, &read.profiles[..], &kept), (&end.failed, &["a".to_owned()][..], &end));
        save_end(&path, &End::default()).unwrap();
        assert_eq!(load(&path).unwrap().0, setup);
        // A different experiment is refused.
        let other = config(&setup, "oracle").unwrap();
        let also = kept::check(&path, plan(&other)).unwrap_err().to_string();
        assert!(also.contains("differs from the requested experiment"), "{also}");
    }

    #[test]
    fn unreadable_configurations_are_named() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(load(scratch.path()).unwrap_err().to_string().contains("config.json"));
        fs::write(scratch.path().join(CONFIG), "{\n  \"schema\": x").unwrap();
        assert!(load(scratch.path()).unwrap_err().to_string().contains("line 2"));
        let newer = Setup { origin: Origin::here(99), ..setup(&["a"]) };
        fs::write(scratch.path().join(CONFIG), serde_json::to_string(&newer).unwrap()).unwrap();
        assert!(load(scratch.path()).unwrap_err().to_string().contains("newer Pagefold"));
    }
}

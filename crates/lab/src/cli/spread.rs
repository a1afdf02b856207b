//! A sweep whose runs are done by others: by the workers of a cluster. One process keeps the directory and hands out
//! runs, each as a line of JSON; workers do one at a time and answer with such a line. The directory is that of
//! `pagefold sweep`, byte for byte.

use super::args::Command;
use super::sweep::{Opened, check_metrics, key_of};
use super::{Asked, parse};
use crate::document::{Origin, SCHEMA};
use crate::engine::{Machine, Program};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::jobs::{Ended, Job, run};
use crate::sweep::{Catalog, Done, Key};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};

/// A sweep that is spread.
pub struct Spread {
    opened: Opened,
    as_json: bool,
}

impl Spread {
    /// Open the directory of the sweep that these arguments of `pagefold` ask for.
    pub fn open(args: &[String]) -> Result<Spread> {
        match parse(args.iter().map(Into::into))? {
            Asked::Run(command) => match *command {
                Command::Sweep(args) => {
                    Ok(Spread { opened: Opened::of(&args)?.0, as_json: args.running.json })
                }
                _ => Err(Error::input("only a sweep can be spread")),
            },
            Asked::Help(text) => Err(Error::Input(text)),
        }
    }

    /// The runs that are left, in order.
    pub fn left(&self) -> Result<Vec<String>> {
        let key = key_of(&self.opened.sweep);
        self.opened.runs.left(&self.opened.jobs(), &key).into_iter().map(|job| line(&key(job))).collect()
    }

    /// The names of the files that a worker must have copies of: traces, and descriptions of machines.
    pub fn files(&self) -> BTreeSet<String> {
        let traces = self.opened.sweep.whats.iter().map(|what| &what.program[..]);
        let machines = self.opened.sweep.whats.iter().filter_map(|what| Machine::file(&what.machine));
        traces.filter(|name| Program::is_file(name)).chain(machines).map(str::to_owned).collect()
    }

    /// Keep what a worker has answered to a run.
    pub fn keep(&self, run: &str, answer: &str) -> Result<()> {
        let done: Done = understand(answer)?;
        check_metrics(&self.opened.sweep.metrics, &done)?;
        self.opened.runs.add(understand(run)?, done)
    }

    /// Write the result as `pagefold sweep` does at its end, or after an interrupt.
    pub fn finish(self, complete: bool) -> Result<()> {
        self.opened.finish(if complete { Ended::Complete } else { Ended::Interrupted }, self.as_json)
    }
}

/// Version and commit of this build: of a worker's they must be the same.
pub fn build() -> String {
    let Origin { version, commit, .. } = Origin::here(SCHEMA);
    format!("Pagefold {version} at commit {commit}")
}

/// The work of a worker: do one run, with copies of files at other places than on the machine of the sweep.
pub fn work(asked: &str, copies: &BTreeMap<String, String>) -> Result<String> {
    let Key { what, seed } = understand(asked)?;
    let as_named = |why: String| copies.iter().fold(why, |why, (name, copy)| why.replace(copy, name));
    let cell = Catalog::of_copies(copies.clone()).cell(&what)?;
    // On a thread of its own, whose stack is large enough.
    let one = move |job: Job| Done::of(cell.run(job.seed));
    let (mut done, _) = run(vec![Job { cell: 0, seed }], 1, one, interrupt::requested, |_: &[Done]| Ok(()))?;
    match done.pop() {
        Some(Done::Missing(why)) => line(&Done::Missing(as_named(why))),
        Some(done) => line(&done),
        None => Err(Error::Interrupted("the run was interrupted".to_owned())),
    }
}

fn line(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::Failed(error.to_string()))
}

fn understand<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| Error::Input(format!("not a line of a sweep: {error}: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::{Caller, Told};
    use crate::cli::{Accesses, import_accesses};
    use std::fs;
    use std::path::Path;

    /// Four runs of a trace in this folder.
    fn prepare(folder: &Path) {
        let pages: Vec<u64> = (0..5000).map(|n| n * 7919 % 1500).collect();
        let accesses = Accesses { pages: &pages, stores: &[], threads: &[] };
        import_accesses(&folder.join("numbers.pft"), None, &mut |take| take(accesses)).unwrap();
        let text = "runs = 2\n[run]\nprogram = \"FOLDER/numbers.pft\"\nmachine = \"small\"\nmemory = \"60%\"\n\
                    profile = \"{profile}\"\n[axes]\nprofile = [\"classic\", \"lazy\"]\n";
        let text = text.replace("FOLDER", &folder.display().to_string());
        fs::write(folder.join("sweep.toml"), text).unwrap();
    }

    fn words(folder: &Path, out: &str) -> Vec<String> {
        let at = |name: &str| folder.join(name).display().to_string();
        ["pagefold", "sweep", &at("sweep.toml"), "--json", "-q", "--out", &at(out)].map(str::to_owned).into()
    }

    fn call(words: Vec<String>, command: impl FnOnce(&[String]) -> Result<()>) -> (Result<()>, Told) {
        let caller = Caller::new(words);
        let result = caller.call(|| command(caller.words()));
        (result, caller.told())
    }

    fn local(words: &[String]) -> Result<()> {
        super::super::main(words.iter().map(Into::into))
    }

    fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let named =
            |path: std::path::PathBuf| (path.file_name().unwrap().to_string_lossy().into_owned(), path);
        entries.map(named).map(|(name, path)| (name, fs::read(path).unwrap())).collect()
    }

    #[test]
    fn spread_sweep_tells_and_keeps_what_a_local_one_does() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        prepare(folder);
        let (done, of_local) = call(words(folder, "local"), local);
        done.unwrap();
        let (done, of_spread) = call(words(folder, "spread"), |words| {
            let spread = Spread::open(words)?;
            let trace = folder.join("numbers.pft").display().to_string();
            assert_eq!(spread.files(), BTreeSet::from([trace.clone()]));
            // Workers have copies only.
            let copy = folder.join("copy.pft");
            fs::rename(&trace, &copy).unwrap();
            let copies = BTreeMap::from([(trace, copy.display().to_string())]);
            for run in spread.left()?.iter().rev() {
                spread.keep(run, &work(run, &copies)?)?;
            }
            assert!(spread.left()?.is_empty());
            spread.finish(true)
        });
        done.unwrap();
        assert_eq!((of_spread.printed, of_spread.runs), (of_local.printed, of_local.runs));
        assert_eq!(contents(&folder.join("spread")), contents(&folder.join("local")));
    }

    #[test]
    fn stopped_caller_keeps_the_runs_that_are_done() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        prepare(folder);
        let stopped = |words: &[String]| {
            let spread = Spread::open(words)?;
            let run = &spread.left()?[3];
            let answer = work(run, &BTreeMap::new())?;
            spread.keep(run, &answer)?;
            let current = Caller::current().unwrap();
            current.stop();
            assert!(matches!(work(run, &BTreeMap::new()), Err(Error::Interrupted(_))));
            spread.finish(false)
        };
        let (interrupted, told) = call(words(folder, "out"), stopped);
        let text = interrupted.unwrap_err().to_string();
        assert!(text.starts_with("interrupted; 1 of 4 runs are kept"), "{text}");
        assert_eq!((told.printed.as_str(), told.runs.unwrap().rows()), ("", 1));
        call(words(folder, "out"), local).0.unwrap();
        assert!(
            call(words(folder, "out"), |words| Spread::open(words).map(|spread| {
                assert!(spread.left().unwrap().is_empty());
            }))
            .0
            .is_ok()
        );
    }
}

//! Resuming: only the runs are done that are not in the store, and each is stored as it ends.

use crate::error::{Error, Result};
use crate::interrupt;
use crate::jobs::{Ended, Job, run as run_jobs};
use crate::kept::{Kept, Plan};
use indicatif::ProgressBar;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

/// What happens to the remaining runs if one cannot be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unwritten {
    /// They are not done: hours of lost runs are worth nothing.
    End,
    /// They are done, and the result is shown before the error.
    GoOn,
}

/// Runs that are done, and their store, if they are kept.
struct Runs<K, D> {
    done: BTreeMap<K, D>,
    kept: Option<Kept<K, D>>,
    unwritten: Unwritten,
    /// The first write error, if the remaining runs are done all the same.
    failed: Option<Error>,
}

impl<K: Serialize + DeserializeOwned + Ord, D: Serialize + DeserializeOwned> Runs<K, D> {
    fn add(&mut self, key: K, done: D) -> Result<()> {
        let kept = self.kept.as_mut().filter(|_| self.failed.is_none());
        match kept.map_or(Ok(()), |kept| kept.append(&key, &done)) {
            Err(error) if self.unwritten == Unwritten::GoOn => self.failed = Some(error),
            result => result?,
        }
        self.done.insert(key, done);
        Ok(())
    }
}

/// The runs of one command, shared by its threads.
pub(super) struct Resumed<K, D>(Arc<Mutex<Runs<K, D>>>);

impl<K, D> Resumed<K, D>
where
    K: Clone + Serialize + DeserializeOwned + Ord + Send + 'static,
    D: Clone + Serialize + DeserializeOwned + Send + 'static,
{
    /// Open the directory in which runs are kept, if there is one, with the runs that are done.
    pub(super) fn open(at: Option<(&Path, Plan<'_>)>, unwritten: Unwritten) -> Result<Resumed<K, D>> {
        let (kept, done) = at.map(|(path, plan)| Kept::open(path, plan)).transpose()?.unzip();
        let runs = Runs { done: done.unwrap_or_default(), kept, unwritten, failed: None };
        Ok(Resumed(Arc::new(Mutex::new(runs))))
    }

    /// Do those of `jobs` that are not done; one that gives nothing stays undone. The progress bar starts at `before`,
    /// the number of runs of other jobs.
    pub(super) fn resume(
        &self,
        jobs: &[Job],
        key: impl Fn(Job) -> K + Send + Sync + 'static,
        run: impl Fn(Job) -> Result<Option<D>> + Send + Sync + 'static,
        threads: usize,
        (bar, before): (&ProgressBar, usize),
    ) -> Result<Ended> {
        let left = self.left(jobs, &key);
        let before = before + jobs.len() - left.len();
        bar.set_position(before as u64);
        // Runs that were done before must not count for the time that is left.
        bar.reset_eta();
        let finished = |new: &[()]| {
            bar.set_position((before + new.len()) as u64);
            Ok(())
        };
        let runs = self.0.clone();
        let one = move |job: Job| {
            let Some(done) = run(job)? else { return Ok(()) };
            runs.lock().expect(UNPOISONED).add(key(job), done)
        };
        run_jobs(left, threads, one, interrupt::requested, finished).map(|(_, ended)| ended)
    }

    /// Those of `jobs` that are not done.
    pub(super) fn left(&self, jobs: &[Job], key: impl Fn(Job) -> K) -> Vec<Job> {
        let runs = self.lock();
        jobs.iter().filter(|&&job| !runs.done.contains_key(&key(job))).copied().collect()
    }

    /// Keep a run that was done elsewhere.
    pub(super) fn add(&self, key: K, done: D) -> Result<()> {
        self.lock().add(key, done)
    }

    /// All `jobs` are done: close the directory, with the runs in their order.
    pub(super) fn close(&self, jobs: &[Job], key: impl Fn(Job) -> K) -> Result<()> {
        let kept = self.lock().kept.take();
        let order: Vec<K> = jobs.iter().map(|&job| key(job)).collect();
        kept.map_or(Ok(()), |kept| kept.arrange(&order))
    }

    /// The runs that are done.
    pub(super) fn done(&self) -> BTreeMap<K, D> {
        self.lock().done.clone()
    }

    /// The first write error, once, at the end.
    pub(super) fn written(&self) -> Result<()> {
        self.lock().failed.take().map_or(Ok(()), Err)
    }

    /// The error of an interrupted command that keeps no runs and had `all` to do.
    pub(super) fn lost(&self, all: usize) -> Error {
        let done = self.lock().done.len();
        Error::Interrupted(format!("interrupted after {done} of {all} runs; nothing is kept"))
    }

    fn lock(&self) -> MutexGuard<'_, Runs<K, D>> {
        self.0.lock().expect(UNPOISONED)
    }
}

const UNPOISONED: &str = "no thread panics while it holds the lock";

//! Jobs: cells with seeds, run on several threads.
//!
//! Runs share nothing, and each is a function of its job alone, so neither the number of threads nor the order in which
//! they finish can change a result. Jobs are ordered by seed first, so that all cells can be compared early.

use crate::caller::Caller;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// One run to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The index of its cell.
    pub cell: usize,
    /// The seed.
    pub seed: u64,
}

/// The jobs of an experiment: `runs` seeds from `seed` on, each with all cells.
pub fn jobs(cells: usize, seed: u64, runs: u32) -> Vec<Job> {
    (0..u64::from(runs)).flat_map(|run| (0..cells).map(move |cell| Job { cell, seed: seed + run })).collect()
}

/// How a set of jobs ended.
#[derive(Debug, PartialEq)]
pub enum Ended {
    /// All jobs are done.
    Complete,
    /// An interrupt stopped it; some jobs may be done.
    Interrupted,
}

/// How often the waiting thread checks whether it should stop.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long it waits for the threads after an interrupt.
const LAST_PATIENCE: Duration = Duration::from_millis(500);

/// Programs have stacks of their own, but the memory manager's calls may be deep in a debug build.
const STACK_BYTES: usize = 16 << 20;

/// Do `jobs` on `threads` threads; `T` is the result of a job. `finished` gets all results so far, in order, after
/// each job. The first job (in order) that fails ends it.
pub fn run<T: Clone + Send + 'static>(
    jobs: Vec<Job>,
    threads: usize,
    run: impl Fn(Job) -> Result<T> + Send + Sync + 'static,
    should_stop: impl Fn() -> bool,
    mut finished: impl FnMut(&[T]) -> Result<()>,
) -> Result<(Vec<T>, Ended)> {
    let Started { results, stop } = start(jobs.clone(), threads, run)?;
    let mut done: BTreeMap<usize, T> = BTreeMap::new();
    let mut failed: Option<(usize, Error)> = None;
    while done.len() < failed.as_ref().map_or(jobs.len(), |(index, _)| *index) {
        if should_stop() {
            stop();
            wait_for_the_end(&results);
            return Ok((done.into_values().collect(), Ended::Interrupted));
        }
        match results.recv_timeout(PATIENCE) {
            // Results after a failed job do not count.
            Ok((index, Ok(_))) if failed.as_ref().is_some_and(|(first, _)| index > *first) => {}
            Ok((index, Ok(record))) => {
                done.insert(index, record);
                finished(&done.values().cloned().collect::<Vec<_>>())?;
            }
            // The run was stopped; so will the others be.
            Ok((_, Err(Error::Interrupted(_)))) if should_stop() => {}
            // Of several failures the first in order is reported, not the first in time.
            Ok((index, Err(error))) => {
                if failed.as_ref().is_none_or(|(first, _)| index < *first) {
                    done.split_off(&index);
                    failed = Some((index, error));
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Error::Failed("a thread of the experiment ended without a result".into()));
            }
        }
    }
    match failed {
        Some((_, error)) => Err(error),
        None => Ok((done.into_values().collect(), Ended::Complete)),
    }
}

/// Wait until all threads have ended, so that a caller finds nothing of the command in use. Runs end at once when they
/// are stopped, but for what comes before and after the program; that is not waited for.
fn wait_for_the_end<T>(results: &Results<T>) {
    let begun = Instant::now();
    while let Some(left) = LAST_PATIENCE.checked_sub(begun.elapsed())
        && !matches!(results.recv_timeout(left), Err(mpsc::RecvTimeoutError::Disconnected))
    {}
}

/// What threads send: the numbers of jobs, and their results.
type Results<T> = mpsc::Receiver<(usize, Result<T>)>;

/// Threads that do jobs.
struct Started<T, S> {
    results: Results<T>,
    /// Has them take no more jobs.
    stop: S,
}

/// Start the threads. They take jobs in order until none is left, one has failed, or the receiver is gone.
fn start<T: Send + 'static>(
    jobs: Vec<Job>,
    threads: usize,
    run: impl Fn(Job) -> Result<T> + Send + Sync + 'static,
) -> Result<Started<T, impl Fn()>> {
    let (sender, results) = mpsc::channel();
    let shared = Arc::new((jobs, run, AtomicUsize::new(0), AtomicBool::new(false)));
    let caller = Caller::current();
    for number in 0..threads.clamp(1, shared.0.len().max(1)) {
        let (shared, sender, caller) = (shared.clone(), sender.clone(), caller.clone());
        let take_jobs = move || {
            let (jobs, run, next, stop) = &*shared;
            while let Some((index, &job)) =
                Some(next.fetch_add(1, SeqCst)).and_then(|i| jobs.get(i).map(|j| (i, j)))
            {
                let result = run(job);
                stop.fetch_or(result.is_err(), SeqCst);
                if sender.send((index, result)).is_err() || stop.load(SeqCst) {
                    break;
                }
            }
        };
        let work = move || match caller {
            Some(caller) => caller.call(take_jobs),
            None => take_jobs(),
        };
        std::thread::Builder::new()
            .name(format!("run-{number}"))
            .stack_size(STACK_BYTES)
            .spawn(work)
            .map_err(|error| Error::Failed(format!("cannot start a thread: {error}")))?;
    }
    Ok(Started { results, stop: move || shared.3.store(true, SeqCst) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::run as record;
    use crate::record::RunRecord;

    fn measure(job: Job) -> Result<RunRecord> {
        Ok(record(["a", "b"][job.cell], job.seed, job.seed * 1000 + job.cell as u64, &[]))
    }

    fn never() -> bool {
        false
    }

    #[test]
    fn jobs_run_all_cells_with_the_same_seeds() {
        let all = jobs(2, 5, 2);
        assert_eq!(
            all.iter().map(|job| (job.seed, job.cell)).collect::<Vec<_>>(),
            [(5, 0), (5, 1), (6, 0), (6, 1)]
        );
    }

    #[test]
    fn number_of_threads_does_not_change_results() {
        let expected: Vec<RunRecord> = jobs(2, 1, 20).into_iter().map(|job| measure(job).unwrap()).collect();
        for threads in [1, 2, 7] {
            let mut calls = 0;
            let count = |_: &[RunRecord]| {
                calls += 1;
                Ok(())
            };
            let (got, ended) = run(jobs(2, 1, 20), threads, measure, never, count).unwrap();
            assert_eq!((got, ended, calls), (expected.clone(), Ended::Complete, 40));
        }
    }

    #[test]
    fn first_failure_in_order_is_reported() {
        for threads in [1, 4] {
            let fail = |job: Job| {
                if job.seed == 3 {
                    // The failure of cell 1 overtakes that of cell 0.
                    if job.cell == 0 {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    return Err(Error::Failed(format!("cell {}", job.cell)));
                }
                measure(job)
            };
            let error = run(jobs(2, 1, 5), threads, fail, never, |_| Ok(())).unwrap_err();
            assert_eq!(error.to_string(), "cell 0");
        }
    }

    #[test]
    fn interrupt_keeps_finished_jobs() {
        let seen = std::cell::Cell::new(0);
        let count = |records: &[RunRecord]| {
            seen.set(records.len());
            Ok(())
        };
        let (kept, ended) = run(jobs(2, 1, 50), 1, measure, || seen.get() >= 3, count).unwrap();
        assert_eq!((kept.len(), ended), (3, Ended::Interrupted));
        assert_eq!(kept[2], measure(Job { cell: 0, seed: 2 }).unwrap());
    }

    #[test]
    fn unsaved_result_ends_the_jobs() {
        let full = |_: &[RunRecord]| Err(Error::input("disk full"));
        assert_eq!(run(jobs(1, 1, 5), 2, measure, never, full).unwrap_err().to_string(), "disk full");
    }
}

//! A test program: which of its tests reach which mutant, and whether they catch it.

use crate::case::Case;
use crate::counts;
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// Limits in seconds for the tests that run together in one process: first few and fast ones, then more.
const STEPS: [f64; 3] = [0.05, 0.4, 2.0];
/// Seconds that a process takes to start.
const STARTING: f64 = 0.005;
/// Seconds after which a test hangs, beside ten times what it takes.
const PATIENCE: f64 = 2.0;
/// Memory limit of a test, in bytes: a mutant may allocate without end. (It is not for addresses: tests leave machines
/// behind whose memory nobody has touched.)
const MEMORY: u64 = 4 << 30;

/// A test.
#[derive(Serialize, Deserialize)]
struct Test {
    case: Case,
    seconds: f64,
    reaches: BTreeSet<u32>,
}

impl Case {
    /// Whether it has counted what it must, by its output.
    fn counts_as_expected(&self, out: &Path) -> Result<bool> {
        Ok(match &self.counts {
            Some(expected) => counts::of_output(&fs::read(out)?, expected).as_ref() == Some(expected),
            None => true,
        })
    }
}

/// How often a test ran, and how often it failed.
#[derive(Clone, Copy, Default)]
struct Record {
    tried: f64,
    caught: f64,
}

impl Record {
    /// How likely it is that the test catches the next mutant. One that has not run yet has a chance of 5 %.
    fn chance(self) -> f64 {
        (self.caught + 0.25) / (self.tried + 5.0)
    }
}

/// The result of a mutant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// A test failed.
    Caught(String),
    /// A test did not end in time, or took memory without end.
    Hung,
    /// All tests that reach it passed. The numbers are tests that ran, and tests that were skipped to save
    /// time.
    Survived(usize, usize),
}

/// What a test is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A test of a test program; a process runs several.
    Test,
    /// A command line of `pagefold`.
    Case,
}

/// What a recording found, for the next time that the same cases of the same program are asked for.
#[derive(Serialize, Deserialize)]
struct Recording {
    program: (PathBuf, SystemTime),
    cases: Vec<Case>,
    tests: Vec<Test>,
}

/// The tests of a program.
pub struct Suite {
    kind: Kind,
    program: PathBuf,
    directory: PathBuf,
    work: PathBuf,
    tests: Vec<Test>,
    /// What each test has done so far with the mutants of a file: what caught one likely catches its neighbours.
    records: Mutex<HashMap<String, HashMap<String, Record>>>,
}

impl Suite {
    /// Run each test of a test program in `directory` once, and record which mutants it reaches. Tests that take longer
    /// than `limit` seconds are skipped. The recording gets `name`.
    pub fn of_tests(
        program: PathBuf,
        directory: PathBuf,
        work: &Path,
        (name, limit): (&str, f64),
    ) -> Result<Suite> {
        let mut suite = Suite::new(Kind::Test, program, directory, work);
        let listed = suite.command().args(["--list", "--format", "terse"]).output()?;
        ensure!(listed.status.success(), "the tests cannot be listed");
        let text = String::from_utf8(listed.stdout)?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        let case = |name: &str| Case { name: name.to_owned(), words: name.to_owned(), counts: None };
        suite.record_or_load(&format!("{name}.json"), names.map(case).collect(), limit)?;
        Ok(suite)
    }

    /// The same for command lines of `pagefold`, which have a name together.
    pub fn of_cases(
        program: PathBuf,
        directory: PathBuf,
        work: &Path,
        (name, cases): (&str, Vec<Case>),
        limit: f64,
    ) -> Result<Suite> {
        let mut suite = Suite::new(Kind::Case, program, directory, work);
        suite.record_or_load(&format!("{name}.json"), cases, limit)?;
        Ok(suite)
    }

    fn new(kind: Kind, program: PathBuf, directory: PathBuf, work: &Path) -> Suite {
        let (work, tests, records) = (work.to_owned(), Vec::new(), Mutex::default());
        Suite { kind, program, directory, work, tests, records }
    }

    /// Record all cases, unless `file` has a recording of them.
    fn record_or_load(&mut self, file: &str, cases: Vec<Case>, limit: f64) -> Result<()> {
        let path = self.work.join(file);
        let program = (self.program.clone(), fs::metadata(&self.program)?.modified()?);
        let known = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Recording>(&text).ok());
        if let Some(known) = known.filter(|known| known.program == program && known.cases == cases) {
            self.tests = known.tests;
            return Ok(());
        }
        self.record(cases.clone(), limit)?;
        let recording = Recording { program, cases, tests: std::mem::take(&mut self.tests) };
        fs::write(&path, serde_json::to_vec(&recording)?)?;
        self.tests = recording.tests;
        Ok(())
    }

    fn record(&mut self, cases: Vec<Case>, limit: f64) -> Result<()> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (queue, tests) = (Mutex::new(cases.into_iter()), Mutex::new(Vec::new()));
        let (suite, queue, done) = (&*self, &queue, &tests);
        let work = |worker| -> Result<()> {
            loop {
                let case = queue.lock().expect("no thread panics with it").next();
                let Some(case) = case else { return Ok(()) };
                let test = suite.record_one(case, limit, worker)?;
                done.lock().expect("no thread panics with it").extend(test);
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|worker| scope.spawn(move || work(worker))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })?;
        self.tests = tests.into_inner().expect("no thread panics with it");
        let seconds: f64 = self.tests.iter().map(|test| test.seconds).sum();
        let reached: BTreeSet<u32> = self.tests.iter().flat_map(|test| &test.reaches).copied().collect();
        eprintln!("{} tests, {seconds:.0} s, reach {} mutants", self.tests.len(), reached.len());
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.directory).env("PROPTEST_RNG_SEED", "1").env("RUST_BACKTRACE", "0");
        // A mutant that fails must not leave cases for the next.
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// A command that runs tests.
    fn command_for(&self, tests: &[&str]) -> Command {
        let mut command = self.command();
        match self.kind {
            Kind::Test => command.args(["--exact", "--test-threads=1"]).args(tests),
            Kind::Case => command.args(tests.iter().flat_map(|words| words.split(' '))),
        };
        command
    }

    fn record_one(&self, case: Case, limit: f64, worker: usize) -> Result<Option<Test>> {
        let file = |name: &str| self.work.join(format!("{name}-{worker}"));
        let (reached, out) = (file("reached"), file("output"));
        let _ = fs::remove_file(&reached);
        let mut command = self.command_for(&[&case.words]);
        command.stdout(File::create(&out)?).env("MUTANT", "record").env("MUTANT_REACHED", &reached);
        let begin = Instant::now();
        let Some(passed) = wait(&mut command, Duration::from_secs_f64(limit))? else {
            eprintln!("{} takes too long, or too much memory, and is skipped", case.name);
            return Ok(None);
        };
        if !passed || !case.counts_as_expected(&out)? {
            eprintln!("{} fails without a mutant and is skipped", case.name);
            return Ok(None);
        }
        let seconds = begin.elapsed().as_secs_f64();
        let text = fs::read_to_string(&reached).unwrap_or_default();
        let reaches = text.lines().filter_map(|line| line.parse().ok()).collect();
        Ok(Some(Test { case, seconds, reaches }))
    }

    /// Run the tests that reach a mutant of `file` until one fails, for about `budget` seconds: those first that are
    /// the most likely to fail for the time that they take. `worker` is the number of the thread.
    pub fn test(&self, number: u32, file: &str, budget: f64, worker: usize) -> Result<Outcome> {
        let (groups, skipped) = self.groups(number, file, budget);
        for group in &groups {
            let outcome = self.run(number, group, worker)?;
            self.note(file, group, outcome.as_ref());
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Survived(groups.iter().map(Vec::len).sum(), skipped))
    }

    fn note(&self, file: &str, group: &[&Test], outcome: Option<&Outcome>) {
        let mut records = self.records.lock().expect("no thread panics with it");
        let records = records.entry(file.to_owned()).or_default();
        for test in group {
            let record = records.entry(test.case.name.clone()).or_default();
            record.tried += 1.0;
            if matches!(outcome, Some(Outcome::Caught(name)) if *name == test.case.name) {
                record.caught += 1.0;
            }
        }
    }

    /// The tests that reach a mutant, in the order in which they run.
    fn reaching(&self, number: u32, file: &str) -> Vec<&Test> {
        let records = self.records.lock().expect("no thread panics with it");
        let records = records.get(file);
        let worth = |test: &Test| {
            let record =
                records.and_then(|records| records.get(&test.case.name)).copied().unwrap_or_default();
            record.chance() / (test.seconds + STARTING)
        };
        let reaching = self.tests.iter().filter(|test| test.reaches.contains(&number));
        let mut reaching: Vec<(f64, &Test)> = reaching.map(|test| (worth(test), test)).collect();
        reaching.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        reaching.into_iter().map(|(_, test)| test).collect()
    }

    /// The tests that reach a mutant and fit into `budget` seconds, in groups that run in one process; and how many
    /// tests more reach it. One runs even if none fits.
    fn groups(&self, number: u32, file: &str, budget: f64) -> (Vec<Vec<&Test>>, usize) {
        let reaching = self.reaching(number, file);
        let (mut groups, mut spent, mut skipped) = (Vec::<Vec<&Test>>::new(), 0.0, 0);
        let mut room = 0.0;
        for test in reaching {
            if spent > 0.0 && spent + test.seconds > budget {
                skipped += 1;
                continue;
            }
            spent += test.seconds;
            match groups.last_mut() {
                Some(group) if test.seconds < room => group.push(test),
                _ => {
                    room = match self.kind {
                        Kind::Test => STEPS.get(groups.len()).copied().unwrap_or(f64::INFINITY),
                        Kind::Case => 0.0,
                    };
                    groups.push(vec![test]);
                }
            }
            room -= test.seconds;
        }
        (groups, skipped)
    }

    fn run(&self, number: u32, tests: &[&Test], worker: usize) -> Result<Option<Outcome>> {
        let out = self.work.join(format!("output-{worker}"));
        let words: Vec<&str> = tests.iter().map(|test| test.case.words.as_str()).collect();
        let mut command = self.command_for(&words);
        command.env("MUTANT", number.to_string()).stdout(File::create(&out)?);
        let seconds: f64 = tests.iter().map(|test| test.seconds).sum();
        let limit = Duration::from_secs_f64(PATIENCE + 10.0 * seconds);
        Ok(match wait(&mut command, limit)? {
            None => Some(Outcome::Hung),
            Some(true) if self.kind == Kind::Test || tests[0].case.counts_as_expected(&out)? => None,
            Some(_) if self.kind == Kind::Case => Some(Outcome::Caught(tests[0].case.name.clone())),
            Some(_) => Some(Outcome::Caught(failed(&String::from_utf8_lossy(&fs::read(&out)?)))),
        })
    }
}

/// The test that failed, by what its program has printed.
fn failed(text: &str) -> String {
    let failed = text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    // A test that ended the process is the last that was started.
    let last = || text.lines().rev().find_map(|line| line.strip_prefix("test ")?.split(" ... ").next());
    failed.or_else(last).unwrap_or("").to_owned()
}

/// Returns whether the command succeeded, or `None` if it was killed after `limit`, or because it took too much memory.
/// Time in which it waited for a CPU does not count: on a busy machine that would look like a hang.
fn wait(command: &mut Command, limit: Duration) -> Result<Option<bool>> {
    let mut child = command.spawn().context("cannot run the tests")?;
    let end = Instant::now() + limit;
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        let now = Instant::now();
        if now > end && now > end + starved(child.id()) || resident(child.id()) > MEMORY {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// How long the thread of a process that waited longest for a CPU has done so.
fn starved(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let waits =
        threads.filter_map(|thread| waited(&fs::read_to_string(thread.path().join("schedstat")).ok()?));
    waits.max().unwrap_or_default()
}

/// The time that a thread could run and had no CPU, by its `schedstat`: nanoseconds on CPUs, those of waiting, turns.
fn waited(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// The memory that a process has, in bytes.
fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse().ok()).map_or(0, |kib: u64| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_end_is_killed() {
        let ends = |words: [&str; 2], millis| {
            wait(Command::new(words[0]).arg(words[1]), Duration::from_millis(millis)).unwrap()
        };
        assert_eq!(ends(["sleep", "1000"], 50), None);
        assert_eq!([["true", ""], ["false", ""]].map(|words| ends(words, 60_000)), [Some(true), Some(false)]);
    }

    #[test]
    fn time_without_a_cpu_is_told_by_the_threads() {
        assert_eq!(waited("17 2500 3\n"), Some(Duration::from_nanos(2500)));
        assert_eq!((waited(""), waited("17 x 3")), (None, None));
    }
}

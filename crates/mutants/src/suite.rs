//! A test program: which of its tests reach which mutant, and whether they catch it.

use crate::counts::{self, Counts};
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Limits in seconds for the tests that run together in one process: first few and fast ones, then more.
const STEPS: [f64; 3] = [0.05, 0.4, 2.0];
/// Seconds after which a test hangs, beside ten times what it takes.
const PATIENCE: f64 = 2.0;
/// Memory limit of a test, in bytes: a mutant may allocate without end. (It is not for addresses: tests leave machines
/// behind whose memory nobody has touched.)
const MEMORY: u64 = 4 << 30;

/// A test before it has run.
pub struct Case {
    /// Its name.
    pub name: String,
    /// What follows the program's name to run it: a test's name, or a case's arguments.
    pub words: String,
    /// What it must count, beside ending well.
    pub counts: Option<Counts>,
}

/// A test.
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

/// The tests of a program.
pub struct Suite {
    kind: Kind,
    program: PathBuf,
    directory: PathBuf,
    work: PathBuf,
    tests: Vec<Test>,
    /// How many mutants of a file each test has caught so far: what caught one likely catches its neighbours.
    catches: Mutex<HashMap<String, HashMap<String, usize>>>,
}

impl Suite {
    /// Run each test of a test program in `directory` once, and record which mutants it reaches. Tests that take longer
    /// than `limit` seconds are skipped.
    pub fn of_tests(program: PathBuf, directory: PathBuf, work: &Path, limit: f64) -> Result<Suite> {
        let mut suite = Suite::new(Kind::Test, program, directory, work);
        let listed = suite.command().args(["--list", "--format", "terse"]).output()?;
        ensure!(listed.status.success(), "the tests cannot be listed");
        let text = String::from_utf8(listed.stdout)?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        let case = |name: &str| Case { name: name.to_owned(), words: name.to_owned(), counts: None };
        suite.record(names.map(case), limit)?;
        Ok(suite)
    }

    /// The same for command lines of `pagefold`.
    pub fn of_cases(
        program: PathBuf,
        directory: PathBuf,
        work: &Path,
        cases: Vec<Case>,
        limit: f64,
    ) -> Result<Suite> {
        let mut suite = Suite::new(Kind::Case, program, directory, work);
        suite.record(cases.into_iter(), limit)?;
        Ok(suite)
    }

    fn new(kind: Kind, program: PathBuf, directory: PathBuf, work: &Path) -> Suite {
        let (work, tests, catches) = (work.to_owned(), Vec::new(), Mutex::default());
        Suite { kind, program, directory, work, tests, catches }
    }

    fn record(&mut self, cases: impl Iterator<Item = Case>, limit: f64) -> Result<()> {
        for case in cases {
            if let Some(test) = self.record_one(case, limit)? {
                self.tests.push(test);
            }
        }
        self.tests.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
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

    fn record_one(&self, case: Case, limit: f64) -> Result<Option<Test>> {
        let (reached, out) = (self.work.join("reached"), self.work.join("output"));
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

    /// Run the tests that reach a mutant of `file` until one fails, for about `budget` seconds: first those that have
    /// caught the most mutants of that file in their time, then the fastest. `worker` is the number of the thread.
    pub fn test(&self, number: u32, file: &str, budget: f64, worker: usize) -> Result<Outcome> {
        let (groups, skipped) = self.groups(number, file, budget);
        for group in &groups {
            if let Some(outcome) = self.run(number, group, worker)? {
                if let Outcome::Caught(test) = &outcome {
                    self.count_catch(file, test);
                }
                return Ok(outcome);
            }
        }
        Ok(Outcome::Survived(groups.iter().map(Vec::len).sum(), skipped))
    }

    fn count_catch(&self, file: &str, test: &str) {
        let mut catches = self.catches.lock().expect("no thread panics with it");
        *catches.entry(file.to_owned()).or_default().entry(test.to_owned()).or_default() += 1;
    }

    /// The tests that reach a mutant, in the order in which they run.
    fn reaching(&self, number: u32, file: &str) -> Vec<&Test> {
        let mut reaching: Vec<&Test> =
            self.tests.iter().filter(|test| test.reaches.contains(&number)).collect();
        let catches = self.catches.lock().expect("no thread panics with it");
        if let Some(catches) = catches.get(file) {
            let per_second = |test: &Test| {
                catches.get(&test.case.name).map_or(0.0, |&count| count as f64 / (test.seconds + 0.01))
            };
            reaching.sort_by(|a, b| per_second(b).total_cmp(&per_second(a)));
        }
        reaching
    }

    /// The tests that reach a mutant, for about `budget` seconds, in groups that run in one process; and how many tests
    /// more reach it.
    fn groups(&self, number: u32, file: &str, budget: f64) -> (Vec<Vec<&Test>>, usize) {
        let mut reaching = self.reaching(number, file).into_iter().peekable();
        let (mut groups, mut spent) = (Vec::new(), 0.0);
        while spent <= budget
            && let Some(first) = reaching.next()
        {
            let (mut group, mut seconds) = (vec![first], first.seconds);
            let step = match self.kind {
                Kind::Test => STEPS.get(groups.len()).copied().unwrap_or(f64::INFINITY),
                Kind::Case => 0.0,
            };
            let fits = |seconds: f64| seconds < step && spent + seconds <= budget;
            while let Some(test) = reaching.next_if(|test| fits(seconds + test.seconds)) {
                group.push(test);
                seconds += test.seconds;
            }
            spent += seconds;
            groups.push(group);
        }
        (groups, reaching.count())
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
fn wait(command: &mut Command, limit: Duration) -> Result<Option<bool>> {
    let mut child = command.spawn().context("cannot run the tests")?;
    let end = Instant::now() + limit;
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if Instant::now() > end || resident(child.id()) > MEMORY {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// The memory that a process has, in bytes.
fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse().ok()).map_or(0, |kib: u64| kib << 10)
}

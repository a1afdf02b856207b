//! A test program: which of its tests reach which mutant, and whether they catch it.

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Limits in seconds for the tests that run together in one process: first few and fast ones, then more.
const STEPS: [f64; 4] = [0.05, 0.4, 2.0, f64::INFINITY];
/// Memory limit of a test, in KiB: a mutant may allocate without end.
const MEMORY: u64 = 8 << 20;

/// A test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Test {
    name: String,
    seconds: f64,
    reaches: BTreeSet<u32>,
}

/// The result of a mutant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// A test failed.
    Caught(String),
    /// A test did not end in time.
    Hung,
    /// All tests that reach it passed. The numbers are tests that ran, and tests that were skipped to save
    /// time.
    Survived(usize, usize),
}

/// The tests of a program.
pub struct Suite {
    program: PathBuf,
    directory: PathBuf,
    work: PathBuf,
    tests: Vec<Test>,
}

impl Suite {
    /// Run each test of a program whose name contains one of `filters` (all, if there are none), in
    /// `directory`, and record which mutants it reaches. Tests that take longer than `limit` seconds are
    /// skipped.
    pub fn record(
        program: PathBuf,
        directory: PathBuf,
        work: &Path,
        filters: &[String],
        limit: f64,
    ) -> Result<Suite> {
        let mut suite = Suite { program, directory, work: work.to_owned(), tests: Vec::new() };
        let listed = suite.command().args(["--list", "--format", "terse"]).output()?;
        ensure!(listed.status.success(), "the tests cannot be listed");
        let text = String::from_utf8(listed.stdout)?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        let wanted =
            |name: &&str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
        for name in names.filter(wanted) {
            if let Some(test) = suite.record_one(name, limit)? {
                suite.tests.push(test);
            }
        }
        let all = serde_json::to_string(&suite.tests)?;
        fs::write(work.join("reach.json"), all)?;
        suite.tests.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let seconds: f64 = suite.tests.iter().map(|test| test.seconds).sum();
        eprintln!("{} tests, {seconds:.0} s", suite.tests.len());
        Ok(suite)
    }

    fn command(&self) -> Command {
        // The shell sets a memory limit, which std cannot.
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\"")).arg(&self.program);
        command.current_dir(&self.directory).env("PROPTEST_RNG_SEED", "1").env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn record_one(&self, name: &str, limit: f64) -> Result<Option<Test>> {
        let reached = self.work.join("reached");
        let _ = fs::remove_file(&reached);
        let mut command = self.command();
        command.args(["--exact", "--test-threads=1", name]).stdout(Stdio::null());
        command.env("MUTANT", "record").env("MUTANT_REACHED", &reached);
        let begin = Instant::now();
        let Some(passed) = wait(&mut command, Duration::from_secs_f64(limit))? else {
            eprintln!("{name} takes too long and is skipped");
            return Ok(None);
        };
        if !passed {
            eprintln!("{name} fails without a mutant and is skipped");
            return Ok(None);
        }
        let seconds = begin.elapsed().as_secs_f64();
        let text = fs::read_to_string(&reached).unwrap_or_default();
        let reaches = text.lines().filter_map(|line| line.parse().ok()).collect();
        Ok(Some(Test { name: name.to_owned(), seconds, reaches }))
    }

    /// Run the tests that reach a mutant, the fastest first, until one fails, for about `budget` seconds.
    pub fn test(&self, number: u32, budget: f64) -> Result<Outcome> {
        let mut reaching = self.tests.iter().filter(|test| test.reaches.contains(&number)).peekable();
        let (mut spent, mut passed) = (0.0, 0);
        for step in STEPS {
            let (mut names, mut seconds) = (Vec::new(), 0.0);
            while let Some(test) = reaching.next_if(|test| names.is_empty() || seconds + test.seconds < step)
            {
                // The last, unlimited step stops at the budget, too.
                if !names.is_empty() && spent + seconds + test.seconds > budget {
                    break;
                }
                names.push(test.name.as_str());
                seconds += test.seconds;
            }
            if names.is_empty() {
                break;
            }
            if let Some(outcome) = self.run(number, &names, seconds)? {
                return Ok(outcome);
            }
            spent += seconds;
            passed += names.len();
            if spent > budget {
                break;
            }
        }
        Ok(Outcome::Survived(passed, reaching.count()))
    }

    fn run(&self, number: u32, names: &[&str], seconds: f64) -> Result<Option<Outcome>> {
        let out = self.work.join("output");
        let mut command = self.command();
        command.args(["--exact", "--test-threads=1"]).args(names).env("MUTANT", number.to_string());
        command.stdout(File::create(&out)?);
        let limit = Duration::from_secs_f64(10.0 + 10.0 * seconds);
        match wait(&mut command, limit)? {
            None => Ok(Some(Outcome::Hung)),
            Some(true) => Ok(None),
            Some(false) => {
                let text = String::from_utf8_lossy(&fs::read(&out)?).into_owned();
                let failed =
                    text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
                // A test that ended the process is the last that was started.
                let last =
                    || text.lines().rev().find_map(|line| line.strip_prefix("test ")?.split(" ... ").next());
                let name = failed.or_else(last).unwrap_or("");
                Ok(Some(Outcome::Caught(name.to_owned())))
            }
        }
    }
}

/// Returns whether the command succeeded, or `None` if it was killed after `limit`.
fn wait(command: &mut Command, limit: Duration) -> Result<Option<bool>> {
    let mut child = command.spawn().context("cannot run the tests")?;
    let end = Instant::now() + limit;
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

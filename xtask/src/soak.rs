//! The random program on random machines, and recorded and built-in programs short of memory, under the oracle until
//! time is up, with all flush policies and all forms of folios, each choice for itself.
//!
//! Each case is one command line, printed before it runs, so that one that fails, hangs or dies can be repeated alone.

mod choice;
mod coverage;

use coverage::{Coverage, Set};
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The arguments of a soak.
pub struct Options {
    minutes: u64,
    /// Cases after which it ends.
    cases: u64,
    seed: u64,
    /// Checked accesses after which it ends.
    checks: u64,
    only: Option<String>,
    threads: usize,
}

impl Options {
    /// Read `--minutes N` (10, or without end if one of the others is given), `--cases N`, `--checks N`, `--seed N`
    /// (1), `--threads N` and `--only KIND`.
    pub fn parse(words: &[&str]) -> Option<Options> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut options =
            Options { minutes: 0, cases: u64::MAX, seed: 1, checks: u64::MAX, only: None, threads };
        for pair in words.chunks(2) {
            let [name, value] = pair else { return None };
            match *name {
                "--minutes" => options.minutes = value.parse().ok()?,
                "--cases" => options.cases = value.parse().ok()?,
                "--checks" => options.checks = value.parse().ok()?,
                "--seed" => options.seed = value.parse().ok()?,
                "--threads" => options.threads = value.parse().ok().filter(|&threads| threads > 0)?,
                "--only" => {
                    let known = ["chaos", "recorded", "built-in"].contains(value);
                    options.only = Some(known.then(|| (*value).to_owned())?);
                }
                _ => return None,
            }
        }
        if options.minutes == 0 {
            let endless = options.cases == u64::MAX && options.checks == u64::MAX;
            options.minutes = if endless { 10 } else { 60 * 24 * 365 };
        }
        Some(options)
    }
}

/// The result of a case: accesses that the oracle has judged, units of work, seconds, and its JSON.
struct Shown {
    checked: u64,
    operations: u64,
    seconds: f64,
    json: String,
}

/// How a case ended.
enum Ended {
    Right(Shown),
    /// It was given up, and why.
    GivenUp(&'static str),
    Wrong,
}

/// Sums over cases.
#[derive(Default)]
struct Totals {
    cases: u64,
    /// Cases that were given up; they are in no other sum.
    given_up: u64,
    checked: u64,
    /// For cases of the random program: judged accesses, operations, seconds.
    chaos: (u64, u64, f64),
    coverage: Coverage,
}

/// Run cases until time is up or one fails.
pub fn soak(options: &Options) -> ExitCode {
    run_cases(options, Set::Random, |seed| choice::case(seed, options.only.as_deref()))
}

/// Run a few fixed cases that together meet all that the random program can meet.
pub fn cover() -> ExitCode {
    let cases = choice::covering();
    let options = Options::parse(&["--cases", &cases.len().to_string(), "--seed", "0"]).expect("well formed");
    run_cases(&options, Set::Fixed, |case| cases[case as usize].clone())
}

/// Print the fixed cases, an invocation of `pagefold` a line.
pub fn list() -> ExitCode {
    choice::covering().iter().for_each(|case| println!("{case}"));
    ExitCode::SUCCESS
}

fn run_cases(options: &Options, set: Set, case: impl Fn(u64) -> String + Sync) -> ExitCode {
    // Cases name files relative to the project's directory.
    if let Err(error) = std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")) {
        eprintln!("xtask: cannot go to the project's directory: {error}");
        return ExitCode::FAILURE;
    }
    let Some(pagefold) = crate::built::pagefold() else { return ExitCode::FAILURE };
    let start = Instant::now();
    let end = start + Duration::from_secs(60 * options.minutes);
    let (next, failed, totals) =
        (AtomicU64::new(options.seed), AtomicBool::new(false), Mutex::new(Totals::of(set)));
    let work = || {
        while Instant::now() < end && !failed.load(Relaxed) {
            let seed = next.fetch_add(1, Relaxed);
            let checked = totals.lock().expect("no thread panics with it").checked;
            if seed - options.seed >= options.cases || checked >= options.checks {
                break;
            }
            let case = case(seed);
            println!("pagefold {case}");
            let ended = run(&pagefold, &case);
            let mut totals = totals.lock().expect("no thread panics with it");
            match ended {
                Ended::Right(shown) => totals.add(&case, &shown),
                Ended::GivenUp(why) => {
                    println!("GIVEN UP: {why}: {case}");
                    totals.given_up += 1;
                }
                Ended::Wrong => {
                    println!("FAILED: {} {case}", pagefold.display());
                    failed.store(true, Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..options.threads).for_each(|_| drop(scope.spawn(work))));
    let totals = totals.into_inner().expect("no thread panics with it");
    let covered = totals.report(start.elapsed());
    match covered && !failed.into_inner() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

impl Totals {
    fn of(set: Set) -> Totals {
        Totals { coverage: Coverage::of(set), ..Totals::default() }
    }

    fn add(&mut self, case: &str, shown: &Shown) {
        self.cases += 1;
        self.checked += shown.checked;
        self.coverage.add(&shown.json);
        if case.starts_with("run chaos") {
            let (checked, operations, seconds) = &mut self.chaos;
            *checked += shown.checked;
            *operations += shown.operations;
            *seconds += shown.seconds;
        }
    }

    /// Print all sums. Returns `false` if something was never met.
    fn report(&self, elapsed: Duration) -> bool {
        let covered = self.coverage.report();
        let (checked, operations, seconds) = self.chaos;
        let a_second = |count: u64| (count as f64 / seconds.max(0.001)) as u64;
        println!(
            "the random program: {checked} accesses checked in {seconds:.0} s of one core: {} a second, and {} operations",
            a_second(checked),
            a_second(operations)
        );
        println!(
            "{} cases, {} accesses checked ({} a second), none wrong; {} cases more were given up",
            self.cases,
            self.checked,
            self.checked / elapsed.as_secs().max(1),
            self.given_up
        );
        covered
    }
}

/// A case takes seconds, and the largest a few minutes on a busy host. One that takes this long hangs.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// The simulated time after which a case is given up. Stops of CPUs make it a hundred times longer.
fn limit(case: &str) -> &'static str {
    if case.contains("--preempt") { "10000s" } else { "1000s" }
}

/// Run a case.
fn run(pagefold: &Path, case: &str) -> Ended {
    let mut command = Command::new(pagefold);
    let Some(output) = output_within(command.args(case.split(' ')).args(["--limit", limit(case)]), LONGEST)
    else {
        return Ended::Wrong;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("had not ended after") {
        return Ended::GivenUp("it thrashes");
    }
    // Classic lists swap nothing out then while free pages and pages of files are more than the high mark, as in Linux.
    let swaps_nothing =
        [" reclaim.policy=classic ", " vm.swappiness=0 "].iter().all(|set| case.contains(set));
    if said.contains("ran out of memory") && swaps_nothing {
        return Ended::GivenUp("no memory, and vm.swappiness=0 forbids to swap");
    }
    eprint!("{said}");
    shown(&output).map_or(Ended::Wrong, Ended::Right)
}

/// The result of a case if nothing was wrong.
fn shown(output: &Output) -> Option<Shown> {
    let json = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |key: &str| {
        let (_, rest) = json.split_once(&format!("\"{key}\":"))?;
        rest.trim_start().split(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse::<f64>().ok()
    };
    let right = output.status.success() && number("violations") == Some(0.0);
    let (checked, operations) = (number("checked")? as u64, number("progress")? as u64);
    let seconds = number("host_seconds")?;
    right.then_some(Shown { checked, operations, seconds, json })
}

/// Run a command; returns its output and status if it ends in time, else kills it.
fn output_within(command: &mut Command, limit: Duration) -> Option<Output> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
    // Without a reader a full pipe would stop the command for ever.
    let stdout = read_all(child.stdout.take().expect("standard output is a pipe"));
    let stderr = read_all(child.stderr.take().expect("standard error is a pipe"));
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait().ok()? {
            Some(status) => break status,
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            None => {
                println!("HANGS: it has not ended after {} s", limit.as_secs());
                child.kill().and_then(|()| child.wait()).ok()?;
                return None;
            }
        }
    };
    Some(Output { status, stdout: stdout.join().ok()?.ok()?, stderr: stderr.join().ok()?.ok()? })
}

fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<std::io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).map(|_| bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hanging_command_is_killed_and_the_output_of_one_that_ends_is_read() {
        assert!(output_within(Command::new("sleep").arg("3600"), Duration::ZERO).is_none());
        // More than a pipe holds.
        let many = Command::new("seq").arg("100000").output().expect("coreutils are there");
        let read = output_within(Command::new("seq").arg("100000"), LONGEST).expect("it ends");
        assert!(read.status.success() && read.stdout == many.stdout);
    }
}

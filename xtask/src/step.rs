//! One command of a task, and an estimate of the time that the rest of a task takes.

use crate::tool;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Instant;

/// Seconds that steps take on 2 cores while the other lane runs, to estimate the rest of a task: measured on
/// 2026-11-25, when both lanes took 1,437. A task ends with the seconds of its steps; when they change for good, copy
/// them here.
const TYPICAL: &[(&str, u64)] = &[
    ("format", 1),
    ("lints", 83),
    ("lints of the one-threaded form", 25),
    ("lints of the models", 22),
    ("packages", 5),
    ("the oldest compiler", 1),
    ("documents", 25),
    ("tests", 400),
    ("tests of the memory manager", 218),
    ("tests of its one-threaded form", 87),
    ("every order of the small models", 134),
    ("random orders of the models", 98),
    ("tests of everything else", 473),
    ("the Python package", 80),
    ("format of the example", 1),
    ("lints of the example", 12),
    ("the memory manager in another kernel, on CPUs that run at the same time", 40),
    ("the release build", 218),
    ("instructions", 60),
    ("what the random program meets", 7),
    ("counts beside Linux's", 70),
    ("format of the booted machine", 1),
    ("lints of the kernel image", 17),
    ("documents of the kernel image", 1),
    ("tests of the booted machine's library", 138),
    ("the booted machine", 710),
    ("format of the Linux guest", 1),
    ("lints of the Linux guest", 2),
    ("programs on Linux", 30),
];

/// The most lines of a failed step, of its end and of each target's failed tests, that are printed again after all
/// steps, where a reader looks first.
const REPEATED: usize = 40;

/// What is printed again if a step fails.
#[derive(Default)]
struct Told {
    last: VecDeque<String>,
    /// What failed tests have printed, and where they panicked.
    failures: Vec<String>,
    /// Lines of `failures` that the present target may add.
    room: usize,
    /// Names of the failed tests.
    tests: Vec<String>,
}

impl Told {
    /// Note a line of a step's output. cargo goes on with the next target after failed tests, so their lines may be far
    /// from the end.
    fn note(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.tests.push(name.to_owned());
        }
        match line {
            "failures:" => self.room = REPEATED,
            _ if line.starts_with("test result:") => self.room = 0,
            _ if self.room > 0 => {
                self.failures.push(line.to_owned());
                self.room -= 1;
            }
            _ => {}
        }
        if self.last.len() == REPEATED {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
    }

    /// The lines that say most about a failure.
    fn lines(&self) -> impl Iterator<Item = &String> {
        self.failures.iter().chain(&self.last)
    }
}

/// A command with a name.
pub struct Step {
    name: &'static str,
    runner: Runner,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
}

/// What runs a step.
enum Runner {
    Cargo,
    /// This program, at this path. Through cargo it would wait for the other lane's build. The path is asked for when
    /// the step is made: once a build has replaced the file, the running program's own is gone.
    Xtask(PathBuf),
}

impl Step {
    /// A cargo command.
    pub fn cargo<'a>(name: &'static str, args: impl IntoIterator<Item = &'a str>) -> Step {
        Step::of(name, Runner::Cargo, args)
    }

    /// Another task of this program.
    pub fn xtask<'a>(name: &'static str, args: impl IntoIterator<Item = &'a str>) -> Step {
        let this = std::env::current_exe().unwrap_or_else(|_| "xtask".into());
        Step::of(name, Runner::Xtask(this), args)
    }

    fn of<'a>(name: &'static str, runner: Runner, args: impl IntoIterator<Item = &'a str>) -> Step {
        Step { name, runner, args: args.into_iter().map(str::to_owned).collect(), env: Vec::new() }
    }

    /// Its name.
    #[cfg(test)]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Add an environment variable.
    pub fn env(mut self, key: &'static str, value: &str) -> Step {
        self.env.push((key, value.to_owned()));
        self
    }

    /// The command as typed in a shell.
    fn command_line(&self) -> String {
        let mut line = String::new();
        for (key, value) in &self.env {
            line.push_str(&format!("{key}='{value}' "));
        }
        let runner = match &self.runner {
            Runner::Cargo => "cargo ",
            Runner::Xtask(_) => "cargo xtask ",
        };
        line + runner + &self.args.join(" ")
    }

    /// The seconds that it usually takes, if known.
    pub fn typical(&self) -> Option<u64> {
        TYPICAL.iter().find(|(name, _)| *name == self.name).map(|(_, seconds)| *seconds)
    }

    /// Run it and print each line of its output after `mark`; without a mark it prints by itself. Standard input is
    /// closed, so that nothing can wait for an answer. Returns whether it succeeded, and what marked lines told.
    fn run(&self, mark: Option<&str>) -> (bool, Told) {
        let mut told = Told::default();
        let status = match mark {
            Some(mark) => self.run_marked(mark, &mut told),
            None => self.command().status(),
        };
        match status {
            Ok(status) => (status.success(), told),
            Err(error) => {
                let why = format!("xtask: cannot run {}: {error}", self.command_line());
                eprintln!("{why}");
                told.note(&why);
                (false, told)
            }
        }
    }

    fn run_marked(&self, mark: &str, told: &mut Told) -> io::Result<ExitStatus> {
        let (output, input) = io::pipe()?;
        let mut child = self.command().stdout(input.try_clone()?).stderr(input).spawn()?;
        for line in BufReader::new(output).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{mark}{line}");
            told.note(&line);
        }
        child.wait()
    }

    fn command(&self) -> Command {
        let mut command = match &self.runner {
            Runner::Cargo => Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
            Runner::Xtask(this) => Command::new(this),
        };
        command.args(&self.args).stdin(Stdio::null());
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        command
    }
}

/// How a step ended.
struct Report<'a> {
    step: &'a Step,
    passed: bool,
    /// What its lines told, if lanes ran side by side.
    told: Told,
    seconds: u64,
}

/// Run steps, then print how each ended. Lanes run side by side, the steps of a lane one after the other.
pub fn run_all(lanes: &[Vec<Step>]) -> ExitCode {
    let start = Instant::now();
    let reports: Vec<Report> = std::thread::scope(|scope| {
        let threads = lanes.iter().enumerate().map(|(at, lane)| {
            let mark = (lanes.len() > 1).then(|| format!("{at}| "));
            scope.spawn(move || run_lane(mark.as_deref(), lane, start))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(|lane| lane.join().expect("a lane reports failures")).collect()
    });
    let failed: Vec<&Report> = reports.iter().filter(|report| !report.passed).collect();
    for report in &failed {
        println!("\n==> of {}, which failed:", report.step.name);
        report.told.lines().for_each(|line| println!("{line}"));
    }
    println!("\n{:-<72}", "");
    for Report { step, passed, seconds, .. } in &reports {
        println!("{:<6} {:<36} {seconds:>5} s", if *passed { "ok" } else { "FAILED" }, step.name);
    }
    for report in &failed {
        println!("again: {}", report.step.command_line());
        report.told.tests.iter().for_each(|name| println!("       failed: {name}"));
    }
    println!(
        "{} of {} steps ok in {} s{}",
        reports.len() - failed.len(),
        reports.len(),
        start.elapsed().as_secs(),
        tool::left_out()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Run the steps of a lane, and mark what they print. A failed step does not stop those after it.
fn run_lane<'a>(mark: Option<&str>, lane: &'a [Step], start: Instant) -> Vec<Report<'a>> {
    let run = |(done, step): (usize, &'a Step)| {
        let before = mark.unwrap_or_default();
        if let Some(rest) = rest(lane, done, start.elapsed().as_secs()) {
            eprintln!("{before}\n{before}==> {rest}");
        }
        eprintln!("{before}\n{before}==> {}: {}", step.name, step.command_line());
        let begin = Instant::now();
        let (passed, told) = step.run(mark);
        Report { step, passed, told, seconds: begin.elapsed().as_secs() }
    };
    lane.iter().enumerate().map(run).collect()
}

/// Says how long the steps of a lane after the first `done` will take, if the times of all are known.
fn rest(lane: &[Step], done: usize, took: u64) -> Option<String> {
    let typical: Vec<u64> = lane.iter().map(Step::typical).collect::<Option<_>>()?;
    let (before, after) = typical.split_at(done);
    let minutes = remaining(before, took, after).div_ceil(60);
    Some(format!("{done} of {} steps in {took} s; about {minutes} min to go", lane.len()))
}

/// The seconds that steps with the times `left` will take, if those with the times `done` took `took`.
fn remaining(done: &[u64], took: u64, left: &[u64]) -> u64 {
    let (done, left): (u64, u64) = (done.iter().sum(), left.iter().sum());
    // A few seconds of compiling say nothing about this computer's speed.
    if done < 30 { left } else { left * took / done }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_this_program_have_its_path_from_the_start() {
        let step = Step::xtask("a task", ["no-such-task"]);
        let this = std::env::current_exe().unwrap();
        assert!(matches!(&step.runner, Runner::Xtask(path) if *path == this));
        assert_eq!(step.command().get_program(), this);
        assert_eq!(step.command_line(), "cargo xtask no-such-task");
    }

    #[test]
    fn failed_tests_are_told_however_much_follows_them() {
        let mut told = Told::default();
        let output = "test a::good ... ok\ntest a::bad ... FAILED\n\nfailures:\n\n---- a::bad stdout ----\n\
                      thread 'a::bad' panicked at a.rs:1:2:\n\nfailures:\n    a::bad\n\ntest result: FAILED. 1 passed\n";
        output.lines().for_each(|line| told.note(line));
        (0..1000).for_each(|n| told.note(&format!("test b::{n} ... ok")));
        assert_eq!(told.tests, ["a::bad"]);
        let lines: Vec<&String> = told.lines().collect();
        assert!(lines.iter().any(|line| line.contains("panicked at a.rs")) && lines.len() < 2 * REPEATED);
        assert_eq!(lines.last().unwrap().as_str(), "test b::999 ... ok");
    }

    #[test]
    fn the_time_of_the_rest_scales_with_that_of_the_beginning() {
        assert_eq!(remaining(&[], 0, &[100, 200]), 300);
        assert_eq!(remaining(&[2], 9, &[100]), 100);
        assert_eq!(remaining(&[40, 60], 200, &[50]), 100);
        assert_eq!(remaining(&[100], 50, &[]), 0);
    }
}

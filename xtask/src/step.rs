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
    ("documents", 25),
    ("tests", 400),
    ("tests of the memory manager", 218),
    ("tests of its one-threaded form", 87),
    ("every order of the small models", 134),
    ("random orders of the models", 98),
    ("tests of everything else", 473),
    ("format of the example", 1),
    ("lints of the example", 12),
    ("the memory manager in another kernel, on CPUs that run at the same time", 40),
    ("the release build", 218),
    ("instructions", 60),
    ("what the random program meets", 7),
    ("format of the booted machine", 1),
    ("lints of the kernel image", 17),
    ("documents of the kernel image", 1),
    ("tests of the booted machine's library", 138),
    ("the booted machine", 710),
    ("format of the Linux guest", 1),
    ("lints of the Linux guest", 2),
    ("programs on Linux", 30),
];

/// Lines of a failed step that are printed again after all steps, where a reader looks first.
const REPEATED: usize = 40;

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
    /// closed, so that nothing can wait for an answer. Returns whether it succeeded, and its last marked lines.
    fn run(&self, mark: Option<&str>) -> (bool, VecDeque<String>) {
        let mut last = VecDeque::new();
        let status = match mark {
            Some(mark) => self.run_marked(mark, &mut last),
            None => self.command().status(),
        };
        match status {
            Ok(status) => (status.success(), last),
            Err(error) => {
                let why = format!("xtask: cannot run {}: {error}", self.command_line());
                eprintln!("{why}");
                last.push_back(why);
                (false, last)
            }
        }
    }

    fn run_marked(&self, mark: &str, last: &mut VecDeque<String>) -> io::Result<ExitStatus> {
        let (output, input) = io::pipe()?;
        let mut child = self.command().stdout(input.try_clone()?).stderr(input).spawn()?;
        for line in BufReader::new(output).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{mark}{line}");
            if last.len() == REPEATED {
                last.pop_front();
            }
            last.push_back(line);
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
    /// Its last lines, if lanes ran side by side.
    last: VecDeque<String>,
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
        println!("\n==> the last lines of {}, which failed:", report.step.name);
        report.last.iter().for_each(|line| println!("{line}"));
    }
    println!("\n{:-<72}", "");
    for Report { step, passed, seconds, .. } in &reports {
        println!("{:<6} {:<36} {seconds:>5} s", if *passed { "ok" } else { "FAILED" }, step.name);
    }
    for report in &failed {
        println!("again: {}", report.step.command_line());
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
        let (passed, last) = step.run(mark);
        Report { step, passed, last, seconds: begin.elapsed().as_secs() }
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
    fn the_time_of_the_rest_scales_with_that_of_the_beginning() {
        assert_eq!(remaining(&[], 0, &[100, 200]), 300);
        assert_eq!(remaining(&[2], 9, &[100]), 100);
        assert_eq!(remaining(&[40, 60], 200, &[50]), 100);
        assert_eq!(remaining(&[100], 50, &[]), 0);
    }
}

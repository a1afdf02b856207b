//! One command of a task, and an estimate of the time that the rest of a task takes.

use crate::qemu;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Seconds that steps take on 2 cores, to estimate the rest of a task: about 2,300 in all, on 2026-11-25, rounded from
/// a quiet run and, for tests of everything else, a busy one. A task ends with the seconds of its steps; when they
/// change for good, copy them here.
const TYPICAL: &[(&str, u64)] = &[
    ("format", 2),
    ("lints", 72),
    ("lints of the one-threaded form", 21),
    ("lints of the models", 20),
    ("documents", 20),
    ("tests", 400),
    ("tests of the memory manager", 165),
    ("tests of its one-threaded form", 80),
    ("every order of the small models", 190),
    ("random orders of the models", 110),
    ("tests of everything else", 455),
    ("format of the example", 1),
    ("lints of the example", 11),
    ("the memory manager in another kernel, on CPUs that run at the same time", 28),
    ("the release build", 170),
    ("what the random program meets", 10),
    ("format of the booted machine", 1),
    ("lints of the kernel image", 16),
    ("documents of the kernel image", 2),
    ("tests of the booted machine's library", 120),
    ("the booted machine", 750),
    ("format of the Linux guest", 1),
    ("lints of the Linux guest", 2),
    ("programs on Linux", 45),
];

/// A command with a name.
pub struct Step {
    name: &'static str,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
}

impl Step {
    /// A cargo command.
    pub fn cargo<'a>(name: &'static str, args: impl IntoIterator<Item = &'a str>) -> Step {
        Step { name, args: args.into_iter().map(str::to_owned).collect(), env: Vec::new() }
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
        line + "cargo " + &self.args.join(" ")
    }

    /// The seconds that it usually takes, if known.
    pub fn typical(&self) -> Option<u64> {
        TYPICAL.iter().find(|(name, _)| *name == self.name).map(|(_, seconds)| *seconds)
    }

    /// Run it. Standard input is closed, so that nothing can wait for an answer. Returns whether it succeeded.
    fn run(&self) -> bool {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(&self.args).stdin(Stdio::null()).envs(self.env.iter().map(|(key, value)| (key, value)));
        match command.status() {
            Ok(status) => status.success(),
            Err(error) => {
                eprintln!("xtask: cannot run cargo: {error}");
                false
            }
        }
    }
}

/// The seconds that steps with the times `left` will take, if those with the times `done` took `took`.
fn remaining(done: &[u64], took: u64, left: &[u64]) -> u64 {
    let (done, left): (u64, u64) = (done.iter().sum(), left.iter().sum());
    // A few seconds of compiling say nothing about this computer's speed.
    if done < 30 { left } else { left * took / done }
}

/// Print how long the steps after the first `done` will take, if the times of all steps are known.
fn tell_rest(steps: &[Step], done: usize, took: u64) {
    let typical: Option<Vec<u64>> = steps.iter().map(Step::typical).collect();
    if let Some(typical) = typical
        && done < steps.len()
    {
        let (before, after) = typical.split_at(done);
        let minutes = remaining(before, took, after).div_ceil(60);
        eprintln!("\n==> {done} of {} steps in {took} s; about {minutes} min to go", steps.len());
    }
}

/// Run all steps, then print how each ended.
pub fn run_all(steps: &[Step]) -> ExitCode {
    let start = Instant::now();
    let mut report = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        tell_rest(steps, at, start.elapsed().as_secs());
        eprintln!("\n==> {}: {}", step.name, step.command_line());
        let begin = Instant::now();
        let passed = step.run();
        report.push((step, passed, begin.elapsed().as_secs()));
    }
    println!("\n{:-<72}", "");
    for (step, passed, seconds) in &report {
        println!("{:<6} {:<36} {seconds:>5} s", if *passed { "ok" } else { "FAILED" }, step.name);
    }
    let failed: Vec<&Step> = report.iter().filter(|(_, passed, _)| !passed).map(|(step, ..)| *step).collect();
    for step in &failed {
        println!("again: {}", step.command_line());
    }
    println!(
        "{} of {} steps ok in {} s{}",
        report.len() - failed.len(),
        steps.len(),
        start.elapsed().as_secs(),
        qemu::left_out()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_rest_scales_with_that_of_the_beginning() {
        assert_eq!(remaining(&[], 0, &[100, 200]), 300);
        assert_eq!(remaining(&[2], 9, &[100]), 100);
        assert_eq!(remaining(&[40, 60], 200, &[50]), 100);
        assert_eq!(remaining(&[100], 50, &[]), 0);
    }
}

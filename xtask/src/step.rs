//! One command of a task.

use crate::qemu;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

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

    /// With an environment variable.
    pub fn env(mut self, key: &'static str, value: &str) -> Step {
        self.env.push((key, value.to_owned()));
        self
    }

    /// As one would type it.
    fn command_line(&self) -> String {
        let mut line = String::new();
        for (key, value) in &self.env {
            line.push_str(&format!("{key}='{value}' "));
        }
        line + "cargo " + &self.args.join(" ")
    }

    /// Run it; standard input is closed, so nothing can wait for an answer.
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

/// Run all steps, then say how each ended.
pub fn run_all(steps: &[Step]) -> ExitCode {
    let start = Instant::now();
    let mut report = Vec::new();
    for step in steps {
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

//! The tools that cargo cannot provide: QEMU's user-mode emulator, which the tests of the recorder need, its emulator
//! of a whole PC, on which the kernel boots, valgrind, which counts instructions, a browser, which shows pages, and
//! Python.

use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, Stdio};

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// QEMU that runs one program.
    User,
    /// QEMU that runs a whole PC.
    System,
    /// Counts a program's instructions.
    Valgrind,
    /// Shows pages of HTML.
    Browser,
    /// Python, with what makes environments of it.
    Python,
}

impl Tool {
    fn program(self) -> &'static str {
        match self {
            Tool::User => "qemu-x86_64",
            Tool::System => "qemu-system-x86_64",
            Tool::Valgrind => "valgrind",
            Tool::Browser => "chromium",
            Tool::Python => "python3",
        }
    }

    /// The Debian package that contains it.
    pub fn package(self) -> &'static str {
        match self {
            Tool::User => "qemu-user",
            Tool::System => "qemu-system-x86",
            Tool::Valgrind => "valgrind",
            Tool::Browser => "chromium",
            Tool::Python => "python3-venv",
        }
    }

    /// What is not tested without it.
    pub fn purpose(self) -> &'static str {
        match self {
            Tool::User => "recording",
            Tool::System => "the booted machine",
            Tool::Valgrind => "the number of instructions of the simulator",
            Tool::Browser => "how a browser shows pages",
            Tool::Python => "the Python package",
        }
    }

    /// All of them.
    pub const ALL: [Tool; 5] = [Tool::User, Tool::System, Tool::Valgrind, Tool::Browser, Tool::Python];

    /// Whether it is installed.
    pub fn is_there(self) -> bool {
        std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(self.program()).is_file()))
    }

    /// Say that it is missing, and which command installs it.
    fn tell_missing(self) {
        eprintln!(
            "xtask: {} is missing, so {} is not tested; on Debian: sudo apt-get install {}",
            self.program(),
            self.purpose(),
            self.package()
        );
    }
}

/// Install what is missing of these, if that is possible without a password: at a terminal after a question, unless
/// `install` answers it. Never fails: the tests that need what is still missing are skipped, with the command that
/// installs it.
pub fn provide(tools: &[Tool], install: bool) {
    let missing = || tools.iter().copied().filter(|tool| !tool.is_there());
    let packages: Vec<&str> = missing().map(Tool::package).collect();
    let possible = !packages.is_empty() && Path::new("/etc/debian_version").exists() && is_root();
    if possible && (install || agrees(&packages)) {
        let words = [&["install", "-y", "--no-install-recommends"], &packages[..]].concat();
        if apt_get(&["update"]) && apt_get(&words) {
            eprintln!("xtask: installed {}", packages.join(", "));
        }
    }
    missing().for_each(Tool::tell_missing);
}

/// Whether the person at the terminal wants these packages. Where there is none, as on a server, they are wanted.
fn agrees(packages: &[&str]) -> bool {
    if !std::io::stdin().is_terminal() {
        return true;
    }
    eprint!(
        "xtask: install {} by apt-get? Without them, some tests are skipped. [y/N] ",
        packages.join(", ")
    );
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && is_yes(&answer)
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

/// What could not be tested because a tool is missing, for the last line of a task.
pub fn left_out() -> String {
    let missing = Tool::ALL.into_iter().filter(|tool| !tool.is_there());
    missing
        .map(|tool| format!("; without {}, so {} was not tested", tool.package(), tool.purpose()))
        .collect()
}

fn is_root() -> bool {
    let answer = Command::new("id").arg("-u").output();
    answer.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn apt_get(args: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn only_a_yes_is_one() {
        assert!(["y\n", "Yes\n", "Y"].into_iter().all(is_yes));
        assert!(!["", "\n", "n\n", "yesterday\n"].into_iter().any(is_yes));
    }
}

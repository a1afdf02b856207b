//! The tools that cargo cannot provide: QEMU's user-mode emulator, which the tests of the recorder need, its emulator
//! of a whole PC, on which the kernel boots, valgrind, which counts instructions, and a browser, which shows pages.

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
}

impl Tool {
    fn program(self) -> &'static str {
        match self {
            Tool::User => "qemu-x86_64",
            Tool::System => "qemu-system-x86_64",
            Tool::Valgrind => "valgrind",
            Tool::Browser => "chromium",
        }
    }

    /// The Debian package that contains it.
    pub fn package(self) -> &'static str {
        match self {
            Tool::User => "qemu-user",
            Tool::System => "qemu-system-x86",
            Tool::Valgrind => "valgrind",
            Tool::Browser => "chromium",
        }
    }

    /// What is not tested without it.
    pub fn purpose(self) -> &'static str {
        match self {
            Tool::User => "recording",
            Tool::System => "the booted machine",
            Tool::Valgrind => "the number of instructions of the simulator",
            Tool::Browser => "how a browser shows pages",
        }
    }

    /// All of them.
    pub const ALL: [Tool; 4] = [Tool::User, Tool::System, Tool::Valgrind, Tool::Browser];

    /// Whether it is installed.
    pub fn is_there(self) -> bool {
        std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(self.program()).is_file()))
    }

    /// Install it if that is possible without a prompt; otherwise print the command that does it. Never fails: the
    /// tests that need it are skipped if it is missing.
    pub fn provide(self) {
        if self.is_there() {
            return;
        }
        let (program, package) = (self.program(), self.package());
        let debian = Path::new("/etc/debian_version").exists();
        if debian
            && is_root()
            && apt_get(&["update"])
            && apt_get(&["install", "-y", "--no-install-recommends", package])
        {
            eprintln!("xtask: installed {package}");
        }
        if !self.is_there() {
            eprintln!(
                "xtask: {program} is missing, so {} is not tested; on Debian: sudo apt-get install {package}",
                self.purpose()
            );
        }
    }
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

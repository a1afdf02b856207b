//! A script instead of QEMU that prints what a guest would.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-qemu.sh");

/// A fake guest and its behaviour.
pub struct Fake {
    pub folder: tempfile::TempDir,
    pub said: String,
    pub status: i32,
    pub error: &'static str,
    pub hangs: bool,
    /// How many starts end with a panic before the first process.
    pub panics: u32,
}

impl Fake {
    /// A guest that prints this and succeeds.
    pub fn new(said: impl Into<String>) -> Fake {
        let folder = tempfile::tempdir().expect("a scratch folder");
        Fake { folder, said: said.into(), status: 33, error: "", hangs: false, panics: 0 }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `pagefold` with these words, the script as every tool, and scratch files in `tmp`.
    pub fn command(&self, line: &str) -> Command {
        fs::write(self.path("said"), &self.said).expect("the scratch folder can be written");
        let (tools, scratch) = (self.path("tools"), self.path("tmp"));
        for folder in [&tools, &scratch] {
            fs::create_dir_all(folder).expect("the scratch folder can be written");
        }
        let tool = tools.join("mke2fs");
        fs::write(&tool, "#!/bin/sh\n").expect("the scratch folder can be written");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("a script can be run");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagefold"));
        command.args(line.split_whitespace()).stdin(Stdio::null());
        for variable in ["PAGEFOLD_QEMU", "PAGEFOLD_KERNEL", "PAGEFOLD_LINUX", "PAGEFOLD_LINUX_INIT"] {
            command.env(variable, FAKE);
        }
        command.env("PAGEFOLD_CONFIG", "");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", tools.display())).env("TMPDIR", scratch);
        command.env("FAKE_OUTPUT", self.path("said")).env("FAKE_STATUS", self.status.to_string());
        command.env("FAKE_ERROR", self.error).env("FAKE_ARGS", self.path("args"));
        command.env("FAKE_PANICS", self.panics.to_string());
        command.env("FAKE_HANG", if self.hangs { "1" } else { "" });
        command
    }

    /// Its exit code, standard output and standard error.
    pub fn run(&self, line: &str) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.command(line).output().expect("the binary runs");
        (status.code(), text(stdout), text(stderr))
    }

    /// Its standard output; it must succeed.
    pub fn good(&self, line: &str) -> String {
        let (status, stdout, stderr) = self.run(line);
        assert_eq!(status, Some(0), "{line}: {stderr}");
        stdout
    }

    /// Its error message; it must end with this exit code and print no result.
    pub fn bad(&self, code: i32, line: &str) -> String {
        let (status, stdout, stderr) = self.run(line);
        assert_eq!((status, stdout.as_str()), (Some(code), ""), "{line}: {stderr}");
        stderr
    }

    /// The words with which QEMU was started.
    pub fn args(&self) -> String {
        fs::read_to_string(self.path("args")).expect("QEMU was started")
    }
}

pub fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("output is UTF-8")
}

//! `pagefold linux` and `pagefold truth` from end to end, with a script instead of QEMU that prints what a guest would.
#![cfg(unix)]

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-qemu.sh");
const RUN: &str = "zipf:2M --memory 16M --runs 1 -q";

/// The output of a guest that succeeds: the program does the same work as on the simulated machine.
fn said(cpus: u32, faults: u64) -> String {
    format!(
        "SeaBIOS\n@pagefold 1\n@machine cpus={cpus} nodes=1 memory=16777216\n@counter pgfault {faults}\n@counter pgmajfault 0\n\
         @counter pgscan_kswapd 0\n@counter pgscan_direct 0\n@counter pgpgin 0\n@counter pgpgout 0\n@metric read_micros 300\n\
         @metric fault_nanos 9000\n@metric kernel_pages 40\n@metric hidden_pages 900\n@metric managed_pages 20000\n\
         @note one thing\n@done nanos=5 accesses=12288 progress=1536 tasks=1\n@end ok\n"
    )
}

struct Fake {
    folder: tempfile::TempDir,
    said: String,
    status: i32,
    hangs: bool,
}

impl Fake {
    fn new(said: String) -> Fake {
        Fake { folder: tempfile::tempdir().expect("a scratch folder"), said, status: 33, hangs: false }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        fs::write(self.path("said"), &self.said).expect("the scratch folder can be written");
        let tool = self.path("mke2fs");
        fs::write(&tool, "#!/bin/sh\n").expect("the scratch folder can be written");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("a script can be run");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagefold"));
        command.args(line.split_whitespace()).stdin(Stdio::null());
        for variable in ["PAGEFOLD_QEMU", "PAGEFOLD_LINUX", "PAGEFOLD_LINUX_INIT"] {
            command.env(variable, FAKE);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.folder.path().display()));
        command.env("FAKE_OUTPUT", self.path("said")).env("FAKE_STATUS", self.status.to_string());
        command.env("FAKE_ERROR", "").env("FAKE_ARGS", self.path("args"));
        command.env("FAKE_HANG", if self.hangs { "1" } else { "" });
        command
    }

    fn run(&self, line: &str) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.command(line).output().expect("the binary runs");
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        (status.code(), text(stdout), text(stderr))
    }

    /// Its error message of one line; it must end with this exit code.
    fn bad(&self, code: i32, line: &str) -> String {
        let (status, stdout, stderr) = self.run(line);
        assert_eq!((status, stdout.as_str()), (Some(code), ""), "{line}: {stderr}");
        stderr
    }
}

#[test]
fn counts_are_compared_with_linux_under_its_conditions() {
    let fake = Fake::new(said(2, 513));
    let (code, text, errors) = fake.run(&format!("linux {RUN} --append cgroup_disable=memory"));
    assert_eq!(code, Some(0), "{errors}");
    for expected in
        ["4,096 free pages", "9000 ns", "lru_gen/enabled=0", "cgroup_disable=memory", "note: one thing"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let line = text.lines().find(|line| line.starts_with("pgfault ")).expect("the row of faults");
    assert!(line.ends_with("exact"), "{line}");
    let args = fs::read_to_string(fake.path("args")).expect("QEMU was started");
    assert!(
        args.contains("hugepages=") && args.contains("\n-smp\n2\n") && args.contains("-initrd"),
        "{args}"
    );
}

#[test]
fn json_has_the_promised_keys() {
    let fake = Fake::new(said(1, 700));
    let twin = fake.path("twin.toml");
    let (code, text, errors) = fake.run(&format!(
        "linux {RUN} --cpus 1 --profile mglru --json --no-host-time --twin {}",
        twin.display()
    ));
    assert_eq!(code, Some(0), "{errors}");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&json["command"], &json["same_work"]), (&Value::from("linux"), &Value::from(true)));
    let row = json["rows"].as_array().and_then(|rows| rows.iter().find(|row| row["metric"] == "pgfault"));
    let row = row.expect("the row of faults");
    assert_eq!((&row["agreement"], &row["linux"]), (&Value::from("exact"), &Value::from(700.0)));
    assert_eq!(
        (&row["linux_ci"], &row["booted"], &row["missed"]),
        (&Value::Null, &Value::Null, &Value::from(true))
    );
    assert!(row["error_pct"].as_f64().is_some_and(|error| error < -20.0), "{row}");
    let settings = json["conditions"]["settings"].as_array().expect("settings");
    assert!(settings.contains(&Value::from("/sys/kernel/mm/lru_gen/enabled 7")), "{settings:?}");
    // The twin is a machine like any other.
    let (code, _, errors) = fake.run(&format!("run zipf:2M --machine {} -q", twin.display()));
    assert_eq!(code, Some(0), "{errors}");
}

#[test]
fn failures_are_one_line_and_leave_nothing() {
    let line = format!("linux {RUN}");
    let mut panicked = Fake::new("SeaBIOS\nKernel panic - not syncing: no init\n".into());
    panicked.status = 0;
    let message = panicked.bad(1, &line);
    assert!(message.contains("without '@end'") && message.contains("Kernel panic"), "{message}");
    assert!(message.contains("replay: pagefold linux zipf:2M"), "{message}");
    let mut hangs = Fake::new("@pagefold 1\n".into());
    hangs.hangs = true;
    let message = hangs.bad(1, &format!("{line} --timeout 1"));
    assert!(message.contains("killed (--timeout"), "{message}");
    let mut small = Fake::new("@pagefold 1\n@bad 9 pages are free, fewer than 4096\n@end bad\n".into());
    small.status = 37;
    assert!(small.bad(2, &line).contains("9 pages are free"));
    let other = Fake::new(said(2, 513).replace("accesses=12288", "accesses=1"));
    let (code, _, message) = other.run(&line);
    assert!(code == Some(1) && message.contains("did not do the same work"), "{message}");
}

#[test]
fn missing_tools_are_named_before_a_boot() {
    let fake = Fake::new(said(2, 513));
    for (args, variable, expected) in [
        ("linux zipf:2M --kernel no/such", "", "no/such: there is no such file"),
        ("linux zipf:2M --modules no/such", "", "no/such: there is no such folder"),
        ("linux zipf:2M --qemu no/such", "", "no/such: there is no such file"),
        ("linux zipf:2M", "PAGEFOLD_LINUX_INIT", "cargo xtask linux"),
        ("linux zipf:2M --profile s3-fifo", "", "the policies classic and mglru only"),
        ("linux zipf:2M --set file.max_order=2", "", "file.max_order=2"),
        ("linux zippf", "", "did you mean 'zipf'?"),
        ("linux zipf:2M --memory 1M", "", "too small to run"),
    ] {
        let mut command = fake.command(args);
        if !variable.is_empty() {
            command.env(variable, "no/such");
        }
        let output = command.output().expect("the binary runs");
        let message = String::from_utf8(output.stderr).expect("output is UTF-8");
        assert_eq!(output.status.code(), Some(2), "{args}: {message}");
        assert!(message.contains(expected) && message.lines().count() == 1, "{args}: {message}");
    }
    assert!(!fake.path("args").exists(), "QEMU was not started");
}

#[test]
fn kept_comparisons_become_a_document() {
    let fake = Fake::new(said(1, 8192));
    let (dir, document) = (fake.path("results"), fake.path("truth.md"));
    let line = format!(
        "truth {} --only sequential-file --runs 1 -q --document {}",
        dir.display(),
        document.display()
    );
    // The fake guest did the work of another program. The document says so, and the command succeeds.
    let (code, _, errors) = fake.run(&line);
    assert_eq!(code, Some(0), "{errors}");
    let text = fs::read_to_string(&document).expect("the document");
    assert!(text.contains("### sequential-file") && text.contains("did not do the same work"), "{text}");
    fs::remove_file(fake.path("args")).expect("QEMU was started");
    assert_eq!(fake.run(&line).0, Some(0));
    assert!(!fake.path("args").exists(), "nothing is made twice");
}

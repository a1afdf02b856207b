//! Recordings: in a terminal, interrupted, killed, and of programs that start others.

use super::*;
use std::io::Write;
use std::process::Child;
use std::time::{Duration, Instant};

/// A folder for a recording, with one for its raw files.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        Place { folder }
    }

    fn temporary(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    fn trace(&self) -> String {
        self.folder.path().join("x.pft").display().to_string()
    }

    /// `pagefold record`, with the raw files here.
    fn record(&self, command: &[&str]) -> Command {
        let mut record = super::command();
        record.args(["record", "-o", &self.trace(), "--"]).args(command).env("TMPDIR", self.temporary());
        record.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        record
    }

    /// Bytes of raw files.
    fn raw_bytes(&self) -> u64 {
        let folders = fs::read_dir(self.temporary()).unwrap().flatten().map(|entry| entry.path().join("raw"));
        let files = folders.filter_map(|raw| fs::read_dir(raw).ok()).flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).sum()
    }

    /// Wait until the raw files show that the program is running.
    fn wait_for(&self, bytes: u64, child: &mut Child) {
        while self.raw_bytes() < bytes && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Processes that still run under the emulator.
    fn emulators(&self) -> usize {
        let maps = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("maps"));
        let temporary = self.temporary().display().to_string();
        maps.filter_map(|maps| fs::read_to_string(maps).ok()).filter(|maps| maps.contains(&temporary)).count()
    }
}

const LOOP: [&str; 3] = ["sh", "-c", "while :; do x=1; done"];

fn lacks_emulator(text: &str) -> bool {
    let lacks = text.contains("apt-get install qemu-user");
    if lacks {
        println!("SKIPPED: {text}");
    }
    lacks
}

#[test]
fn interrupted_recording_is_kept() {
    let place = Place::new();
    let mut child = place.record(&LOOP).spawn().unwrap();
    place.wait_for(100_000, &mut child);
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    if lacks_emulator(&text) {
        return;
    }
    assert!(killed.success());
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), String::new()), "{text}");
    assert!(text.contains("wrote ") && text.contains("was ended before the program"), "{text}");
    assert_eq!(fs::read_dir(place.temporary()).unwrap().count(), 0);
    assert!(good(&format!("info {}", place.trace())).contains("warning: the recording was ended"));
}

/// In a terminal the program also gets the signal, and may end before it is asked to.
#[test]
fn ctrl_c_in_a_terminal_ends_a_recording_and_keeps_it() {
    let dies = "while :; do x=1; done";
    let catches = "trap \"exit 3\" INT; while :; do x=1; done";
    for script in [dies, dies, catches] {
        let place = Place::new();
        let pagefold = env!("CARGO_BIN_EXE_pagefold");
        // `script` may lose the last output of a command that ends, so a file gets it.
        let messages = place.folder.path().join("messages");
        let (trace, told) = (place.trace(), messages.display());
        let line = format!("exec {pagefold} record -o {trace} -- sh -c '{script}' 2>{told}");
        // `script` creates a terminal and passes its input on to it.
        let child = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env("TMPDIR", place.temporary())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else { return println!("SKIPPED: there is no program `script`") };
        place.wait_for(100_000, &mut child);
        let mut input = child.stdin.take().unwrap();
        // Without an emulator, the command has ended and nobody reads the input.
        let _ = input.write_all(b"\x03");
        let output = child.wait_with_output().unwrap();
        drop(input);
        let text = fs::read_to_string(&messages).unwrap();
        if lacks_emulator(&text) {
            return;
        }
        assert_eq!(output.status.code(), Some(0), "{script}: {text}");
        assert!(text.contains("wrote "), "{script}: {text}");
        assert_eq!(fs::read_dir(place.temporary()).unwrap().count(), 0);
        assert_eq!(place.emulators(), 0);
        assert!(good(&format!("info {}", place.trace())).contains("accesses"));
    }
}

#[test]
fn killed_recording_leaves_nothing() {
    let place = Place::new();
    // One process computes and one waits; both have lost their parents.
    let script = "mkfifo f; (while :; do x=1; done) & (read x < f) & exit 0";
    let line = format!("cd {}; {script}", place.folder.path().display());
    let mut child =
        place.record(&["sh", "-c", &format!("sh -c '{line}'; while :; do x=1; done")]).spawn().unwrap();
    place.wait_for(300_000, &mut child);
    if child.try_wait().unwrap().is_some() {
        assert!(lacks_emulator(&stderr(&child.wait_with_output().unwrap())));
        return;
    }
    assert!(place.emulators() >= 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let begun = Instant::now();
    while place.emulators() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{} are left", place.emulators());
        std::thread::sleep(Duration::from_millis(50));
    }
    let left = |folder: &Path, end: &str| {
        let names = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().ends_with(end)).count()
    };
    let parts = || left(place.folder.path(), ".part") + left(&place.temporary(), "");
    assert_eq!(parts(), 2, "what it could not remove");
    assert!(place.record(&["true"]).status().unwrap().success());
    assert_eq!(parts(), 0, "the next recording removes it");
}

#[test]
fn missing_programs_are_the_last_line_and_a_failure() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let place = Place::new();
    let own = place.folder.path().join("own");
    fs::copy("/bin/true", &own).unwrap();
    if chown(&own, Some(12_345), None).is_err() {
        return println!("SKIPPED: only root can give files away");
    }
    fs::set_permissions(&own, fs::Permissions::from_mode(0o4755)).unwrap();
    let output = place.record(&["sh", "-c", &format!("{}; true", own.display())]).output().unwrap();
    let text = stderr(&output);
    if lacks_emulator(&text) {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{text}");
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with("pagefold: warning: ") && last.contains("own (gets rights of its own"),
        "{text}"
    );
    let info = good(&format!("info {}", place.trace()));
    assert!(words(&info).join(" ").contains("which was not recorded"), "{info}");
}

#[test]
fn progress_is_shown_each_second() {
    let place = Place::new();
    let mut record = super::command();
    record.args(["record", "--progress", "--duration", "4", "-o", &place.trace(), "--"]).args(LOOP);
    let output = record.env("TMPDIR", place.temporary()).output().unwrap();
    let text = stderr(&output);
    if lacks_emulator(&text) {
        return;
    }
    assert!(output.status.success(), "{text}");
    let told: Vec<&str> = text.lines().filter(|line| line.contains("times slower")).collect();
    assert!(!told.is_empty() && told[0].contains("accesses by 1 process"), "{text}");
}

#[test]
fn info_names_the_programs_of_processes() {
    let place = Place::new();
    let output = place.record(&["sh", "-c", "/bin/echo a | cat"]).output().unwrap();
    if lacks_emulator(&stderr(&output)) {
        return;
    }
    let json = good_json(&format!("info --json {}", place.trace()));
    let names: Vec<&Value> = (0..3).map(|process| &json["processes"][process]["programs"]).collect();
    assert_eq!(names[0].as_array().unwrap().len(), 1);
    assert!(
        names[1..].iter().any(|names| names[1] == "cat") && names[1..].iter().any(|names| names[1] == "echo")
    );
    assert!(good(&format!("info {}", place.trace())).contains(", then cat"));
}

#[test]
fn a_sample_says_what_its_numbers_stand_for() {
    let place = Place::new();
    let mut record = super::command();
    record.args(["record", "--sample", "3", "-o", &place.trace(), "--", "sh", "-c", "true"]);
    let text = stderr(&record.env("TMPDIR", place.temporary()).output().unwrap());
    if lacks_emulator(&text) {
        return;
    }
    assert!(text.contains("note: one in 3 pages was recorded"), "{text}");
    assert!(good(&format!("info {}", place.trace())).contains("one in 3 pages; the whole program has some"));
    assert_eq!(good_json(&format!("info --json {}", place.trace()))["sample"], 3);
    let run = words(&good(&format!("run {} --memory 16M", place.trace()))).join(" ");
    assert!(run.contains("16.0 MiB here are some 48.0 MiB there"), "{run}");
    let curve = good(&format!("curve {} --memory 16M --memory 32M --runs 1", place.trace()));
    assert!(words(&curve).join(" ").contains("note: one in 3 pages was recorded"), "{curve}");
}

#[test]
fn a_recording_ends_at_its_size_and_begins_late() {
    let place = Place::new();
    let mut record = super::command();
    record.args(["record", "--max-size", "64K", "--after", "1", "-o", &place.trace(), "--"]).args(LOOP);
    let output = record.env("TMPDIR", place.temporary()).output().unwrap();
    let text = stderr(&output);
    if lacks_emulator(&text) {
        return;
    }
    assert!(output.status.success(), "{text}");
    let info = words(&good(&format!("info {}", place.trace()))).join(" ");
    assert!(info.contains("was ended before the program was") && info.contains("first 1000000"), "{info}");
}

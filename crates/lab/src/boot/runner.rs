//! One boot: start QEMU, read its output line by line, and compare its exit status with the guest's last line.
//!
//! QEMU stays in our process group, so that Ctrl-C at a terminal, or a signal to the group, ends it with us. A thread
//! reads the lines, because a read from a pipe has no deadline.

use super::guest::{self, Guest, Task};
use super::protocol::{Kind, Line, Parser, Report, Verdict};
use crate::error::{Error, Result};
use crate::human;
use crate::scratch;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How often to check the clock and Ctrl-C while the guest is silent.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// QEMU is gone this long after the guest's last word, or something is wrong.
const POWER_OFF: Duration = Duration::from_secs(10);
/// How often a kernel is started that panics before its first process. Linux replaces instructions while other CPUs run
/// them, and QEMU, with a thread for each CPU, now and then traps at one that is whole again.
const STARTS: u32 = 3;
/// The longest line that is taken; what is longer is cut into pieces, and is no record.
const LONGEST: u64 = 1 << 16;

/// Boots guests.
pub struct Runner<'a> {
    /// The kernel's image.
    pub kernel: &'a Path,
    /// The emulator.
    pub qemu: &'a Path,
    /// A guest that has not ended by then has failed.
    pub timeout: Duration,
}

/// A line, by the pipe that it came from.
enum Said {
    ByGuest(String),
    ByEmulator(String),
}

impl Runner<'_> {
    /// Boot `guest` and follow it to its end; every line of its log is passed to `log`.
    ///
    /// # Errors
    /// Bad input that the guest reports, and everything that makes a run a failure: errors of the guest, lines that
    /// cannot be understood, no last line, a wrong exit status, no end in time. `stop` reports Ctrl-C.
    pub fn boot(&self, guest: &Guest, stop: impl Fn() -> bool, log: impl FnMut(&str)) -> Result<Report> {
        let files = Files::create(guest)?;
        self.run(guest.arguments(self.kernel, files.disks()), stop, log)
    }

    /// Start the emulator with these arguments and follow what it runs to its end. A kernel that panics before its
    /// first process is started again.
    ///
    /// # Errors
    /// As [`Runner::boot`].
    pub fn run(
        &self,
        args: Vec<OsString>,
        stop: impl Fn() -> bool,
        mut log: impl FnMut(&str),
    ) -> Result<Report> {
        let mut starts = 1;
        loop {
            match self.start(&args, &stop, &mut log)? {
                Started::Ended(report) => return *report,
                Started::Never(why) if starts == STARTS => return Err(Error::Failed(why)),
                Started::Never(why) => log(&format!("{why}, before its first process: it is started again")),
            }
            starts += 1;
        }
    }

    fn start(&self, args: &[OsString], stop: impl Fn() -> bool, log: impl FnMut(&str)) -> Result<Started> {
        let mut command = Command::new(self.qemu);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| Error::file("run", self.qemu, error))?;
        let mut boot = Boot { child, parser: Parser::default(), emulator: String::new(), log };
        let status = boot.follow(Instant::now() + self.timeout, stop);
        // Whatever happened: nothing of it runs on. What has ended already cannot be killed, and need not.
        let _ = boot.child.kill();
        let _ = boot.child.wait();
        let status = status.map_err(|ended| self.explain(ended, &boot.parser))?;
        if let (false, Some(why)) = (boot.parser.greeted(), panicked(boot.parser.report())) {
            return Ok(Started::Never(panic_of_guest(why)));
        }
        Ok(Started::Ended(Box::new(judge(boot.parser.into_report(), status, &boot.emulator))))
    }

    fn explain(&self, ended: Ended, parser: &Parser) -> Error {
        let last = last_words(parser.report());
        match ended {
            Ended::Stopped => Error::Interrupted("interrupted; QEMU was killed".into()),
            Ended::Late => Error::Failed(format!(
                "the guest had not ended after {} and was killed (--timeout gives it longer); {last}",
                human::plural(self.timeout.as_secs(), "second", "seconds")
            )),
            Ended::Lost(why) => Error::Failed(why),
        }
    }
}

/// What became of a guest.
enum Started {
    /// It ran to an end.
    Ended(Box<Result<Report>>),
    /// Its kernel panicked before its first process, and why.
    Never(String),
}

/// Why the wait ended before QEMU.
enum Ended {
    /// Ctrl-C.
    Stopped,
    /// The deadline.
    Late,
    /// The guest's output makes no sense, or QEMU was lost.
    Lost(String),
}

struct Boot<L> {
    child: Child,
    parser: Parser,
    /// The last that QEMU itself said.
    emulator: String,
    log: L,
}

impl<L: FnMut(&str)> Boot<L> {
    fn follow(&mut self, deadline: Instant, stop: impl Fn() -> bool) -> Result<ExitStatus, Ended> {
        let lines = self.lines();
        let mut deadline = deadline;
        let mut open = true;
        while open {
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(Said::ByGuest(line)) => {
                    if self.guest_said(&line)? {
                        deadline = deadline.min(Instant::now() + POWER_OFF);
                    }
                }
                Ok(Said::ByEmulator(line)) => {
                    (self.log)(&format!("qemu: {line}"));
                    self.emulator = line;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => open = false,
            }
            in_time(deadline, &stop)?;
        }
        // Both pipes are closed, so it has ended, or is about to.
        loop {
            match self.child.try_wait() {
                // Ctrl-C at a terminal reaches QEMU, too, and it may be the first to say so.
                Ok(Some(status)) if !status.success() && status.code().is_none() && stop() => {
                    return Err(Ended::Stopped);
                }
                Ok(Some(status)) => return Ok(status),
                Ok(None) => std::thread::sleep(LOOK_EVERY / 10),
                Err(error) => return Err(Ended::Lost(format!("cannot wait for QEMU: {error}"))),
            }
            in_time(deadline, &stop)?;
        }
    }

    /// Take a line. Returns whether it was the last.
    fn guest_said(&mut self, line: &str) -> Result<bool, Ended> {
        let what = self.parser.line(line).map_err(|error| Ended::Lost(error.to_string()))?;
        if let (Line::Log, Some(text)) = (what, self.parser.report().log.last()) {
            (self.log)(text);
        }
        Ok(what == Line::End)
    }

    /// The lines of both pipes as they come.
    fn lines(&mut self) -> Receiver<Said> {
        let (sender, receiver) = channel();
        if let Some(pipe) = self.child.stdout.take() {
            let sender = sender.clone();
            std::thread::spawn(move || read_lines(pipe, Said::ByGuest, &sender));
        }
        if let Some(pipe) = self.child.stderr.take() {
            std::thread::spawn(move || read_lines(pipe, Said::ByEmulator, &sender));
        }
        receiver
    }
}

fn in_time(deadline: Instant, stop: impl Fn() -> bool) -> Result<(), Ended> {
    if stop() {
        return Err(Ended::Stopped);
    }
    if Instant::now() >= deadline { Err(Ended::Late) } else { Ok(()) }
}

fn read_lines(pipe: impl Read, said: fn(String) -> Said, to: &Sender<Said>) {
    let mut pipe = BufReader::new(pipe);
    loop {
        let mut bytes = Vec::new();
        match pipe.by_ref().take(LONGEST).read_until(b'\n', &mut bytes) {
            Ok(1..) => {}
            _ => return,
        }
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        // Nobody listens any more: the boot is over.
        if to.send(said(String::from_utf8_lossy(&bytes).into_owned())).is_err() {
            return;
        }
    }
}

/// Why the guest's kernel says that it cannot go on. More lines follow: registers, where the kernel is, its goodbye.
fn panicked(report: &Report) -> Option<&str> {
    const SAYS: &str = "Kernel panic - not syncing: ";
    report.log.iter().find_map(|line| line.split_once(SAYS)).map(|(_, why)| why.trim())
}

fn panic_of_guest(why: &str) -> String {
    format!("the guest's kernel panicked: {why}")
}

/// The end of the guest's log, which shows what it was doing.
fn last_words(report: &Report) -> String {
    if let Some(why) = panicked(report) {
        return format!("its kernel panicked: {why}");
    }
    match report.log.iter().rev().find(|line| !line.trim().is_empty()) {
        Some(line) => format!("the last line of its log: '{line}'"),
        None => "it has logged nothing".to_owned(),
    }
}

/// The report, if the guest's lines and QEMU's exit status are those of a successful run.
fn judge(report: Report, status: ExitStatus, emulator: &str) -> Result<Report> {
    let Some(verdict) = report.end else {
        // What an assertion said is the best account of an end without a last word.
        if let Some((_, text)) = report.complaints.first() {
            return Err(Error::Failed(format!("the guest stopped without '@end': {text}")));
        }
        if let Some(why) = panicked(&report) {
            return Err(Error::Failed(panic_of_guest(why)));
        }
        let by = if emulator.is_empty() { String::new() } else { format!(" and said '{emulator}'") };
        return Err(Error::Failed(format!(
            "the guest stopped without '@end': QEMU ended with {status}{by}; {}",
            last_words(&report)
        )));
    };
    if status.code() != Some(verdict.status()) {
        return Err(Error::Failed(format!(
            "the guest said '@end {}', but QEMU ended with {status} instead of {}",
            verdict.word(),
            verdict.status()
        )));
    }
    let said =
        |wanted: Kind| report.complaints.iter().find(|(kind, _)| *kind == wanted).map(|(_, text)| text);
    let worst = said(Kind::Failed).map(|text| format!("an assertion of the guest failed: {text}"));
    let worst = worst.or_else(|| said(Kind::Violation).map(|text| violation(&report, text)));
    let violations = report.check.map_or(0, |check| check.violations);
    match (verdict, worst) {
        (_, Some(why)) => Err(Error::Failed(why)),
        (Verdict::Bad, None) => Err(Error::Input(
            said(Kind::Bad).cloned().unwrap_or_else(|| "the guest refused its input".into()),
        )),
        (_, None) if violations > 0 => Err(Error::Failed(violation(&report, "not described"))),
        (Verdict::Ok, None) => Ok(report),
        (Verdict::Failed, None) => Err(match (said(Kind::OutOfMemory), said(Kind::Signal)) {
            (Some(why), _) => Error::OutOfMemory(format!(
                "too little memory to run this program: {why}; give more with --memory"
            )),
            (None, Some(why)) => Error::Failed(format!("the program was ended by a signal: {why}")),
            (None, None) => Error::Failed(format!("the guest failed; {}", last_words(&report))),
        }),
    }
}

fn violation(report: &Report, first: &str) -> String {
    let count = report.check.map_or(1, |check| check.violations.max(1));
    format!("the checker found {}; the first: {first}", human::plural(count, "violation", "violations"))
}

/// The guest's disks, which are sparse, and its trace: files that go away with the boot.
struct Files {
    files: PathBuf,
    swap: Option<PathBuf>,
    trace: Option<PathBuf>,
    /// Removes them.
    _dir: tempfile::TempDir,
}

impl Files {
    fn create(guest: &Guest) -> Result<Files> {
        let dir = scratch::folder()?;
        let disk = |name: &str, bytes: u64| {
            let path = dir.path().join(name);
            let made = File::create(&path).and_then(|file| file.set_len(bytes));
            made.map(|()| path.clone()).map_err(|error| Error::output("make the disk", &path, &error))
        };
        let files = disk("files", guest.files_size())?;
        let swap = match guest.swap_size() {
            0 => None,
            bytes => Some(disk("swap", bytes)?),
        };
        let trace = match &guest.task {
            Task::Trace(trace) => {
                let path = dir.path().join("trace");
                let made = std::fs::write(&path, trace.image());
                Some(made.map(|()| path.clone()).map_err(|error| Error::write(&path, &error))?)
            }
            _ => None,
        };
        Ok(Files { files, swap, trace, _dir: dir })
    }

    fn disks(&self) -> guest::Disks<'_> {
        guest::Disks { files: &self.files, swap: self.swap.as_deref(), trace: self.trace.as_deref() }
    }
}

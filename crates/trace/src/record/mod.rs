//! Recording: run a program under QEMU's user-mode emulator with the plugin in the folder `plugin`, then
//! convert the plugin's files to a trace.
//!
//! What a recording contains and what it does not:
//! - Accesses are runs out of a window of recently used pages ([`RecordOptions::window`]): accesses to different pages
//!   may be reordered within that distance, but never across a system call or another thread's change of the address
//!   space. Unaligned accesses that cross into a second page count for both.
//! - A fetch is one translated block entered; instructions are counted separately.
//! - The kernel's copies into and out of the buffers of `read`, `write`, `recvfrom`, `sendto` count as an access per
//!   64 bytes; those of vectored calls and of other calls' structures are missing.
//! - What compressors make of a page ([`Packed`](crate::event::Packed)) is told of pages that a thread has written:
//!   when it has executed 67 million instructions since it looked, and a sixteenth of all; before a call that takes
//!   them away; when it ends. The heap that `brk` gives back is not looked at.
//! - `brk` is recorded as mappings. SysV shared memory, `mlockall`, `move_pages`, `migrate_pages`, `io_uring` and
//!   `userfaultfd` are not followed.
//! - If a recorded thread waited for another in the kernel, it does so again in a replay (`order.rs` says how that is
//!   found): futexes, ends of threads and processes, pipes, sockets, eventfds. Waits for room in a socket, the order
//!   that signals and file locks make, messages by `sendmmsg`, and order made in memory alone are not kept.
//! - Other waits (for a peer that is not recorded, for a time in poll) take no time in the trace; `nanosleep` does.
//! - All programs that the command runs are recorded, each from its first instruction (`crate::image`). Exceptions are
//!   programs with rights of their own (setuid), unreadable ones, and those for another machine: such a program runs
//!   without a recorder, what it starts is not recorded, and [`Summary::unfollowed`] says so.
//! - `vfork` and `posix_spawn` do not suspend the parent, and `posix_spawn` of a missing program reports that only by
//!   the child's exit code, as the emulator turns both into `fork`.

mod content;
mod convert;
mod order;
mod scratch;
mod start;
mod watch;

pub use watch::Progress;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::container::Writer;
use crate::error::TraceError;
use crate::header::Header;
pub use crate::image::Start;
use crate::image::{Emulator, executable};
use crate::raw::Image;
use scratch::Scratch;
use start::in_path;
pub use start::start;
use watch::Watch;

/// The plugin, compiled by the build script.
static PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/recorder.so"));

/// What to record and how.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Path of the trace. An existing file is replaced only when the recording has succeeded.
    pub output: PathBuf,
    /// The program and its arguments. The program is searched for in PATH unless it has a slash.
    pub command: Vec<String>,
    /// Pairs of page and mode in the recorder's window, 1 to 64.
    pub window: u32,
    /// Instructions that a process executes before its accesses are recorded; its calls are recorded all the same, and
    /// what it has written until then is written once when they are over. What it starts has what is left of them.
    pub after: u64,
    /// Record one in this many pages, chosen by a hash of what they are: parts of files, and memory. All instructions
    /// and calls are recorded, but of reads and writes only what they do to these pages.
    pub sample: u64,
    /// Keep the trace of a program that failed. (The trace of one that a signal ended is kept in any case.)
    pub keep: bool,
    /// How long the program may take to end by itself, once the recording is to end, before it is made to end.
    pub grace: Duration,
    /// zstd's level, 1 to 22.
    pub level: i32,
    /// Folder for the recorder's raw output (some bytes per run of accesses); `None`: the system's folder.
    pub scratch: Option<PathBuf>,
    /// The emulator; `None`: `qemu-ARCH` of this machine's architecture from PATH.
    pub emulator: Option<PathBuf>,
}

impl RecordOptions {
    /// Record `command` into `output` with the usual settings.
    pub fn new(output: impl Into<PathBuf>, command: Vec<String>) -> RecordOptions {
        RecordOptions {
            output: output.into(),
            command,
            window: 32,
            after: 0,
            sample: 1,
            keep: false,
            grace: Duration::ZERO,
            level: 9,
            scratch: None,
            emulator: None,
        }
    }
}

/// What was recorded.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The trace's header, with counts and warnings.
    pub header: Header,
    /// Bytes of the trace.
    pub file_len: u64,
    /// How the program ended. Always success, unless [`RecordOptions::keep`] is set or a signal ended it.
    pub status: ExitStatus,
    /// Whether the recording ended the program.
    pub ended_early: bool,
    /// A sentence for each program that could not be recorded. They are also among the header's warnings.
    pub unfollowed: Vec<String>,
}

/// Why nothing was recorded. Each message is one line and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is no command.
    #[error("no command to record; give it after `--`: pagefold record -o FILE -- COMMAND ARGS")]
    NoCommand,
    /// The emulator is missing.
    #[error(
        "cannot find {emulator}, which the recorder runs programs under; install it: apt-get install qemu-user"
    )]
    NoEmulator {
        /// The name that was searched for.
        emulator: String,
    },
    /// The program is missing.
    #[error("{program}: no such program, neither there nor in PATH")]
    NoProgram {
        /// The name as given.
        program: String,
    },
    /// The program exists, but may not be executed.
    #[error("{program}: not executable; chmod +x makes it so")]
    NotExecutable {
        /// The name as given.
        program: String,
    },
    /// Interpreters that lead to each other.
    #[error("{program}: a script whose interpreter is a script, and so on")]
    Scripts {
        /// The name as given.
        program: String,
    },
    /// The program is for another machine.
    #[error("{}: not a program for {}", path.display(), std::env::consts::ARCH)]
    ForeignProgram {
        /// The program.
        path: PathBuf,
    },
    /// The program may be executed but not read.
    #[error("{}: may be executed but not read, so it cannot run under the emulator", path.display())]
    Unreadable {
        /// The program.
        path: PathBuf,
    },
    /// The program gets rights of its own.
    #[error(
        "{}: gets rights of its own (setuid), which it does not get under the emulator; record it as that user",
        path.display()
    )]
    Privileged {
        /// The program.
        path: PathBuf,
    },
    /// The program failed, so its trace is not kept.
    #[error("the recorded program failed ({status}); {} was not written (--keep writes it nevertheless)", output.display())]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// The intended path of the trace.
        output: PathBuf,
    },
    /// The emulator ended, but the plugin has not run.
    #[error(
        "{} recorded nothing ({status}): its plugin interface is missing or of another version; QEMU 7.2 to 8.2 is known to work",
        emulator.display()
    )]
    NothingRecorded {
        /// The emulator.
        emulator: PathBuf,
        /// How it ended.
        status: ExitStatus,
    },
    /// The recording was ended before anything was recorded.
    #[error("the recording was ended before the program began; {} was not written", output.display())]
    EndedAtOnce {
        /// The intended path of the trace.
        output: PathBuf,
    },
    /// The raw recording is damaged.
    #[error("{}: the raw recording is damaged at byte {at}; is the disk full?", path.display())]
    Raw {
        /// The file.
        path: PathBuf,
        /// The position in the file.
        at: u64,
    },
    /// The system refused an operation.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The path of the operation.
        path: PathBuf,
        /// The operation.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

fn io_error<'a>(path: &'a Path, action: &'static str) -> impl FnOnce(io::Error) -> RecordError + 'a {
    move |source| RecordError::Io { path: path.to_owned(), action, source }
}

/// Record a program. It runs with this process's input, output and environment, some 10 to 100 times slower than
/// alone.
pub fn record(options: &RecordOptions) -> Result<Summary, RecordError> {
    record_watched(options, &mut |_| true)
}

/// As [`record`], but calls `go_on` several times a second with the progress. When it returns `false`, the program and
/// all processes that come from it are ended, and what was recorded until then is kept.
pub fn record_watched(
    options: &RecordOptions,
    go_on: &mut dyn FnMut(Progress) -> bool,
) -> Result<Summary, RecordError> {
    let start = start(&options.command)?;
    let emulator = find_emulator(options)?;
    // A writer made now finds out that the output cannot be written before the program has run for an hour.
    let recorder = concat!("pagefold ", env!("CARGO_PKG_VERSION"), " qemu-user");
    let mut writer = Writer::create(&options.output, recorder, &options.command, options.level)?;
    writer.set_window(u64::from(options.window.clamp(1, 64)));
    writer.set_sample(options.sample.max(1));
    let base = options.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = Scratch::new(&base).map_err(io_error(&base, "make a folder in it"))?;
    let raw = scratch.path().join("raw");
    let Emulated { pid, status, asked } = emulate(options, &emulator, &start, scratch.path(), go_on)?;
    let ended_early = asked || status.signal().is_some();
    if !raw.join(Image { pid, number: 0 }.file_name()).exists() {
        if ended_early {
            return Err(RecordError::EndedAtOnce { output: options.output.clone() });
        }
        return Err(RecordError::NothingRecorded { emulator, status });
    }
    if asked {
        writer.warn("the recording was ended before the program was".to_owned());
    } else if ended_early {
        writer.warn(format!("the recording ends where the program was ended: {status}"));
    } else if !status.success() {
        if !options.keep {
            return Err(RecordError::Failed { status, output: options.output.clone() });
        }
        writer.warn(format!("the recorded program failed ({status})"));
    }
    if options.after > 0 {
        let text = format!(
            "of the first {} instructions, only calls and what they leave are recorded",
            options.after
        );
        writer.warn(text);
    }
    let unfollowed = convert::convert(&raw, pid, &mut writer)?;
    let header = writer.finish()?;
    let meta = fs::metadata(&options.output).map_err(io_error(&options.output, "look at it"))?;
    Ok(Summary { header, file_len: meta.len(), status, ended_early, unfollowed })
}

/// A run of the emulator.
struct Emulated {
    /// Its process id, which is also the program's.
    pid: u32,
    status: ExitStatus,
    /// Whether it was asked to end.
    asked: bool,
}

/// Run the program.
fn emulate(
    options: &RecordOptions,
    emulator: &Path,
    start: &Start,
    scratch: &Path,
    go_on: &mut dyn FnMut(Progress) -> bool,
) -> Result<Emulated, RecordError> {
    let (plugin, raw) = (scratch.join("recorder.so"), scratch.join("raw"));
    fs::write(&plugin, PLUGIN).map_err(io_error(&plugin, "write"))?;
    fs::create_dir(&raw).map_err(io_error(&raw, "make the folder"))?;
    let recorder = Emulator {
        program: emulator.to_owned(),
        plugin: plugin.clone(),
        folder: raw.clone(),
        window: options.window.clamp(1, 64),
        owner: std::process::id(),
        quiet: options.after,
        sample: options.sample,
        salt: 0,
    };
    let own = std::env::vars_os().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    let (words, variables) = recorder.command(start, None, own.collect());
    let mut words = words.into_iter().map(OsString::from_vec);
    let mut command = Command::new(emulator);
    command.arg0(words.next().unwrap_or_default()).args(words).env_clear();
    for variable in variables {
        let at = variable.iter().position(|&byte| byte == b'=').unwrap_or(variable.len());
        let (name, value) = (variable[..at].to_vec(), variable[at..].get(1..).unwrap_or_default().to_vec());
        command.env(OsString::from_vec(name), OsString::from_vec(value));
    }
    let mut child = command.spawn().map_err(io_error(emulator, "run"))?;
    let mut watch = Watch::new(&raw, &plugin);
    let mut asked: Option<Instant> = None;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(io_error(emulator, "wait for"))? {
            break status;
        }
        match asked {
            None if !go_on(watch.look()) => asked = Some(Instant::now()),
            None => watch.nap(),
            Some(since) if since.elapsed() < options.grace => watch.nap(),
            Some(_) => {
                watch.end_all();
                // For an emulator that has not even loaded the plugin. If it is gone, this does nothing.
                let _ = child.kill();
            }
        }
    };
    // Ctrl-C in a terminal goes to the program, too, which may end first.
    let asked = asked.is_some() || !status.success() && !go_on(watch.look());
    if asked {
        // Other processes of the program may have outlived it.
        watch.end_all();
    }
    Ok(Emulated { pid: child.id(), status, asked })
}

/// The signal that ended the program, if one did.
pub fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

fn find_emulator(options: &RecordOptions) -> Result<PathBuf, RecordError> {
    let name = match &options.emulator {
        Some(path) if executable(path) => return Ok(path.clone()),
        Some(path) => path.display().to_string(),
        None => format!("qemu-{}", std::env::consts::ARCH),
    };
    let found = if name.contains('/') { None } else { in_path(&name) };
    found.ok_or(RecordError::NoEmulator { emulator: name })
}

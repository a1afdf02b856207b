//! The program becomes another one.
//!
//! The emulator would execute the new program natively, and nothing of it would be recorded. So before the emulator
//! makes the call, the recorder executes the emulator with the new program as its argument: the kernel passes on
//! descriptors, working directory, signals and everything else as usual. If that is impossible, the recorder writes
//! down why. The emulator then makes the call, and the kernel refuses it or executes the program unrecorded.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::calls::Call;
use crate::codec::put_varint;
use crate::files::Held;
use crate::image::{Emulator, Refusal, Start, absolute};
use crate::raw::kind;
use crate::shared::{self, EMULATOR};
use crate::thread::Thread;
use crate::{maps, order, system};

/// The working directory, as a descriptor.
const HERE: i32 = -100;
const EMPTY_PATH: u64 = 0x1000;

/// The `execve` call of a program.
struct Wish {
    /// The path as the program gave it: an interpreter gets it as the name of the script.
    name: Vec<u8>,
    /// The path by which the emulator finds the file.
    path: PathBuf,
    words: Vec<Vec<u8>>,
    variables: Vec<Vec<u8>>,
}

/// Become the other program, if that is possible. `settle` makes the other threads of the process write out their
/// events; `resume` lets them go on.
pub fn attempt(
    thread: &mut Thread,
    call: Call,
    args: &[u64; 6],
    settle: impl FnOnce(),
    resume: impl FnOnce(),
) {
    thread.flush();
    let (Some(emulator), Some(wish)) = (EMULATOR.get(), wish(call, args)) else { return };
    let start = match Start::of(&wish.path, &wish.name, wish.words) {
        Ok(start) => start,
        Err(Refusal::Impossible(..) | Refusal::Scripts) => return,
        Err(Refusal::Foreign(path)) => return unfollowed(thread, &path, "not a program for this machine"),
        Err(Refusal::Unreadable(path)) => return unfollowed(thread, &path, "may be executed but not read"),
        Err(Refusal::Privileged(path)) => {
            return unfollowed(thread, &path, "gets rights of its own (setuid)");
        }
    };
    let (quiet, salt) = (shared::QUIET.load(Ordering::Relaxed), shared::salt_of_next());
    let emulator = Emulator { quiet, salt, ..emulator.clone() };
    let (words, variables) = emulator.command(&start, Some(shared::image().number), wish.variables);
    // No thread may be in the middle of a change of the address space.
    shared::acquire();
    let held = shared::with(true, |shared| shared.files.held());
    let closed: Vec<Held> = held.into_iter().filter(|held| system::closes_on_exec(held.fd)).collect();
    for held in &closed {
        order::closed_by_exec(thread, held.channel);
    }
    thread.look(None);
    thread.flush();
    settle();
    thread.chunk(kind::EXEC, |body| {
        let ranges = maps::ranges(crate::limit());
        put_varint(body, ranges.len() as u64);
        ranges
            .iter()
            .flat_map(|&(start, end)| [start, end - start])
            .for_each(|number| put_varint(body, number));
        let files: Vec<u64> =
            closed.iter().filter_map(|held| held.file).map(|file| u64::from(file.0)).collect();
        put_varint(body, files.len() as u64);
        files.into_iter().for_each(|file| put_varint(body, file));
    });
    system::execute(words, variables);
    resume();
    shared::release();
    unfollowed(thread, &start.program, "the emulator could not be started for it");
}

fn unfollowed(thread: &Thread, path: &Path, why: &str) {
    let text = format!("{} ({why})", path.display());
    thread.chunk(kind::UNFOLLOWED, |body| body.extend_from_slice(text.as_bytes()));
}

fn wish(call: Call, args: &[u64; 6]) -> Option<Wish> {
    let (folder, [path, words, variables], flags) = match call {
        Call::ExecAt => (args[0] as i32, [args[1], args[2], args[3]], args[4]),
        _ => (HERE, [args[0], args[1], args[2]], 0),
    };
    let mut name = system::string(path)?;
    let (words, variables) = (system::strings(words)?, system::strings(variables)?);
    if name.is_empty() {
        if flags & EMPTY_PATH == 0 {
            return None;
        }
        name = format!("/dev/fd/{folder}").into_bytes();
    } else if folder != HERE && name[0] != b'/' {
        name = [format!("/dev/fd/{folder}/").as_bytes(), &name].concat();
    }
    let path = place(Path::new(OsStr::from_bytes(&name)));
    Some(Wish { name, path, words, variables })
}

/// A path that leads to the same file from the new image. Paths that name this process change their meaning with the
/// emulator: its descriptors may be closed, and its executable is the emulator.
fn place(path: &Path) -> PathBuf {
    let own = format!("/proc/{}/", std::process::id());
    let text = path.to_string_lossy();
    let of_process =
        ["/proc/self/", "/proc/thread-self/", &own].iter().find_map(|start| text.strip_prefix(*start));
    if of_process == Some("exe") {
        return crate::program();
    }
    let number =
        of_process.and_then(|rest| rest.strip_prefix("fd/")).or_else(|| text.strip_prefix("/dev/fd/"));
    let Some(number) = number else { return absolute(path) };
    let (number, rest) = number.split_once('/').map_or((number, None), |(number, rest)| (number, Some(rest)));
    let Ok(fd) = number.parse::<i32>() else { return absolute(path) };
    let link = PathBuf::from(format!("/proc/self/fd/{fd}"));
    let place = match std::fs::read_link(&link) {
        Ok(target) if same(&link, &target) => target,
        // The file no longer has a name, or never had one.
        _ => system::keep_open(fd).map_or(link, |kept| PathBuf::from(format!("/proc/self/fd/{kept}"))),
    };
    rest.map_or(place.clone(), |rest| place.join(rest))
}

fn same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// The program that the emulator was told to run: the word after its options. Each option has a value, and the plugin
/// is the last option.
pub fn told() -> PathBuf {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let mut words = line.split(|&byte| byte == 0).skip(1);
    while let (Some(option), Some(_)) = (words.next(), words.next()) {
        if option == b"-plugin" {
            break;
        }
    }
    PathBuf::from(OsStr::from_bytes(words.next().unwrap_or_default()))
}

//! What `execve` of a file starts, and how the emulator is told to start it.
//!
//! The recorder starts the first program this way, and its plugin, inside the emulator, all that follow: a program
//! that calls `execve` becomes the emulator again, with the new program as its argument. Only then is that program
//! recorded, too. The kernel would do three things that must be done here: it reads the interpreter out of a script, it
//! refuses what it cannot run (the emulator would fail after the old program is gone), and it gives privileges.
//!
//! This file is also compiled into the plugin, so it needs nothing but `std`, and of each of the two a module `ask` for
//! what `std` cannot ask the kernel.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::ask;

/// Scripts whose interpreters are scripts, at most, as in Linux.
const MOST_SCRIPTS: usize = 5;
/// Bytes at the start of a file that the kernel looks at.
const HEAD: usize = 256;
/// The number of this machine's architecture in an ELF image.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// A word of a command line, or a variable of an environment.
pub type Word = Vec<u8>;

/// An image that the emulator can run, and how to.
#[derive(Debug, PartialEq, Eq)]
pub struct Start {
    /// The image, by an absolute path.
    pub program: PathBuf,
    /// Its arguments, with the name that it is called by.
    pub words: Vec<Word>,
}

/// Why a file cannot be started under the emulator.
#[derive(Debug)]
pub enum Refusal {
    /// The kernel refuses it, too.
    Impossible(PathBuf, io::Error),
    /// Interpreters lead to each other.
    Scripts,
    /// It is a program for another machine, or none at all.
    Foreign(PathBuf),
    /// It may be run, but not read.
    Unreadable(PathBuf),
    /// It gets rights that the emulator does not get.
    Privileged(PathBuf),
}

impl Start {
    /// What `execve` of `path` starts. `name` is the path as the caller gave it, by which an interpreter finds its
    /// script; `words` are the arguments.
    pub fn of(path: &Path, name: &[u8], words: Vec<Word>) -> Result<Start, Refusal> {
        let (mut program, mut name, mut words) = (absolute(path), name.to_owned(), words);
        if words.is_empty() {
            words.push(Vec::new());
        }
        for _ in 0..=MOST_SCRIPTS {
            let Some(interpreter) = look(&program)? else { return Ok(Start { program, words }) };
            words[0] = name;
            name = interpreter[0].clone();
            program = absolute(Path::new(OsStr::from_bytes(&name)));
            words.splice(0..0, interpreter);
        }
        Err(Refusal::Scripts)
    }
}

/// The path from the root. Links stay: programs look at the name that they are called by.
pub fn absolute(path: &Path) -> PathBuf {
    match std::env::current_dir() {
        Ok(folder) if path.is_relative() => folder.join(path),
        _ => path.to_owned(),
    }
}

/// Whether `path` is an executable file.
pub fn executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Look at what is to be started: the interpreter of a script and its argument, or nothing if it is a program that can
/// be.
fn look(path: &Path) -> Result<Option<Vec<Word>>, Refusal> {
    let impossible = |error| Refusal::Impossible(path.to_owned(), error);
    let meta = std::fs::metadata(path).map_err(impossible)?;
    if !meta.is_file() || !ask::may_execute(path) {
        return Err(impossible(io::ErrorKind::PermissionDenied.into()));
    }
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Refusal::Unreadable(path.to_owned()));
        }
        file => file.map_err(impossible)?,
    };
    let mut head = Vec::new();
    (&file).take(HEAD as u64).read_to_end(&mut head).map_err(impossible)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        // As Linux does: all that follows the interpreter is one argument.
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or(line).trim_ascii();
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let (name, argument) = (line[..end].to_vec(), line[end..].trim_ascii().to_vec());
        let none = argument.is_empty();
        return Ok(Some(if none { vec![name] } else { vec![name, argument] }));
    }
    let Some(needed) = loader(&head, &file) else { return Err(Refusal::Foreign(path.to_owned())) };
    if let Some(needed) = needed
        && !executable(&needed)
    {
        return Err(Refusal::Impossible(needed, io::ErrorKind::NotFound.into()));
    }
    if privileged(path, &meta) { Err(Refusal::Privileged(path.to_owned())) } else { Ok(None) }
}

/// The dynamic loader that an ELF program of this machine needs, if any. `None`: it is no such program.
fn loader(head: &[u8], file: &File) -> Option<Option<PathBuf>> {
    let short = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let long = |from: &[u8], at: usize| Some(u64::from_le_bytes(from.get(at..at + 8)?.try_into().ok()?));
    let kind = short(16)?;
    if head.get(..6)? != b"\x7fELF\x02\x01" || short(18)? != MACHINE || !(kind == 2 || kind == 3) {
        return None;
    }
    let (table, size, count) = (long(head, 32)?, short(54)?, short(56)?);
    for at in 0..u64::from(count) {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table.checked_add(at * u64::from(size))?).ok()?;
        if entry[..4] == [3, 0, 0, 0] {
            let mut name = vec![0; usize::try_from(long(&entry, 32)?).ok().filter(|&length| length <= 4096)?];
            file.read_exact_at(&mut name, long(&entry, 8)?).ok()?;
            name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
            return Some(Some(PathBuf::from(std::ffi::OsString::from_vec(name))));
        }
    }
    Some(None)
}

/// Whether the file gives rights to the process that executes it. The emulator is executed in its place and gets none.
fn privileged(path: &Path, meta: &std::fs::Metadata) -> bool {
    let (user, group, mode) = (ask::user(), ask::group(), meta.mode());
    let by_owner = mode & 0o4000 != 0 && meta.uid() != user || mode & 0o2010 == 0o2010 && meta.gid() != group;
    by_owner || user != 0 && ask::has_capabilities(path)
}

/// The emulator with the recorder in it.
#[derive(Clone, Debug)]
pub struct Emulator {
    /// The emulator.
    pub program: PathBuf,
    /// The plugin.
    pub plugin: PathBuf,
    /// The folder that it writes into.
    pub folder: PathBuf,
    /// Pairs of page and mode in its window.
    pub window: u32,
    /// The process that records: when it is gone, so is what is recorded.
    pub owner: u32,
    /// Instructions after which accesses are recorded.
    pub quiet: u64,
    /// One in this many pages is recorded.
    pub sample: u64,
    /// Tells the memory of this program from that of others, in the choice of pages.
    pub salt: u64,
}

impl Emulator {
    /// The plugin's arguments. `after`: the image of the same process that came before, by the number of its file.
    fn arguments(&self, after: Option<u32>) -> Word {
        let mut out = self.plugin.as_os_str().as_bytes().to_vec();
        out.extend_from_slice(b",dir=");
        out.extend_from_slice(self.folder.as_os_str().as_bytes());
        out.extend_from_slice(format!(",window={},owner={}", self.window, self.owner).as_bytes());
        if self.quiet > 0 {
            out.extend_from_slice(format!(",quiet={}", self.quiet).as_bytes());
        }
        if self.sample > 1 {
            out.extend_from_slice(format!(",sample={},salt={}", self.sample, self.salt).as_bytes());
        }
        if let Some(after) = after {
            out.extend_from_slice(format!(",after={after}").as_bytes());
        }
        out
    }

    /// The command line and the environment of the emulator that make it run `start` in the environment `variables`.
    ///
    /// What the dynamic loader reads from the environment is meant for the program and not for the emulator, which is
    /// told so; and the plugin is loaded first, so that it is asked before the emulator ends by a signal.
    pub fn command(&self, start: &Start, after: Option<u32>, variables: Vec<Word>) -> (Vec<Word>, Vec<Word>) {
        let word = |text: &str| text.as_bytes().to_vec();
        let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let mut words = vec![path(&self.program), word("-0"), start.words[0].clone(), word("-U")];
        words.push(word("LD_PRELOAD"));
        let mut environment = Vec::new();
        for variable in variables {
            // The emulator takes a comma for the end of a variable.
            match is_loaders(&variable) && !variable.contains(&b',') {
                true => words.extend([word("-E"), variable]),
                false => environment.push(variable),
            }
        }
        environment.retain(|variable| !variable.starts_with(b"LD_PRELOAD="));
        environment.push([&b"LD_PRELOAD="[..], &path(&self.plugin)].concat());
        words.extend([word("-plugin"), self.arguments(after), path(&start.program)]);
        words.extend_from_slice(&start.words[1..]);
        (words, environment)
    }
}

fn is_loaders(variable: &[u8]) -> bool {
    variable.starts_with(b"LD_") || variable.starts_with(b"GLIBC_TUNABLES=")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Word {
        text.as_bytes().to_vec()
    }

    fn file(path: &Path, bytes: &[u8], mode: u32) -> PathBuf {
        std::fs::write(path, bytes).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_owned()
    }

    fn start(path: &Path, words: &[&str]) -> Result<Start, Refusal> {
        let words = words.iter().map(|&text| word(text)).collect();
        Start::of(path, path.as_os_str().as_bytes(), words)
    }

    #[test]
    fn scripts_lead_to_their_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let first = file(&at("first"), b"#!/bin/sh\ntrue\n", 0o755);
        let shown = first.display().to_string();
        let found = start(&first, &["any", "more"]).unwrap();
        assert_eq!(found.program, Path::new("/bin/sh"));
        assert_eq!(found.words, ["/bin/sh", &shown, "more"].map(word));
        let second = file(&at("second"), format!("#! {shown} -e  -x \n").as_bytes(), 0o755);
        let found = start(&second, &["second"]).unwrap();
        assert_eq!(found.words, ["/bin/sh", &shown, "-e  -x", second.to_str().unwrap()].map(word));
        let own = file(&at("own"), format!("#!{}\n", at("own").display()).as_bytes(), 0o755);
        assert!(matches!(start(&own, &["own"]), Err(Refusal::Scripts)));
        let lost = file(&at("lost"), b"#!/no/such/interpreter\n", 0o755);
        let Err(Refusal::Impossible(path, _)) = start(&lost, &["lost"]) else { panic!() };
        assert_eq!(path, Path::new("/no/such/interpreter"));
        assert!(matches!(start(&file(&at("text"), b"text\n", 0o755), &["x"]), Err(Refusal::Foreign(_))));
        assert!(matches!(
            start(&file(&at("plain"), b"#!/bin/sh\n", 0o644), &["x"]),
            Err(Refusal::Impossible(..))
        ));
    }

    #[test]
    fn programs_of_other_machines_and_with_rights_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let this = std::env::current_exe().unwrap();
        assert_eq!(start(&this, &["x"]).unwrap().program, this);
        let mut bytes = std::fs::read("/bin/true").unwrap();
        let whole = file(&at("whole"), &bytes, 0o755);
        assert!(start(&whole, &["x"]).is_ok());
        bytes[18] = 40;
        assert!(matches!(start(&file(&at("arm"), &bytes, 0o755), &["x"]), Err(Refusal::Foreign(_))));
        let meta = |mode: u32| {
            std::fs::set_permissions(&whole, std::fs::Permissions::from_mode(mode)).unwrap();
            std::fs::metadata(&whole).unwrap()
        };
        assert!(!privileged(&whole, &meta(0o755)));
        // One's own program gives nothing that is not there.
        assert!(!privileged(&whole, &meta(0o4755)));
        if ask::user() == 0 && std::os::unix::fs::chown(&whole, Some(12_345), None).is_ok() {
            assert!(privileged(&whole, &meta(0o4755)));
        }
    }

    #[test]
    fn what_the_loader_reads_is_the_programs_and_not_the_emulators() {
        let emulator = Emulator {
            program: "/bin/qemu".into(),
            plugin: "/x/recorder.so".into(),
            folder: "/x/raw".into(),
            window: 32,
            owner: 7,
            quiet: 0,
            sample: 4,
            salt: 9,
        };
        let start = Start { program: "/bin/ls".into(), words: ["ls", "-l"].map(word).to_vec() };
        let variables = ["A=1", "LD_PRELOAD=/a.so", "LD_LIBRARY_PATH=/b,c"].map(word).to_vec();
        let (words, environment) = emulator.command(&start, Some(3), variables);
        let plugin = "/x/recorder.so,dir=/x/raw,window=32,owner=7,sample=4,salt=9,after=3";
        let expected = [
            "/bin/qemu",
            "-0",
            "ls",
            "-U",
            "LD_PRELOAD",
            "-E",
            "LD_PRELOAD=/a.so",
            "-plugin",
            plugin,
            "/bin/ls",
            "-l",
        ];
        assert_eq!(words, expected.map(word));
        assert_eq!(environment, ["A=1", "LD_LIBRARY_PATH=/b,c", "LD_PRELOAD=/x/recorder.so"].map(word));
    }
}

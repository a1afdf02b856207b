//! Readers of files, fed with malformed files.
//!
//! A [`Target`] is one reader. For any bytes it must end with a result or with an error of one line: a panic
//! is a finding, and so is more memory than the input warrants (each target defines how much that is). There
//! are two ways to feed it:
//!
//! - [`drive`] generates inputs from seeds, the same each time. Tests do this in a few seconds.
//! - The program `guided` looks for inputs that reach new code (libFuzzer), for any length of time: `cargo
//!   xtask fuzz`.
//!
//! Both change inputs in the same way ([`Target::mutate`]): text by tokens, containers part by part, with
//! valid checksums. Findings are kept in `regressions/`, which a test feeds again.
#![forbid(unsafe_code)]

mod bytes;
mod container;
mod events;
mod imports;
mod machine;
mod options;
mod parts;
mod replay;
mod sweep;

use lab::error::LONGEST;
use peak_alloc::PeakAlloc;
use program::rng::Rng;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Serializes tests: memory is counted for the whole process.
pub fn exclusive() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A reader of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The trace container, as `pagefold info` and `run` read it.
    Container,
    /// The replay of a trace on a small machine.
    Replay,
    /// Other tools' recordings, as `pagefold import` reads them.
    Imports,
    /// A machine's TOML, and the start of a run on the machine.
    Machine,
    /// The arguments of a command, a line each: options, groups, swap areas, knobs, names of programs.
    Options,
    /// A sweep's TOML, up to the cells that it would run.
    Sweep,
}

impl Target {
    /// All targets.
    pub const ALL: [Target; 6] =
        [Target::Container, Target::Replay, Target::Imports, Target::Machine, Target::Options, Target::Sweep];

    /// Its name in commands and folders.
    pub fn name(self) -> &'static str {
        match self {
            Target::Container => "container",
            Target::Replay => "replay",
            Target::Imports => "imports",
            Target::Machine => "machine",
            Target::Options => "options",
            Target::Sweep => "sweep",
        }
    }

    /// The target with that name.
    pub fn find(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|target| target.name() == name)
    }

    /// Valid inputs to start from.
    pub fn seeds(self) -> Vec<Vec<u8>> {
        match self {
            Target::Container | Target::Replay => container::seeds(),
            Target::Imports => imports::seeds(),
            Target::Machine => machine::seeds(),
            Target::Options => options::seeds(),
            Target::Sweep => sweep::seeds(),
        }
    }

    /// A changed copy of the input.
    pub fn mutate(self, rng: &mut Rng, input: &[u8]) -> Vec<u8> {
        match self {
            Target::Container | Target::Replay => container::mutate(rng, input),
            Target::Imports => imports::mutate(rng, input),
            Target::Machine => bytes::mutate_text(rng, input, machine::WORDS),
            Target::Options => bytes::mutate_text(rng, input, options::WORDS),
            Target::Sweep => bytes::mutate_text(rng, input, sweep::WORDS),
        }
    }

    /// Feed an input to the reader. Returns whether it accepts the input.
    ///
    /// # Panics
    /// If the reader panics, or uses more memory than it may.
    pub fn feed(self, input: &[u8]) -> bool {
        CURRENT.set(Some((self, input.to_vec())));
        let accepted = match self {
            Target::Container => container::feed(input),
            Target::Replay => replay::feed(input),
            Target::Imports => imports::feed(input),
            Target::Machine => machine::feed(input),
            Target::Options => options::feed(input),
            Target::Sweep => sweep::feed(input),
        };
        CURRENT.set(None);
        accepted
    }
}

thread_local! {
    /// What this thread is feeding, and to which target.
    static CURRENT: RefCell<Option<(Target, Vec<u8>)>> = const { RefCell::new(None) };
}

/// From now on, write the input of a panic into `folder`, and print the file's name.
pub fn keep_findings(folder: PathBuf) {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let Some((target, input)) = CURRENT.take() {
            let path = folder.join(format!("{}-{:08x}", target.name(), crc32fast::hash(&input)));
            let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input));
            eprintln!("the input is in {} ({written:?})", path.display());
        }
        default(info);
    }));
}

/// How many inputs were accepted and rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Inputs that the reader accepted.
    pub accepted: u64,
    /// Inputs that the reader rejected.
    pub rejected: u64,
}

/// Feed `runs` inputs drawn from `seed`: each is a valid one, changed up to four times.
pub fn drive(target: Target, seed: u64, runs: u64) -> Tally {
    let seeds = target.seeds();
    let mut tally = Tally::default();
    for run in 0..runs {
        let mut rng = Rng::new(seed.wrapping_add(run));
        let mut input = seeds[rng.below(seeds.len() as u64) as usize].clone();
        for _ in 0..1 + rng.below(4) {
            input = target.mutate(&mut rng, &input);
        }
        match target.feed(&input) {
            true => tally.accepted += 1,
            false => tally.rejected += 1,
        }
    }
    tally
}

/// Do `work`, which may use at most `bytes` bytes at once.
fn within<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let result = work();
    let used = MEMORY.peak_usage().saturating_sub(before);
    assert!(used <= bytes, "{used} bytes were used, more than the limit of {bytes}");
    result
}

/// Do `work` with a file of these bytes, at the same path each time: in memory if possible, because on a
/// disk, replacing a file writes it at once.
fn with_file<T>(name: &str, input: &[u8], work: impl FnOnce(&Path) -> T) -> T {
    thread_local! {
        static FOLDER: tempfile::TempDir =
            tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("the temporary folder must be created");
    }
    FOLDER.with(|folder| {
        let path = folder.path().join(name);
        std::fs::write(&path, input).expect("the input file must be written");
        work(&path)
    })
}

/// Whether a command accepts its arguments. An error is what is printed of it: one line, of limited length.
fn accepted(checked: Result<(), lab::error::Error>) -> bool {
    let Err(error) = checked else { return true };
    let line = error.line();
    assert!(
        !line.contains('\n') && line.chars().count() <= LONGEST,
        "an error must be one short line: {line}"
    );
    false
}

/// Assert that an error of a reader is one line of a reasonable length; who prints it cuts it.
fn one_line(error: &dyn std::fmt::Display) {
    let text = error.to_string();
    assert!(!text.contains('\n') && text.len() < 2000, "an error must be one short line: {text}");
}

//! What reads files, fed with files that nobody would write.
//!
//! A [`Target`] is one reader. It is given bytes, and must end with what they say or with an error of one line: a panic
//! is a finding, and so is more memory than the input warrants (each target says how much that is). There are two ways
//! to feed it:
//!
//! - [`drive`] makes inputs from seeds alone, the same each time. Tests do so, in a few seconds.
//! - The program `guided` looks for inputs that reach new code (libFuzzer), for as long as one likes: `cargo xtask
//!   fuzz`.
//!
//! Both change inputs in the same way ([`Target::mutate`]): text by tokens, containers part by part, with sums that
//! hold. What was found once stands in `regressions/`, and is tried again by a test.
#![forbid(unsafe_code)]

mod bytes;
mod container;
mod events;
mod lackey;
mod machine;
mod parts;
mod replay;

use peak_alloc::PeakAlloc;
use program::rng::Rng;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Held by tests one after the other: memory is counted for the whole process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A reader of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The trace container, as `pagefold info` and `run` read it.
    Container,
    /// The replay of a trace on a small machine.
    Replay,
    /// lackey's output, as `pagefold import` reads it.
    Lackey,
    /// A machine's TOML, and the start of a run on the machine.
    Machine,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 4] = [Target::Container, Target::Replay, Target::Lackey, Target::Machine];

    /// Its name in commands and folders.
    pub fn name(self) -> &'static str {
        match self {
            Target::Container => "container",
            Target::Replay => "replay",
            Target::Lackey => "lackey",
            Target::Machine => "machine",
        }
    }

    /// The target of that name.
    pub fn find(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|target| target.name() == name)
    }

    /// Good inputs to begin with.
    pub fn seeds(self) -> Vec<Vec<u8>> {
        match self {
            Target::Container | Target::Replay => container::seeds(),
            Target::Lackey => lackey::seeds(),
            Target::Machine => machine::seeds(),
        }
    }

    /// The input with something about it changed.
    pub fn mutate(self, rng: &mut Rng, input: &[u8]) -> Vec<u8> {
        match self {
            Target::Container | Target::Replay => container::mutate(rng, input),
            Target::Lackey => bytes::mutate_text(rng, input, lackey::WORDS),
            Target::Machine => bytes::mutate_text(rng, input, machine::WORDS),
        }
    }

    /// Give the reader an input; did it take it?
    ///
    /// # Panics
    /// If the reader does, or uses more memory than it may.
    pub fn feed(self, input: &[u8]) -> bool {
        CURRENT.set(Some((self, input.to_vec())));
        let taken = match self {
            Target::Container => container::feed(input),
            Target::Replay => replay::feed(input),
            Target::Lackey => lackey::feed(input),
            Target::Machine => machine::feed(input),
        };
        CURRENT.set(None);
        taken
    }
}

thread_local! {
    /// What this thread feeds to whom.
    static CURRENT: RefCell<Option<(Target, Vec<u8>)>> = const { RefCell::new(None) };
}

/// From now on, the input of a panic is written into `folder`, and the file is named.
pub fn keep_findings(folder: PathBuf) {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let Some((target, input)) = CURRENT.take() {
            let path = folder.join(format!("{}-{:08x}", target.name(), crc32fast::hash(&input)));
            let kept = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input));
            eprintln!("the input is in {} ({kept:?})", path.display());
        }
        default(info);
    }));
}

/// What a number of inputs came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Inputs that the reader took.
    pub taken: u64,
    /// Those that it refused.
    pub refused: u64,
}

/// Feed `runs` inputs that are drawn from `seed`: each is a good one, changed up to four times.
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
            true => tally.taken += 1,
            false => tally.refused += 1,
        }
    }
    tally
}

/// Do `work`, which may use so many bytes at once.
fn within<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let result = work();
    let used = MEMORY.peak_usage().saturating_sub(before);
    assert!(used <= bytes, "{used} bytes were used, and {bytes} would be enough");
    result
}

/// Do `work` with a file of these bytes, at the same path each time: in memory where there is such a place, as a file
/// that replaces another is written to a disk at once.
fn with_file<T>(name: &str, input: &[u8], work: impl FnOnce(&Path) -> T) -> T {
    thread_local! {
        static FOLDER: tempfile::TempDir =
            tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder can be made");
    }
    FOLDER.with(|folder| {
        let path = folder.path().join(name);
        std::fs::write(&path, input).expect("a file can be written");
        work(&path)
    })
}

/// An error as a command prints it is one line of a reasonable length.
fn one_line(error: &dyn std::fmt::Display) {
    let text = error.to_string();
    assert!(!text.contains('\n') && text.len() < 2000, "no line for people: {text}");
}

//! Synthetic programs, each with one access pattern.
//!
//! All of them work on one area (or file) of `footprint` bytes, in `threads` tasks that divide or share it,
//! for `passes` passes. One unit of progress is one page touched. Random choices come from the task's seed
//! and use integers only, so a program makes the same accesses on every machine.

mod build;
mod churn;
mod pageout;
mod scalability;
mod scale;
mod storms;
mod usemem;
mod vmscale;
mod walks;
mod work;

pub use build::KernelBuild;
pub use churn::Churn;
pub use pageout::PageoutLoop;
pub use scalability::LruFileMmapRead;
pub use scale::WillItScale;
pub use usemem::Usemem;
pub use vmscale::VmScalability;

use crate::{Os, Program, Role, Signal};

const PAGE: u64 = 4096;
/// Where the area is mapped: a fixed address, so that every task knows it.
const BASE: u64 = 0x10_0000_0000;
/// Roles of forked children begin here; threads are below.
const CHILD: Role = 1 << 16;
/// Smallest footprint, so that every thread has a few pages to choose from.
const MIN_BYTES: u64 = 1 << 20;
/// The most threads.
const MAX_THREADS: u32 = 1024;

/// Kill the task if a call fails, which only lack of memory should cause.
fn must<T, E>(result: Result<T, E>) -> Result<T, Signal> {
    result.map_err(|_| Signal::Kill)
}

/// How a program uses its area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pattern {
    Sequential,
    Uniform,
    Zipf,
    Phases,
    ForkWrite,
    ForkStorm,
    SharedWriters,
    MapStorm,
    Stream,
    ReadStream,
    ZipfAndScan,
    HotAndStream,
}

/// The memory that a program uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Area {
    /// Anonymous memory.
    Anon,
    /// Anonymous memory with MADV_HUGEPAGE.
    HugePage,
    /// A file.
    File,
}

/// One row of the list: name, pattern, area, help.
const TABLE: &[(&str, Pattern, Area, &str)] = &[
    ("sequential", Pattern::Sequential, Area::Anon, "write memory once, then read it from end to end"),
    ("uniform", Pattern::Uniform, Area::Anon, "fill memory, then touch pages at random, one in four written"),
    ("zipf", Pattern::Zipf, Area::Anon, "fill memory, then touch pages by Zipf's law, one in four written"),
    (
        "zipf-hugepage",
        Pattern::Zipf,
        Area::HugePage,
        "as zipf, on memory with MADV_HUGEPAGE, for hugepages-2048kB.enabled=madvise",
    ),
    (
        "phases",
        Pattern::Phases,
        Area::Anon,
        "fill memory, then touch a quarter of the pages at random, a different quarter in each phase",
    ),
    (
        "fork-write",
        Pattern::ForkWrite,
        Area::Anon,
        "fork again and again; parent and child write the pages that they share",
    ),
    (
        "fork-storm",
        Pattern::ForkStorm,
        Area::Anon,
        "fork children that write a few of the shared pages and exit",
    ),
    ("map-storm", Pattern::MapStorm, Area::Anon, "map, touch, protect and unmap small areas without pause"),
    ("sequential-file", Pattern::Sequential, Area::File, "as sequential, on a shared mapping of a file"),
    ("uniform-file", Pattern::Uniform, Area::File, "as uniform, on a shared mapping of a file"),
    ("zipf-file", Pattern::Zipf, Area::File, "as zipf, on a shared mapping of a file"),
    (
        "shared-writers",
        Pattern::SharedWriters,
        Area::File,
        "write a file by pwrite and through shared mappings while others read it mapped",
    ),
    ("stream", Pattern::Stream, Area::File, "read a mapped file from end to end"),
    (
        "read-stream",
        Pattern::ReadStream,
        Area::File,
        "read a file from end to end by pread, 128 KiB at a time",
    ),
    (
        "zipf-and-scan",
        Pattern::ZipfAndScan,
        Area::File,
        "read pages of a mapped file: four of five by Zipf's law, one of five by an endless scan",
    ),
    (
        "hot-and-stream",
        Pattern::HotAndStream,
        Area::File,
        "read the first quarter of a mapped file at random, and the rest from end to end by pread, again and again",
    ),
];

/// Names of the built-in programs with a line of help each.
pub const LIST: &[(&str, &str)] = &{
    let mut list = [("", ""); TABLE.len()];
    let mut i = 0;
    while i < list.len() {
        list[i] = (TABLE[i].0, TABLE[i].3);
        i += 1;
    }
    list
};

/// The program with that name and `footprint` bytes (at least 1 MiB, rounded up to pages), one thread and two
/// passes (or eight).
pub fn from_name(name: &str, footprint: u64) -> Option<Builtin> {
    let &(name, pattern, area, _) = TABLE.iter().find(|row| row.0 == name)?;
    let footprint = footprint.max(MIN_BYTES).next_multiple_of(PAGE);
    // A mix of two patterns needs more passes until they affect each other.
    let passes = if matches!(pattern, Pattern::ZipfAndScan | Pattern::HotAndStream) { 8 } else { 2 };
    Some(Builtin { name, pattern, area, footprint, threads: 1, passes })
}

/// A built-in program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Builtin {
    name: &'static str,
    pattern: Pattern,
    area: Area,
    footprint: u64,
    threads: u32,
    passes: u32,
}

impl Builtin {
    /// With that many threads, 1 to 1024 and at most one for every 16 pages.
    pub fn with_threads(self, threads: u32) -> Builtin {
        let max = (self.footprint / PAGE / 16).min(MAX_THREADS as u64) as u32;
        Builtin { threads: threads.clamp(1, max), ..self }
    }

    /// With that many passes, at least 1.
    pub fn with_passes(self, passes: u32) -> Builtin {
        Builtin { passes: passes.max(1), ..self }
    }

    fn pages(&self) -> u64 {
        self.footprint / PAGE
    }
}

impl Program for Builtin {
    fn name(&self) -> &str {
        self.name
    }

    fn footprint(&self) -> u64 {
        self.footprint
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if role >= CHILD {
            return self.child(os, role - CHILD);
        }
        if role > 0 {
            return self.thread(os, role);
        }
        self.set_up(os)?;
        let mut threads = alloc::vec::Vec::new();
        for thread in 1..self.threads {
            threads.push(os.spawn(thread).map_err(|_| Signal::Kill)?);
        }
        self.thread(os, 0)?;
        threads.into_iter().for_each(|thread| os.join(thread));
        Ok(())
    }
}

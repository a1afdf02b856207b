//! Cases of will-it-scale: each CPU repeats a few calls or faults in memory of its own, so that all that can keep the
//! CPUs from doing as much together as alone is the memory manager's.
//!
//! Each task repeats its case for [`TIME`]; the count of all tasks is the result. Tasks are threads of one process or
//! processes of their own, as the name ends. Files are in memory: the suite's are in `/tmp`, and no case reads from a
//! device. Two runs do not do the same work, because the time is fixed.

use super::{MAX_THREADS, MIN_BYTES, PAGE, must};
use crate::{Advice, FileSpec, Map, MapSource, Os, Program, Prot, Role, Signal};
use alloc::format;
use alloc::vec::Vec;

/// The barrier before the measurement.
const BEGIN: u32 = 1;
/// Bytes that `tlb_flush2` maps at once, in the suite as well.
const FLUSHED: u64 = 1 << 20;

/// What a case maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Anon,
    PrivateFile,
    SharedFile,
}

/// What a task repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    /// Map an area, store to each page, unmap it; each page counts.
    Fault(Source),
    /// Map an area and unmap it; that counts.
    Map(Source),
    /// Map a page behind an area and unmap it, as `brk` lets the heap grow and shrink; both count.
    Grow,
    /// Map a megabyte, store to a page, drop it, load it, for each page; unmap it; each page counts.
    Flush,
}

/// One row of the list: name, case, whether tasks are threads, help.
const TABLE: &[(&str, Case, bool, &str)] = &[
    (
        "page_fault1_threads",
        Case::Fault(Source::Anon),
        true,
        "map anonymous memory, store to each page, unmap it, a thread for each CPU (will-it-scale)",
    ),
    ("page_fault1_processes", Case::Fault(Source::Anon), false, "the same in a process for each CPU"),
    (
        "page_fault2_threads",
        Case::Fault(Source::PrivateFile),
        true,
        "map a file privately, store to each page, unmap it, a thread for each CPU (will-it-scale)",
    ),
    ("page_fault2_processes", Case::Fault(Source::PrivateFile), false, "the same in a process for each CPU"),
    (
        "page_fault3_threads",
        Case::Fault(Source::SharedFile),
        true,
        "map a file shared, store to each page, unmap it, a thread for each CPU (will-it-scale)",
    ),
    ("page_fault3_processes", Case::Fault(Source::SharedFile), false, "the same in a process for each CPU"),
    (
        "mmap1_threads",
        Case::Map(Source::Anon),
        true,
        "map anonymous memory and unmap it, a thread for each CPU (will-it-scale)",
    ),
    ("mmap1_processes", Case::Map(Source::Anon), false, "the same in a process for each CPU"),
    (
        "mmap2_threads",
        Case::Map(Source::PrivateFile),
        true,
        "map a file privately and unmap it, a thread for each CPU (will-it-scale)",
    ),
    ("mmap2_processes", Case::Map(Source::PrivateFile), false, "the same in a process for each CPU"),
    (
        "brk1_threads",
        Case::Grow,
        true,
        "let an area grow by a page and shrink again, a thread for each CPU (will-it-scale)",
    ),
    ("brk1_processes", Case::Grow, false, "the same in a process for each CPU"),
    (
        "tlb_flush2_threads",
        Case::Flush,
        true,
        "store to a page, drop it by MADV_DONTNEED and load it, a thread for each CPU (will-it-scale)",
    ),
    ("tlb_flush2_processes", Case::Flush, false, "the same in a process for each CPU"),
];

/// A case with a number of tasks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WillItScale {
    name: &'static str,
    case: Case,
    threads: bool,
    footprint: u64,
    tasks: Option<u32>,
}

impl WillItScale {
    /// Duration of the measurement in nanoseconds, in which all progress is counted; the suite measures for seconds.
    pub const TIME: u64 = 20_000_000;

    /// Names with a line of help each.
    pub fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
        TABLE.iter().map(|&(name, _, _, help)| (name, help))
    }

    /// The case with that name, whose tasks share `footprint` bytes (at least 1 MiB each), one for each CPU.
    pub fn from_name(name: &str, footprint: u64) -> Option<WillItScale> {
        let &(name, case, threads, _) = TABLE.iter().find(|row| row.0 == name)?;
        let footprint = footprint.max(MIN_BYTES).next_multiple_of(PAGE);
        Some(WillItScale { name, case, threads, footprint, tasks: None })
    }

    /// With that many tasks, 1 to 1024.
    pub fn with_tasks(self, tasks: Option<u32>) -> WillItScale {
        WillItScale { tasks: tasks.map(|tasks| tasks.clamp(1, MAX_THREADS)), ..self }
    }

    fn tasks<O: Os>(&self, os: &O) -> u32 {
        self.tasks.unwrap_or(os.cpus()).clamp(1, MAX_THREADS)
    }

    /// Repeat the case as task `task` of `tasks`.
    fn repeat<O: Os>(&self, os: &mut O, task: u32, tasks: u32) -> Result<(), Signal> {
        let len = (self.footprint / u64::from(tasks)).max(MIN_BYTES) / PAGE * PAGE;
        let fd = match self.case {
            Case::Fault(Source::Anon) | Case::Map(Source::Anon) | Case::Grow | Case::Flush => None,
            Case::Fault(_) | Case::Map(_) => Some(new_file(os, &format!("{}-{task}", self.name), len)?),
        };
        os.barrier(BEGIN, tasks);
        let end = os.now() + Self::TIME;
        match self.case {
            Case::Fault(source) => fault(os, end, map(source, fd, len)),
            Case::Map(source) => {
                while os.now() < end {
                    let addr = must(os.mmap(map(source, fd, len)))?;
                    must(os.munmap(addr, len))?;
                    os.progress(1);
                }
                Ok(())
            }
            Case::Grow => grow(os, end, len),
            Case::Flush => flush(os, end),
        }
    }
}

fn new_file<O: Os>(os: &mut O, name: &str, len: u64) -> Result<u32, Signal> {
    let fd = must(os.open(FileSpec { name, size: 0, in_memory: true, writable: true }))?;
    must(os.ftruncate(fd, len))?;
    Ok(fd)
}

fn map(source: Source, fd: Option<u32>, len: u64) -> Map {
    let shared = source == Source::SharedFile;
    match fd {
        None => Map::anonymous(len),
        Some(fd) => {
            let source = MapSource::File { fd, offset: 0, shared };
            Map { addr: None, len, prot: Prot::RW, source, locked: false, populate: false }
        }
    }
}

fn fault<O: Os>(os: &mut O, end: u64, map: Map) -> Result<(), Signal> {
    while os.now() < end {
        let (addr, pages) = (must(os.mmap(map))?, map.len / PAGE);
        let mut done = 0;
        while done < pages && os.now() < end {
            os.store(addr + done * PAGE)?;
            done += 1;
        }
        must(os.munmap(addr, map.len))?;
        os.progress(done);
    }
    Ok(())
}

fn grow<O: Os>(os: &mut O, end: u64, len: u64) -> Result<(), Signal> {
    // The last page is given back, so that there is room behind the area.
    let behind = must(os.mmap(Map::anonymous(len)))? + len - PAGE;
    must(os.munmap(behind, PAGE))?;
    while os.now() < end {
        must(os.mmap(Map { addr: Some(behind), ..Map::anonymous(PAGE) }))?;
        must(os.munmap(behind, PAGE))?;
        os.progress(2);
    }
    Ok(())
}

fn flush<O: Os>(os: &mut O, end: u64) -> Result<(), Signal> {
    while os.now() < end {
        let addr = must(os.mmap(Map::anonymous(FLUSHED)))?;
        let mut done = 0;
        while done < FLUSHED / PAGE && os.now() < end {
            let page = addr + done * PAGE;
            os.store(page)?;
            must(os.madvise(page, PAGE, Advice::DontNeed))?;
            os.load(page)?;
            done += 1;
        }
        must(os.munmap(addr, FLUSHED))?;
        os.progress(done);
    }
    Ok(())
}

impl Program for WillItScale {
    fn name(&self) -> &str {
        self.name
    }

    fn footprint(&self) -> u64 {
        self.footprint
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let tasks = self.tasks(os);
        if let Some(task) = role.checked_sub(1) {
            return self.repeat(os, task, tasks);
        }
        let begin = |role| must(if self.threads { os.spawn(role) } else { os.fork(role) });
        let others = (2..=tasks).map(begin).collect::<Result<Vec<_>, _>>()?;
        self.repeat(os, 0, tasks)?;
        others.into_iter().for_each(|task| os.join(task));
        Ok(())
    }
}

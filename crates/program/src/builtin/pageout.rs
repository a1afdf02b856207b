//! The loop that the series on batched reverse-map removal was measured with (March 2023).
//!
//! - A number of processes (96 there) each have a file of 2 MiB of their own on a disk's file system.
//! - Each maps its file private and writable. For one second it loads a byte of every page, pages the whole
//!   range out by MADV_PAGEOUT, and counts.
//! - The result is the number of loops of all processes together.
//!
//! The publication does not say how the files were made. 58,865 loops of 2 MiB a second are 120 GB/s, which
//! no disk delivers, so the files are sparse here: a read fills a page with zeroes, and no device works. The
//! files exist before the measurement: each process loads its file once before the barrier. As the time is
//! fixed and the work is the result, two runs do not do the same work.

use super::{MAX_THREADS, MIN_BYTES, PAGE, must};
use crate::{Advice, FileSpec, Map, MapSource, Os, Program, Prot, Role, Signal};
use alloc::format;
use alloc::vec::Vec;

/// Bytes of each file.
const FILE: u64 = 2 << 20;
/// Duration of the measurement in nanoseconds.
const TIME: u64 = 1_000_000_000;
/// The barrier before the measurement.
const BEGIN: u32 = 1;

/// Processes that each load a private mapping of a file and page it out, for one second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageoutLoop {
    tasks: u32,
    time: u64,
}

impl PageoutLoop {
    /// The program's name.
    pub const NAME: &'static str = "pageout-loop";
    /// One line of help.
    pub const HELP: &'static str = "one process for each 2 MiB loads every page of a private file mapping and pages it out by MADV_PAGEOUT, for \
                                    one second (192M: the case as published)";

    /// One process for each 2 MiB of `footprint`, 1 to 1024.
    pub fn new(footprint: u64) -> PageoutLoop {
        let tasks = (footprint.max(MIN_BYTES) / FILE).clamp(1, MAX_THREADS as u64) as u32;
        PageoutLoop { tasks, time: TIME }
    }

    /// Measured for this share of the second.
    pub fn with_share_of_time(self, share: f64) -> PageoutLoop {
        PageoutLoop { time: (self.time as f64 * share) as u64, ..self }
    }

    fn load_all<O: Os>(os: &mut O, addr: u64) -> Result<(), Signal> {
        (0..FILE / PAGE).try_for_each(|page| os.load(addr + page * PAGE))
    }

    /// Run process `task`.
    fn run_process<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let name = format!("{}-{task}", Self::NAME);
        let fd = must(os.open(FileSpec { name: &name, size: 0, in_memory: false, writable: true }))?;
        must(os.ftruncate(fd, FILE))?;
        let source = MapSource::File { fd, offset: 0, shared: false };
        let map = Map { addr: None, len: FILE, prot: Prot::RW, source, locked: false, populate: false };
        let addr = must(os.mmap(map))?;
        Self::load_all(os, addr)?;
        os.barrier(BEGIN, self.tasks);
        let end = os.now() + self.time;
        while os.now() < end {
            Self::load_all(os, addr)?;
            must(os.madvise(addr, FILE, Advice::PageOut))?;
            os.progress(1);
        }
        must(os.munmap(addr, FILE))
    }
}

impl Program for PageoutLoop {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn footprint(&self) -> u64 {
        self.tasks as u64 * FILE
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if let Some(task) = role.checked_sub(1) {
            return self.run_process(os, task);
        }
        let tasks = (1..=self.tasks).map(|role| must(os.fork(role))).collect::<Result<Vec<_>, _>>()?;
        tasks.into_iter().for_each(|task| os.join(task));
        Ok(())
    }
}

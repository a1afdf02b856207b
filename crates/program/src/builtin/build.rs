//! A kernel build beside bursts of large pages: what `vm.defrag_mode` of Linux 6.15 was measured with.
//!
//! As many workers as CPUs compile one unit after the other: each is a process of its own, which reads a part of the
//! sources, fills a heap, gives parts of it back, writes an object file and ends. Beside them a process asks for a
//! burst of memory in pages of 2 MiB (MADV_HUGEPAGE), fills it and gives it back, again and again. A round is a share
//! of the units and some bursts; workers and bursts wait for each other after it.
//!
//! The sources are in memory when it begins, as far as they find room: they have been unpacked before.
//!
//! What a build leaves in a kernel (dentries, inodes) cannot be moved and stays. Here only page tables are such memory:
//! so with each unit its worker maps a page where there is no table yet, and keeps it.

use super::{LEAST, PAGE, THREADS, must};
use crate::rng::Rng;
use crate::{Access, AccessKind, Advice, FileSpec, Map, Os, Program, Role, Signal};
use alloc::format;
use alloc::vec::Vec;

const LARGE: u64 = 2 << 20;
/// Rounds: what was published are 15 builds.
const ROUNDS: u64 = 15;
/// Units of a worker in a round, and bursts.
const UNITS: u64 = 4;
const BURSTS: u64 = 2;
/// Shares of the bytes: the sources, a unit's heap, a burst; what a unit reads and writes.
const SOURCES: u64 = 2;
const HEAP: u64 = 128;
const BURST: u64 = 8;
const READ: u64 = 1024;
const WRITTEN: u64 = 4096;
/// Instructions for each page of a unit's heap: a compiler computes.
const COMPUTE: u64 = 20_000;
/// What is unpacked at once.
const UNPACKED: u64 = 128 << 10;
/// Where workers keep single pages: a table each.
const KEPT: u64 = 0x30_0000_0000;
/// Roles: workers from 1 on; the bursts; units.
const BURSTER: Role = 1 << 15;
const UNIT: Role = 1 << 16;
/// Where all wait after a round.
const ROUND: u32 = 2;

/// The program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelBuild {
    bytes: u64,
    tasks: Option<u32>,
}

impl KernelBuild {
    /// Its name.
    pub const NAME: &'static str = "kernel-build";
    /// One line of help.
    pub const HELP: &'static str =
        "processes compile while another asks for bursts of pages of 2 MiB, 15 rounds";

    /// With sources, heaps and bursts that are shares of `bytes`, and as many workers as CPUs or `tasks`.
    pub fn new(bytes: u64, tasks: Option<u32>) -> KernelBuild {
        let bytes = bytes.max(16 * LEAST).next_multiple_of(BURST * LARGE);
        KernelBuild { bytes, tasks: tasks.map(|tasks| tasks.clamp(1, THREADS)) }
    }

    fn workers<O: Os>(&self, os: &O) -> u32 {
        self.tasks.unwrap_or(os.cpus()).clamp(1, THREADS)
    }

    fn sources<O: Os>(&self, os: &mut O) -> Result<u32, Signal> {
        let size = self.bytes / SOURCES;
        must(os.open(FileSpec { name: "kernel-build-sources", size, in_memory: false, writable: false }))
    }

    fn worker<O: Os>(&self, os: &mut O, worker: Role) -> Result<(), Signal> {
        let everybody = self.workers(os) + 1;
        for round in 0..ROUNDS {
            for unit in 0..UNITS {
                let number = round * UNITS + unit;
                let child = must(os.fork(UNIT + worker))?;
                os.join(child);
                let at = KEPT + number * LARGE;
                must(os.mmap(Map { addr: Some(at), ..Map::anonymous(PAGE) }))?;
                os.store(at)?;
                os.progress(1);
            }
            os.barrier(ROUND, everybody);
        }
        Ok(())
    }

    fn unit<O: Os>(&self, os: &mut O, worker: Role) -> Result<(), Signal> {
        let mut rng = Rng::new(os.seed());
        let sources = self.sources(os)?;
        let read = self.bytes / READ;
        let from = rng.below((self.bytes / SOURCES - read) / PAGE + 1) * PAGE;
        must(os.pread(sources, from, read))?;
        let pages = (self.bytes / HEAP / PAGE).max(8);
        let pages = pages / 2 + rng.below(pages);
        let heap = must(os.mmap(Map::anonymous(pages * PAGE)))?;
        for page in 0..pages {
            os.access(Access { addr: heap + page * PAGE, count: 64, mode: AccessKind::Store })?;
            os.compute(COMPUTE);
            if page % 64 == 63 {
                let gone = heap + (page - rng.below(64)) * PAGE;
                must(os.madvise(gone, PAGE, Advice::DontNeed))?;
            }
        }
        let name = format!("kernel-build-object-{worker}-{}", rng.below(1 << 40));
        let object = must(os.open(FileSpec { name: &name, size: 0, in_memory: false, writable: true }))?;
        must(os.pwrite(object, 0, self.bytes / WRITTEN))?;
        Ok(())
    }

    fn bursts<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let (len, everybody) = (self.bytes / BURST, self.workers(os) + 1);
        for _ in 0..ROUNDS {
            for _ in 0..BURSTS {
                let began = os.now();
                let area = must(os.mmap(Map::anonymous(len + LARGE)))?;
                let first = area.next_multiple_of(LARGE);
                must(os.madvise(first, len, Advice::HugePage))?;
                for page in 0..len / PAGE {
                    os.store(first + page * PAGE)?;
                }
                os.took(os.now() - began);
                must(os.munmap(area, len + LARGE))?;
                os.progress(1);
            }
            os.barrier(ROUND, everybody);
        }
        Ok(())
    }
}

impl Program for KernelBuild {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn footprint(&self) -> u64 {
        self.bytes
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        match role {
            0 => {
                // They have just been unpacked.
                let sources = self.sources(os)?;
                for at in (0..self.bytes / SOURCES).step_by(UNPACKED as usize) {
                    must(os.pread(sources, at, UNPACKED))?;
                }
                let roles = (1..=self.workers(os)).chain([BURSTER]);
                let tasks = roles.map(|role| must(os.fork(role))).collect::<Result<Vec<_>, _>>()?;
                tasks.into_iter().for_each(|task| os.join(task));
                Ok(())
            }
            BURSTER => self.bursts(os),
            UNIT.. => self.unit(os, role - UNIT),
            worker => self.worker(os, worker),
        }
    }
}

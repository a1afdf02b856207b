//! A kernel build along with bursts of large pages: the load that `vm.defrag_mode` of Linux 6.15 was measured
//! with.
//!
//! As many workers as CPUs compile units, one after the other. Each unit is a process of its own, which reads
//! a part of the sources, fills a heap, frees parts of it, writes an object file and exits. Along with the
//! workers, another process allocates a burst of memory in pages of 2 MiB (MADV_HUGEPAGE), fills it and frees
//! it, again and again. A round is a share of the units and some bursts; after it, workers and bursts wait
//! for each other.
//!
//! The sources are in memory at the start, if they fit: they have just been unpacked.
//!
//! What a build leaves in a kernel (dentries, inodes) cannot be moved and stays. Here only page tables are
//! such memory: with each unit, its worker maps a page that needs a new table, and keeps it.

use super::{MAX_THREADS, MIN_BYTES, PAGE, must};
use crate::rng::Rng;
use crate::{Access, AccessKind, Advice, FileSpec, Map, Os, Program, Role, Signal};
use alloc::format;
use alloc::vec::Vec;

const LARGE: u64 = 2 << 20;
/// Rounds: the published run had 15 builds.
const ROUNDS: u64 = 15;
/// Units of a worker in a round, and bursts in a round.
const UNITS: u64 = 4;
const BURSTS: u64 = 2;
/// Shares of the bytes: the sources, a unit's heap, a burst; what a unit reads and writes.
const SOURCE_SHARE: u64 = 2;
const HEAP_SHARE: u64 = 128;
const BURST_SHARE: u64 = 8;
const READ_SHARE: u64 = 1024;
const WRITE_SHARE: u64 = 4096;
/// Instructions for each page of a unit's heap: what the compiler computes.
const COMPUTE: u64 = 20_000;
/// Bytes of one read while sources are unpacked.
const READ_CHUNK: u64 = 128 << 10;
/// Where workers keep single pages, each with a page table of its own.
const TABLE_AREA: u64 = 0x30_0000_0000;
/// Roles: workers begin at 1; then the process with the bursts; then the units.
const BURSTER: Role = 1 << 15;
const UNIT: Role = 1 << 16;
/// The barrier after a round.
const ROUND: u32 = 2;

/// The program `kernel-build`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelBuild {
    bytes: u64,
    tasks: Option<u32>,
}

impl KernelBuild {
    /// The program's name.
    pub const NAME: &'static str = "kernel-build";
    /// One line of help.
    pub const HELP: &'static str =
        "processes compile while another allocates bursts of pages of 2 MiB, in 15 rounds";

    /// With sources, heaps and bursts that are shares of `bytes`, and as many workers as CPUs or `tasks`.
    pub fn new(bytes: u64, tasks: Option<u32>) -> KernelBuild {
        let bytes = bytes.max(16 * MIN_BYTES).next_multiple_of(BURST_SHARE * LARGE);
        KernelBuild { bytes, tasks: tasks.map(|tasks| tasks.clamp(1, MAX_THREADS)) }
    }

    fn workers<O: Os>(&self, os: &O) -> u32 {
        self.tasks.unwrap_or(os.cpus()).clamp(1, MAX_THREADS)
    }

    fn sources<O: Os>(&self, os: &mut O) -> Result<u32, Signal> {
        let size = self.bytes / SOURCE_SHARE;
        must(os.open(FileSpec { name: "kernel-build-sources", size, in_memory: false, writable: false }))
    }

    fn worker<O: Os>(&self, os: &mut O, worker: Role) -> Result<(), Signal> {
        let participants = self.workers(os) + 1;
        for round in 0..ROUNDS {
            for unit in 0..UNITS {
                let number = round * UNITS + unit;
                let child = must(os.fork(UNIT + worker))?;
                os.join(child);
                let at = TABLE_AREA + number * LARGE;
                must(os.mmap(Map { addr: Some(at), ..Map::anonymous(PAGE) }))?;
                os.store(at)?;
                os.progress(1);
            }
            os.barrier(ROUND, participants);
        }
        Ok(())
    }

    fn unit<O: Os>(&self, os: &mut O, worker: Role) -> Result<(), Signal> {
        let mut rng = Rng::new(os.seed());
        let sources = self.sources(os)?;
        let read = self.bytes / READ_SHARE;
        let from = rng.below((self.bytes / SOURCE_SHARE - read) / PAGE + 1) * PAGE;
        must(os.pread(sources, from, read))?;
        let pages = (self.bytes / HEAP_SHARE / PAGE).max(8);
        let pages = pages / 2 + rng.below(pages);
        let heap = must(os.mmap(Map::anonymous(pages * PAGE)))?;
        for page in 0..pages {
            os.access(Access { addr: heap + page * PAGE, count: 64, mode: AccessKind::Store })?;
            os.compute(COMPUTE);
            if page % 64 == 63 {
                let freed = heap + (page - rng.below(64)) * PAGE;
                must(os.madvise(freed, PAGE, Advice::DontNeed))?;
            }
        }
        let name = format!("kernel-build-object-{worker}-{}", rng.below(1 << 40));
        let object = must(os.open(FileSpec { name: &name, size: 0, in_memory: false, writable: true }))?;
        must(os.pwrite(object, 0, self.bytes / WRITE_SHARE))?;
        Ok(())
    }

    fn bursts<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let (len, participants) = (self.bytes / BURST_SHARE, self.workers(os) + 1);
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
            os.barrier(ROUND, participants);
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
                for at in (0..self.bytes / SOURCE_SHARE).step_by(READ_CHUNK as usize) {
                    must(os.pread(sources, at, READ_CHUNK))?;
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

//! Cases of vm-scalability under their own names.
//!
//! `lru-file-mmap-read` floods memory with mapped pages that are used once. This is the case as it was in
//! 2015, when the series on batched unmap flushes was measured with it (vm-scalability of 2010 to 2012,
//! `case-lru-file-mmap-read`, `hw_vars`, `usemem.c`; Linux commit 72b252aed506 describes its test in the same
//! way: as many readers as CPUs, of mapped files that consume ten times the memory):
//!
//! - There is one process for each CPU, each with a file of its own.
//! - All files together have ten times the machine's memory.
//! - The files are sparse, on a disk's file system: a read of a hole fills a page with zeroes, and no device
//!   works.
//! - A shell starts the processes; here each begins after a delay below [`START`], drawn from the seed.
//! - Each process maps its file shared and read-only and loads every 8-byte word of it once, from the first
//!   to the last.
//! - Then the process ends. The measured time ends with the last process.
//!
//! (Later versions of the suite read files of terabytes for a fixed time instead.) Not modelled: the removal
//! of the files at the end, and the loop device under the file system, which a hole never reaches.

use super::{MAX_THREADS, MIN_BYTES, PAGE, must};
use crate::rng::Rng;
use crate::{Access, AccessKind, FileSpec, Map, Os, Program, Prot, Role, Signal};
use alloc::format;
use alloc::vec::Vec;

/// Time in nanoseconds within which all processes begin.
const START: u64 = 1_000_000;
/// Loads of a page: every word of 8 bytes.
const WORDS: u32 = 512;
/// Instructions of usemem's loop for each word, without the load and one more instruction, which an access
/// includes. The loop has 16 when compiled as its Makefile says (gcc -O, x86-64), because it reads its
/// options again for every word.
const LOOP: u64 = 14;

/// Processes that each read a mapped sparse file of their own; together the files are larger than memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LruFileMmapRead {
    footprint: u64,
    tasks: Option<u32>,
}

impl LruFileMmapRead {
    /// The program's name.
    pub const NAME: &'static str = "lru-file-mmap-read";
    /// One line of help.
    pub const HELP: &'static str = "as many processes as CPUs each read a mapped sparse file of their own once; needs less memory \
                                    than the files have (vm-scalability's case: 10%)";
    /// Bytes of all files for each byte of memory in the published case.
    pub const TIMES_MEMORY: u64 = 10;

    /// Files of `footprint` bytes together (at least 1 MiB, rounded up to pages), with one process for each
    /// CPU.
    pub fn new(footprint: u64) -> LruFileMmapRead {
        LruFileMmapRead { footprint: footprint.max(MIN_BYTES).next_multiple_of(PAGE), tasks: None }
    }

    /// With that many processes, 1 to 1024.
    pub fn with_tasks(self, tasks: u32) -> LruFileMmapRead {
        LruFileMmapRead { tasks: Some(tasks.clamp(1, MAX_THREADS)), ..self }
    }

    /// Whether the files are larger than the machine's memory, as the case requires.
    pub fn overcommits(&self, memory: u64) -> bool {
        self.footprint > memory
    }

    /// Pages of the file of process `task` of `tasks`.
    fn pages(&self, task: u32, tasks: u32) -> u64 {
        let before = |task: u32| self.footprint / PAGE * task as u64 / tasks as u64;
        before(task + 1) - before(task)
    }

    /// Run process `task`.
    fn read<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let pages = self.pages(task, self.tasks(os));
        if pages == 0 {
            return Ok(());
        }
        let seed = os.seed();
        os.sleep(Rng::new(seed).below(START));
        let start = os.now();
        let name = format!("{}-{task}", Self::NAME);
        let file = |writable| FileSpec { name: &name, size: 0, in_memory: false, writable };
        // As truncate(1) creates it: the whole file is a hole.
        let fd = must(os.open(file(true)))?;
        must(os.ftruncate(fd, pages * PAGE))?;
        must(os.close(fd))?;
        let fd = must(os.open(file(false)))?;
        let addr = must(os.mmap(Map::file_shared(fd, pages * PAGE, Prot::READ)))?;
        for page in 0..pages {
            os.access(Access { addr: addr + page * PAGE, count: WORDS, mode: AccessKind::Load })?;
            os.compute(LOOP * WORDS as u64);
        }
        os.progress(pages);
        // The formula of usemem: the bytes touched, and an eighth of a byte for each byte of the mapping.
        os.rate(pages * PAGE + pages * PAGE / 8, (os.now() - start).max(1));
        Ok(())
    }

    fn tasks<O: Os>(&self, os: &O) -> u32 {
        self.tasks.unwrap_or(os.cpus()).clamp(1, MAX_THREADS)
    }
}

impl Program for LruFileMmapRead {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn footprint(&self) -> u64 {
        self.footprint
    }

    /// # Panics
    /// If the files fit in memory: that is not the published case.
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if let Some(task) = role.checked_sub(1) {
            return self.read(os, task);
        }
        let memory = os.memory();
        assert!(
            self.overcommits(memory),
            "{}: files of {} bytes do not overcommit memory of {memory} bytes",
            Self::NAME,
            self.footprint
        );
        let tasks = (1..=self.tasks(os)).map(|role| must(os.fork(role))).collect::<Result<Vec<_>, _>>()?;
        tasks.into_iter().for_each(|task| os.join(task));
        Ok(())
    }
}

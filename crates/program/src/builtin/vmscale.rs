//! The cases of vm-scalability that the series on compaction of large folios was measured with, under their
//! own names.
//!
//! In the suite a shell script starts `usemem`, once for each task or once with that many tasks. Its region
//! depends on the machine's memory, files are as large as addresses reach, and the clock ends the runs. Here
//! a number of bytes replaces both. For cases on files, it is what is read of all files together, which must
//! be more than memory holds. For the others, it is the memory that the regions are shares of, which must fit
//! in memory. So two runs do the same work, and time is measured. Each task touches its region once.
//!
//! After the start barrier, each task continues within a millisecond, after a delay drawn from the seed: in
//! the suite, tasks are released one after the other.
//!
//! Each task reports the suite's own figure: the bytes touched, and an eighth of a byte for each byte of its
//! mapping, divided by the time from its start to its end. The sum is `throughput`.
//!
//! Unlike in the suite, files are on a disk's file system, whose holes are filled with zeroes without a
//! device, and not on a loop device in tmpfs; so msync writes to that disk. Random accesses are 8 to a page
//! of memory and one to a page of a file, not 512.

use super::{MAX_THREADS, MIN_BYTES, PAGE, must};
use crate::rng::Rng;
use crate::{Access, AccessKind, FileAdvice, FileSpec, Map, MapSource, Os, Program, Prot, Role, Signal};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// 8-byte words of a page.
const WORDS: u32 = 512;
/// Instructions of usemem's loop for each word, without the access itself (see `scalability`).
const LOOP: u64 = 14;
/// Random accesses for each page of a region in memory, and of a file, where nearly every access faults.
const RANDOM: u64 = 8;
const RANDOM_FAULTS: u64 = 1;
/// The block size of `dd`.
const BLOCK: u64 = 4096;
/// Address of a region that tasks share.
const SHARED: u64 = 0x20_0000_0000;
/// The role of the process with the threads, if that is not the first; tasks follow.
const HOST: Role = 1;
const TASK: Role = 2;
/// The barrier where all tasks wait for each other.
const START: u32 = 1;
/// The longest delay of a task after the barrier, in nanoseconds; and what separates the draw of delays from
/// all other draws.
const MAX_DELAY: u64 = 1_000_000;
const DELAY_SEED: u64 = 0x64_656c_6179;

/// What a task's region is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Region {
    /// A part of one sparse file, mapped once for all tasks (`true`) or by each.
    File(bool),
    /// A sparse file of the task's own, mapped.
    OwnFile,
    /// A sparse file of the task's own, read twice by read(2).
    Dd,
    /// Memory of its own.
    Anon,
    /// Memory that is mapped before the tasks begin, and (`true`) filled.
    AnonShared(bool),
    /// Half of a file in tmpfs, mapped once for all tasks (`true`) or by each.
    Shm(bool),
    /// A sparse file, mapped, filled, written and synced: one for all tasks (`true`) or one for each.
    Sync(bool),
    /// A cached file that is truncated to nothing.
    Truncate,
}

/// A case.
#[derive(Debug)]
struct Case {
    name: &'static str,
    /// Whether tasks are threads of one process, or processes.
    threads: bool,
    region: Region,
    random: bool,
    /// The region's share of the bytes: 1/n, and whether the tasks divide that.
    share: (u64, bool),
    help: &'static str,
}

/// All cases but `lru-file-mmap-read`, which is in `scalability`.
const CASES: &[Case] = &[
    Case {
        name: "mmap-xread-seq-mt",
        threads: true,
        region: Region::File(true),
        random: false,
        share: (1, false),
        help: "threads read one mapping of a sparse file, each all of it",
    },
    Case {
        name: "mmap-pread-seq",
        threads: false,
        region: Region::File(false),
        random: false,
        share: (1, false),
        help: "processes map the same part of a sparse file, and read it",
    },
    Case {
        name: "mmap-pread-seq-mt",
        threads: true,
        region: Region::File(false),
        random: false,
        share: (1, false),
        help: "threads map the same part of a sparse file each, and read it",
    },
    Case {
        name: "lru-file-readtwice",
        threads: false,
        region: Region::Dd,
        random: false,
        share: (1, true),
        help: "two processes for each CPU read one sparse file, 4 KiB at a time",
    },
    Case {
        name: "lru-file-mmap-read-rand",
        threads: false,
        region: Region::OwnFile,
        random: true,
        share: (1, true),
        help: "processes read mapped sparse files of their own at random",
    },
    Case {
        name: "anon-wx-seq-mt",
        threads: true,
        region: Region::AnonShared(false),
        random: false,
        share: (2, false),
        help: "threads write the same memory, each all of it",
    },
    Case {
        name: "anon-w-seq-mt",
        threads: true,
        region: Region::Anon,
        random: false,
        share: (2, true),
        help: "threads write memory of their own",
    },
    Case {
        name: "anon-wx-rand-mt",
        threads: true,
        region: Region::AnonShared(false),
        random: true,
        share: (2, true),
        help: "threads write the same memory at random",
    },
    Case {
        name: "anon-w-rand",
        threads: false,
        region: Region::Anon,
        random: true,
        share: (2, true),
        help: "processes write memory of their own at random",
    },
    Case {
        name: "anon-w-rand-mt",
        threads: true,
        region: Region::Anon,
        random: true,
        share: (2, true),
        help: "threads write memory of their own at random",
    },
    Case {
        name: "anon-cow-rand",
        threads: false,
        region: Region::AnonShared(true),
        random: true,
        share: (2, true),
        help: "processes write at random to memory that their parent has filled",
    },
    Case {
        name: "anon-cow-rand-mt",
        threads: true,
        region: Region::AnonShared(true),
        random: true,
        share: (4, false),
        help: "a child's threads write at random to memory that its parent has filled",
    },
    Case {
        name: "shm-xread-seq",
        threads: false,
        region: Region::Shm(true),
        random: false,
        share: (2, false),
        help: "processes read one mapping of tmpfs, each all of it",
    },
    Case {
        name: "shm-xread-seq-mt",
        threads: true,
        region: Region::Shm(true),
        random: false,
        share: (2, false),
        help: "threads read one mapping of tmpfs, each all of it",
    },
    Case {
        name: "shm-pread-seq",
        threads: false,
        region: Region::Shm(false),
        random: false,
        share: (2, false),
        help: "processes map the same part of tmpfs, and read it",
    },
    Case {
        name: "msync",
        threads: false,
        region: Region::Sync(false),
        random: false,
        share: (2, true),
        help: "processes write mapped sparse files of their own, and sync them",
    },
    Case {
        name: "msync-mt",
        threads: true,
        region: Region::Sync(true),
        random: false,
        share: (2, false),
        help: "threads write one mapping of a sparse file, and sync it",
    },
    Case {
        name: "truncate",
        threads: false,
        region: Region::Truncate,
        random: false,
        share: (1, true),
        help: "processes truncate cached files to nothing, all at once",
    },
];

/// A case of vm-scalability, with its bytes and its tasks.
#[derive(Clone, Copy, Debug)]
pub struct VmScalability {
    case: &'static Case,
    bytes: u64,
    tasks: Option<u32>,
}

impl VmScalability {
    /// All names, with a line of help each.
    pub fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
        CASES.iter().map(|case| (case.name, case.help))
    }

    /// The case with that name. The module's text says what the bytes are.
    pub fn from_name(name: &str, bytes: u64) -> Option<VmScalability> {
        let case = CASES.iter().find(|case| case.name == name)?;
        Some(VmScalability { case, bytes: bytes.max(MIN_BYTES).next_multiple_of(PAGE), tasks: None })
    }

    /// With that many tasks instead of one for each CPU.
    pub fn with_tasks(self, tasks: Option<u32>) -> VmScalability {
        VmScalability { tasks: tasks.map(|tasks| tasks.clamp(1, MAX_THREADS)), ..self }
    }

    /// Returns an error, with the reason, if the case does not fit a machine with that much memory.
    pub fn suits(&self, memory: u64) -> Result<(), String> {
        if (self.bytes > memory) == self.overcommits() {
            return Ok(());
        }
        let (name, bytes) = (self.case.name, self.bytes);
        let wrong = if self.overcommits() {
            "its files fit in memory; use less with --memory"
        } else {
            "its regions do not fit in memory; use more with --memory"
        };
        Err(format!("{name}: {bytes} bytes, memory of {memory}: {wrong}"))
    }

    /// Whether all files together must be larger than memory.
    fn overcommits(&self) -> bool {
        matches!(self.case.region, Region::File(_) | Region::OwnFile | Region::Dd)
    }

    fn tasks<O: Os>(&self, os: &O) -> u32 {
        self.tasks.unwrap_or(os.cpus()).clamp(1, MAX_THREADS)
    }

    /// Pages of a task's region.
    fn pages(&self, tasks: u32) -> u64 {
        let (part, divided) = self.case.share;
        // The copies that children make need room in addition to the parent's pages.
        let copies = u64::from(self.case.region == Region::AnonShared(true) && !self.case.threads);
        let by = if divided { u64::from(tasks) + copies } else { 1 };
        (self.bytes / PAGE / part / by).max(1)
    }

    fn file(&self, number: u32) -> String {
        format!("{}-{number}", self.case.name)
    }

    fn open<O: Os>(&self, os: &mut O, number: u32, size: u64, writable: bool) -> Result<u32, Signal> {
        let in_memory = matches!(self.case.region, Region::Shm(_));
        let name = self.file(number);
        must(os.open(FileSpec { name: &name, size: if in_memory { size } else { 0 }, in_memory, writable }))
    }

    /// Create a file that is one hole. Returns a descriptor of the kind that the case maps.
    fn sparse<O: Os>(&self, os: &mut O, number: u32, size: u64, writable: bool) -> Result<u32, Signal> {
        let fd = self.open(os, number, size, true)?;
        must(os.ftruncate(fd, size))?;
        if writable {
            return Ok(fd);
        }
        must(os.close(fd))?;
        self.open(os, number, size, false)
    }

    /// Create what must exist before the tasks begin.
    fn prepare<O: Os>(&self, os: &mut O, tasks: u32) -> Result<(), Signal> {
        let len = self.pages(tasks) * PAGE;
        match self.case.region {
            Region::File(shared) | Region::Shm(shared) => {
                let size = if matches!(self.case.region, Region::File(_)) { self.bytes } else { 2 * len };
                let fd = self.sparse(os, 0, size, false)?;
                if shared {
                    let map = Map { addr: Some(SHARED), ..Map::file_shared(fd, len, Prot::READ) };
                    must(os.mmap(map))?;
                }
            }
            Region::AnonShared(populate) => {
                must(os.mmap(Map { addr: Some(SHARED), populate, ..Map::anonymous(len) }))?;
            }
            Region::Sync(true) => {
                let fd = self.sparse(os, 0, len, true)?;
                let map = Map::file_shared(fd, len, Prot::RW);
                must(os.mmap(Map { addr: Some(SHARED), populate: true, ..map }))?;
            }
            Region::Dd => {
                for file in 0..tasks / 2 {
                    self.sparse(os, file, len * 2, false)?;
                }
            }
            Region::Truncate => {
                for file in 0..tasks {
                    let fd = self.sparse(os, file, len, false)?;
                    must(os.fadvise(fd, 0, len, FileAdvice::Sequential))?;
                    must(os.pread(fd, 0, len))?;
                }
            }
            Region::OwnFile | Region::Anon | Region::Sync(false) => {}
        }
        Ok(())
    }

    /// Run task `task`, whose role is `TASK + task`.
    fn work<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let tasks = self.workers(os);
        os.barrier(START, tasks);
        let seed = os.seed();
        os.sleep(Rng::new(seed ^ DELAY_SEED).below(MAX_DELAY));
        let (pages, start) = (self.pages(tasks), os.now());
        let len = pages * PAGE;
        let touched = match self.case.region {
            Region::Dd => self.read(os, task / 2, 2 * len)?,
            Region::Truncate => {
                let fd = self.open(os, task, len, true)?;
                must(os.ftruncate(fd, 0))?;
                len
            }
            _ => {
                let at = self.map(os, task, len)?;
                let bytes = self.touch(os, at, pages)?;
                if matches!(self.case.region, Region::Sync(_)) {
                    must(os.msync(at, len))?;
                }
                bytes + len / 8
            }
        };
        os.progress(pages);
        os.rate(touched, (os.now() - start).max(1));
        Ok(())
    }

    /// Number of tasks that work: two readers for each CPU's file.
    fn workers<O: Os>(&self, os: &O) -> u32 {
        let tasks = self.tasks(os);
        if self.case.region == Region::Dd { 2 * tasks } else { tasks }
    }

    /// The address of a task's region, which is mapped first if it is not shared.
    fn map<O: Os>(&self, os: &mut O, task: u32, len: u64) -> Result<u64, Signal> {
        let map = match self.case.region {
            Region::File(true) | Region::Shm(true) | Region::AnonShared(_) | Region::Sync(true) => {
                return Ok(SHARED);
            }
            Region::File(false) | Region::Shm(false) => {
                let fd = self.open(os, 0, 2 * len, false)?;
                Map::file_shared(fd, len, Prot::READ)
            }
            Region::OwnFile => Map::file_shared(self.sparse(os, task, len, false)?, len, Prot::READ),
            Region::Sync(false) => {
                let fd = self.sparse(os, task, len, true)?;
                Map {
                    populate: true,
                    source: MapSource::File { fd, offset: 0, shared: true },
                    ..Map::anonymous(len)
                }
            }
            Region::Anon | Region::Dd | Region::Truncate => Map::anonymous(len),
        };
        must(os.mmap(map))
    }

    /// Touch a region once. Returns the bytes touched.
    fn touch<O: Os>(&self, os: &mut O, at: u64, pages: u64) -> Result<u64, Signal> {
        let writes = matches!(self.case.region, Region::Anon | Region::AnonShared(_) | Region::Sync(_));
        let mode = if writes { AccessKind::Store } else { AccessKind::Load };
        if self.case.random {
            let mut rng = Rng::new(os.seed());
            let accesses = pages * if self.overcommits() { RANDOM_FAULTS } else { RANDOM };
            for _ in 0..accesses {
                let word = rng.below(pages * u64::from(WORDS));
                os.access(Access { addr: at + word * 8, count: 1, mode })?;
                os.compute(LOOP);
            }
            return Ok(accesses * 8);
        }
        for page in 0..pages {
            os.access(Access { addr: at + page * PAGE, count: WORDS, mode })?;
            os.compute(LOOP * u64::from(WORDS));
        }
        Ok(pages * PAGE)
    }

    /// Read a file as `dd` does.
    fn read<O: Os>(&self, os: &mut O, file: u32, size: u64) -> Result<u64, Signal> {
        let fd = self.open(os, file, size, false)?;
        let mut at = 0;
        while at < size {
            at += must(os.pread(fd, at, BLOCK))?.max(1);
        }
        Ok(size)
    }

    /// Start all tasks, in threads or processes, and wait for them.
    fn start<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let roles = TASK..TASK + self.workers(os);
        let started: Vec<_> = roles
            .map(|role| must(if self.case.threads { os.spawn(role) } else { os.fork(role) }))
            .collect::<Result<_, _>>()?;
        started.into_iter().for_each(|task| os.join(task));
        Ok(())
    }
}

impl Program for VmScalability {
    fn name(&self) -> &str {
        self.case.name
    }

    fn footprint(&self) -> u64 {
        self.bytes
    }

    /// # Panics
    /// If memory has the wrong size for the case.
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if let Some(task) = role.checked_sub(TASK) {
            return self.work(os, task);
        }
        if role == HOST {
            return self.start(os);
        }
        if let Err(wrong) = self.suits(os.memory()) {
            panic!("{wrong}");
        }
        let tasks = self.workers(os);
        self.prepare(os, tasks)?;
        // usemem forks before it starts threads.
        if self.case.threads {
            let host = must(os.fork(HOST))?;
            os.join(host);
            return Ok(());
        }
        self.start(os)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list has nineteen; `lru-file-mmap-read` is another program's.
    #[test]
    fn all_cases_of_the_series_are_listed() {
        assert_eq!(CASES.len(), 18);
        let anon = VmScalability::from_name("anon-w-seq-mt", 64 << 20).unwrap();
        assert_eq!(anon.pages(8), (64 << 20) / 2 / 8 / PAGE);
        let copies = VmScalability::from_name("anon-cow-rand", 72 << 20).unwrap();
        assert_eq!(copies.pages(8), (72 << 20) / 2 / 9 / PAGE, "the parent's pages need room, too");
        let files = VmScalability::from_name("mmap-xread-seq-mt", 64 << 20).unwrap();
        assert_eq!((files.pages(8), files.overcommits()), ((64 << 20) / PAGE, true));
        assert!(VmScalability::from_name("lru-file-mmap-read", 1).is_none());
    }
}

//! The trait [`Os`]: what a program may ask of the system it runs on.
//!
//! Rules that every implementation keeps:
//! - Addresses are virtual byte addresses of the calling process; lengths are bytes.
//! - A [`Program`] is immutable data shared by all of its tasks. What a task does is chosen by its [`Role`], a
//!   number that `spawn` and `fork` pass on: this needs no closures, so it also works across a real `fork`.
//! - Every call may let other tasks run. Between calls a task is never interrupted in the simulator.

pub use abi::{
    AccessKind, Advice, Errno, FileAdvice, Group, GroupLimits, Map, MapSource, MemPolicy, PolicyMode, Prot,
    Remap,
};

/// Which part of a program a task plays; role 0 is the first task.
pub type Role = u32;

/// A task (thread or child process) that can be joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct TaskHandle(pub u32);

/// A run of accesses inside one page: `count` loads, stores or fetches beginning at `addr`.
///
/// A run never crosses a 4 KiB boundary; a sequential pass through a page is one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Byte address of the first access.
    pub addr: u64,
    /// Number of accesses, at least 1.
    pub count: u32,
    /// What each of them is.
    pub mode: AccessKind,
}

/// A file that a program wants. Files are named so that tasks and processes can share them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSpec<'a> {
    /// Name, unique in the machine.
    pub name: &'a str,
    /// Size in bytes when it is created; ignored if it exists.
    pub size: u64,
    /// `true`: lives in memory and swap only (shmem, tmpfs); `false`: lives on the file device.
    pub in_memory: bool,
    /// Open for writing.
    pub writable: bool,
}

/// What kills a task that does not expect it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// No mapping there, or the mapping does not allow it.
    Segv {
        /// The address touched.
        addr: u64,
    },
    /// The mapping is there but the file has no such page.
    Bus {
        /// The address touched.
        addr: u64,
    },
    /// The system ran out of memory and chose this process.
    Kill,
}

/// The system, as one task of a program sees it.
pub trait Os {
    // --- memory -------------------------------------------------------------------------------------------

    /// Touch memory. Returns the signal that the access raised, if any.
    fn access(&mut self, access: Access) -> Result<(), Signal>;

    /// One load.
    #[inline]
    fn load(&mut self, addr: u64) -> Result<(), Signal> {
        self.access(Access { addr, count: 1, mode: AccessKind::Load })
    }

    /// One store.
    #[inline]
    fn store(&mut self, addr: u64) -> Result<(), Signal> {
        self.access(Access { addr, count: 1, mode: AccessKind::Store })
    }

    /// Execute `instructions` that touch no memory worth naming.
    fn compute(&mut self, instructions: u64);

    /// Map memory; returns its address.
    fn mmap(&mut self, map: Map) -> Result<u64, Errno>;
    /// Unmap `[addr, addr + len)`; holes are fine.
    fn munmap(&mut self, addr: u64, len: u64) -> Result<(), Errno>;
    /// Change rights.
    fn mprotect(&mut self, addr: u64, len: u64, prot: Prot) -> Result<(), Errno>;
    /// Move or resize; returns the new address.
    fn mremap(&mut self, remap: Remap) -> Result<u64, Errno>;
    /// Give advice.
    fn madvise(&mut self, addr: u64, len: u64, advice: Advice) -> Result<(), Errno>;
    /// Ask that flushes for this process's pages are never deferred (`false`: as the system's policy says).
    fn never_defer_flushes(&mut self, never: bool);
    /// Lock pages in memory.
    fn mlock(&mut self, addr: u64, len: u64) -> Result<(), Errno>;
    /// Undo `mlock`.
    fn munlock(&mut self, addr: u64, len: u64) -> Result<(), Errno>;
    /// Write dirty file pages of the range back and wait for it (MS_SYNC).
    fn msync(&mut self, addr: u64, len: u64) -> Result<(), Errno>;

    /// Have the pages that a range shows moved to a node of the machine (move_pages with MPOL_MF_MOVE_ALL); `None`: to
    /// other frames of the node that each is on. Holes are fine. Returns how many pages were to be moved and could not
    /// be.
    fn move_pages(&mut self, addr: u64, len: u64, node: Option<u32>) -> Result<u64, Errno> {
        let _ = (addr, len, node);
        Err(Errno::NoSys)
    }

    /// Have all pages of this process that are on nodes of one set moved to nodes of another (bit n: node n). Returns
    /// how many could not be.
    fn migrate_pages(&mut self, from: u64, to: u64) -> Result<u64, Errno> {
        let _ = (from, to);
        Err(Errno::NoSys)
    }

    /// Say where memory for a range comes from. `moving`: what is elsewhere goes there (MPOL_MF_MOVE_ALL). Returns how
    /// many pages were to be moved and could not be.
    fn mbind(&mut self, addr: u64, len: u64, policy: MemPolicy, moving: bool) -> Result<u64, Errno> {
        let _ = (addr, len, policy, moving);
        Err(Errno::NoSys)
    }

    /// Say where memory for this process comes from, in ranges of which nothing is said. Children inherit it.
    fn set_mempolicy(&mut self, policy: MemPolicy) -> Result<(), Errno> {
        let _ = policy;
        Err(Errno::NoSys)
    }

    // --- files --------------------------------------------------------------------------------------------

    /// Open a file, creating it if it does not exist; returns a descriptor of this process.
    fn open(&mut self, spec: FileSpec<'_>) -> Result<u32, Errno>;
    /// Close a descriptor. Mappings of the file stay.
    fn close(&mut self, fd: u32) -> Result<(), Errno>;
    /// Read at an offset through the page cache; returns bytes read (short at end of file).
    fn pread(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno>;
    /// Write at an offset through the page cache, growing the file if needed; returns bytes written.
    fn pwrite(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno>;
    /// Write the file's dirty pages back and wait.
    fn fsync(&mut self, fd: u32) -> Result<(), Errno>;
    /// Set the size.
    fn ftruncate(&mut self, fd: u32, size: u64) -> Result<(), Errno>;
    /// Give advice about a file range.
    fn fadvise(&mut self, fd: u32, offset: u64, len: u64, advice: FileAdvice) -> Result<(), Errno>;

    // --- tasks --------------------------------------------------------------------------------------------

    /// Start a thread of this process in `role`.
    fn spawn(&mut self, role: Role) -> Result<TaskHandle, Errno>;
    /// Start a child process (memory copied on write, descriptors shared) in `role`.
    fn fork(&mut self, role: Role) -> Result<TaskHandle, Errno>;
    /// Wait until a task that this task started has ended.
    fn join(&mut self, task: TaskHandle);
    /// Sleep for `nanos` of the machine's time.
    fn sleep(&mut self, nanos: u64);
    /// Wait until `tasks` tasks have come to barrier `id`.
    fn barrier(&mut self, id: u32, tasks: u32);
    /// The same, without sleeping: the CPU goes on executing the program. A machine may sleep all the same.
    fn spin_barrier(&mut self, id: u32, tasks: u32) {
        self.barrier(id, tasks);
    }

    // --- groups and knobs -----------------------------------------------------------------------------------

    /// Make a control group below `parent`.
    fn group_create(&mut self, parent: Group, limits: GroupLimits) -> Result<Group, Errno> {
        let _ = (parent, limits);
        Err(Errno::NoSys)
    }

    /// Change the limits of a group other than the root.
    fn group_limit(&mut self, group: Group, limits: GroupLimits) -> Result<(), Errno> {
        let _ = (group, limits);
        Err(Errno::NoSys)
    }

    /// Move this process into a group. What it has charged so far stays where it was charged; children are born in the
    /// group.
    fn group_enter(&mut self, group: Group) -> Result<(), Errno> {
        let _ = group;
        Err(Errno::NoSys)
    }

    /// Remove a group that no process and no group is in. Its charges go to its parent.
    fn group_remove(&mut self, group: Group) -> Result<(), Errno> {
        let _ = group;
        Err(Errno::NoSys)
    }

    /// Change a knob of the running machine by the name that sysctl or sysfs gives it.
    fn set_knob(&mut self, name: &str, value: u64) -> Result<(), Errno> {
        let _ = (name, value);
        Err(Errno::NoSys)
    }

    /// Give a group other than the root, and groups that are made below it later, a value of their own for a knob: for
    /// `vm.swappiness` or `reclaim.policy`.
    fn group_knob(&mut self, group: Group, name: &str, value: u64) -> Result<(), Errno> {
        let _ = (group, name, value);
        Err(Errno::NoSys)
    }

    // --- observing ----------------------------------------------------------------------------------------

    /// Machine time in nanoseconds.
    fn now(&self) -> u64;
    /// Number of CPUs of the machine.
    fn cpus(&self) -> u32;
    /// Bytes of memory that the machine manages.
    fn memory(&self) -> u64;
    /// A seed for this task's random choices: a function of the run's seed and the task.
    fn seed(&self) -> u64;
    /// Count `units` of the program's own work as done. Two runs that report the same did the same work.
    fn progress(&mut self, units: u64);
    /// Note what this task has come to in all, by the program's own measure: so many bytes in so much time.
    fn rate(&mut self, bytes: u64, nanos: u64) {
        let _ = (bytes, nanos);
    }
    /// Note how long one of the program's own operations took, in nanoseconds.
    fn took(&mut self, nanos: u64) {
        let _ = nanos;
    }
}

/// A workload.
pub trait Program {
    /// A short name for tables.
    fn name(&self) -> &str;
    /// Bytes of distinct memory and file pages that it touches, if it knows: `--memory 50%` is a share of this.
    fn footprint(&self) -> u64;
    /// Act as the task `role`. Role 0 runs first; the run ends when all tasks have ended.
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal>;
}

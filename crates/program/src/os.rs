//! The trait [`Os`]: what a program may ask of the system that it runs on.
//!
//! Every implementation follows these rules:
//! - Addresses are virtual byte addresses of the calling process; lengths are bytes.
//! - A [`Program`] is immutable data that all of its tasks share. Its [`Role`], a number that `spawn` and
//!   `fork` pass on, decides what a task does: this needs no closures, so it also works across a real `fork`.
//! - Every call may let other tasks run. Between calls a task is never interrupted in the simulator.

pub use abi::{
    AccessKind, Advice, Buffer, Call, Errno, FileAdvice, Group, GroupLimits, Map, MapSource, MemPolicy,
    PolicyMode, Prot, Remap, Role, Signal, Text,
};

use abi::Packed;
use abi::call::unpair;

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
    /// The kind of these accesses.
    pub mode: AccessKind,
}

/// A file that a program opens. Files have names so that tasks and processes can share them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSpec<'a> {
    /// Name, unique in the machine.
    pub name: &'a str,
    /// Size in bytes when it is created; ignored if it exists.
    pub size: u64,
    /// `true`: in memory and swap only (shmem, tmpfs); `false`: on the file device.
    pub in_memory: bool,
    /// Open for writing.
    pub writable: bool,
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

    /// Execute `instructions` that touch no memory worth modelling.
    fn compute(&mut self, instructions: u64);

    /// Make a system call. Programs use the methods below, which call this; a machine that needs to know more
    /// about one of them overrides that method.
    fn call(&mut self, call: Call<'_>) -> Result<u64, Errno> {
        let _ = call;
        Err(Errno::NoSys)
    }

    /// Make a call that is given as a value, through the method that a machine may have for it. Files are opened and
    /// tasks are started by their methods alone.
    fn make(&mut self, call: Call<'_>) -> Result<u64, Errno> {
        match call {
            Call::Mmap(map) => self.mmap(map),
            Call::Munmap(addr, len) => self.munmap(addr, len).map(|()| 0),
            Call::Mprotect(addr, len, prot) => self.mprotect(addr, len, prot).map(|()| 0),
            Call::Mremap(remap) => self.mremap(remap),
            Call::Madvise(addr, len, advice) => self.madvise(addr, len, advice).map(|()| 0),
            Call::Mlock(addr, len) => self.mlock(addr, len).map(|()| 0),
            Call::Munlock(addr, len) => self.munlock(addr, len).map(|()| 0),
            Call::Msync(addr, len) => self.msync(addr, len).map(|()| 0),
            Call::Close(fd) => self.close(fd).map(|()| 0),
            Call::Pread(fd, buffer, offset) => self.pread(fd, offset, buffer.len),
            Call::Pwrite(fd, buffer, offset) => self.pwrite(fd, offset, buffer.len),
            Call::Fsync(fd) => self.fsync(fd).map(|()| 0),
            Call::Ftruncate(fd, size) => self.ftruncate(fd, size).map(|()| 0),
            Call::Fadvise(fd, offset, len, advice) => self.fadvise(fd, offset, len, advice).map(|()| 0),
            Call::GroupCreate(parent, limits) => {
                self.group_create(parent, limits).map(|group| group.0.into())
            }
            Call::GroupLimit(group, limits) => self.group_limit(group, limits).map(|()| 0),
            Call::GroupEnter(group) => self.group_enter(group).map(|()| 0),
            Call::GroupRemove(group) => self.group_remove(group).map(|()| 0),
            _ => self.call(call),
        }
    }

    /// Map memory; returns its address.
    fn mmap(&mut self, map: Map) -> Result<u64, Errno> {
        self.call(Call::Mmap(map))
    }
    /// Unmap `[addr, addr + len)`; holes are fine.
    fn munmap(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        self.call(Call::Munmap(addr, len)).map(drop)
    }
    /// Change rights.
    fn mprotect(&mut self, addr: u64, len: u64, prot: Prot) -> Result<(), Errno> {
        self.call(Call::Mprotect(addr, len, prot)).map(drop)
    }
    /// Move or resize; returns the new address.
    fn mremap(&mut self, remap: Remap) -> Result<u64, Errno> {
        self.call(Call::Mremap(remap))
    }
    /// Give advice.
    fn madvise(&mut self, addr: u64, len: u64, advice: Advice) -> Result<(), Errno> {
        self.call(Call::Madvise(addr, len, advice)).map(drop)
    }
    /// Ask that flushes for this process's pages are never deferred (`false`: the system's policy decides).
    fn never_defer_flushes(&mut self, never: bool) {
        let _ = self.call(Call::NeverDefer(never));
    }
    /// Lock pages in memory.
    fn mlock(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        self.call(Call::Mlock(addr, len)).map(drop)
    }
    /// Undo `mlock`.
    fn munlock(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        self.call(Call::Munlock(addr, len)).map(drop)
    }
    /// Write dirty file pages of the range back and wait for it (MS_SYNC).
    fn msync(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        self.call(Call::Msync(addr, len)).map(drop)
    }
    /// Move the pages of a range to a node of the machine (move_pages with MPOL_MF_MOVE_ALL); `None`: to
    /// other frames of the node that each is on. Holes are fine. Returns how many pages could not be moved.
    fn move_pages(&mut self, addr: u64, len: u64, node: Option<u32>) -> Result<u64, Errno> {
        self.call(Call::MovePages(addr, len, node))
    }
    /// Move all pages of this process from the nodes of one set to the nodes of another (bit n: node n).
    /// Returns how many pages could not be moved.
    fn migrate_pages(&mut self, from: u64, to: u64) -> Result<u64, Errno> {
        self.call(Call::MigratePages(from, to))
    }
    /// Set the memory policy of a range. `moving`: also move pages that are elsewhere (MPOL_MF_MOVE_ALL).
    /// Returns how many pages could not be moved.
    fn mbind(&mut self, addr: u64, len: u64, policy: MemPolicy, moving: bool) -> Result<u64, Errno> {
        self.call(Call::Mbind(addr, len, policy, moving))
    }
    /// Set the memory policy of this process, for ranges without one. Children inherit it.
    fn set_mempolicy(&mut self, policy: MemPolicy) -> Result<(), Errno> {
        self.call(Call::SetMempolicy(policy)).map(drop)
    }

    // --- files --------------------------------------------------------------------------------------------

    /// Open a file, creating it if it does not exist; returns a descriptor of this process.
    fn open(&mut self, spec: FileSpec<'_>) -> Result<u32, Errno> {
        let FileSpec { name, size, in_memory, writable } = spec;
        self.call(Call::Open(Text::Said(name), size, in_memory, writable)).map(|opened| unpair(opened).0)
    }
    /// Close a descriptor. Mappings of the file stay.
    fn close(&mut self, fd: u32) -> Result<(), Errno> {
        self.call(Call::Close(fd)).map(drop)
    }
    /// Read at an offset through the page cache; returns bytes read (short at end of file).
    fn pread(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        self.call(Call::Pread(fd, Buffer::anywhere(len), offset))
    }
    /// Write at an offset through the page cache, growing the file if needed; returns bytes written.
    fn pwrite(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        self.call(Call::Pwrite(fd, Buffer::anywhere(len), offset))
    }
    /// Write the file's dirty pages back and wait.
    fn fsync(&mut self, fd: u32) -> Result<(), Errno> {
        self.call(Call::Fsync(fd)).map(drop)
    }
    /// Set the size.
    fn ftruncate(&mut self, fd: u32, size: u64) -> Result<(), Errno> {
        self.call(Call::Ftruncate(fd, size)).map(drop)
    }
    /// Give advice about a file range.
    fn fadvise(&mut self, fd: u32, offset: u64, len: u64, advice: FileAdvice) -> Result<(), Errno> {
        self.call(Call::Fadvise(fd, offset, len, advice)).map(drop)
    }

    // --- tasks --------------------------------------------------------------------------------------------

    /// Start a thread of this process in `role`.
    fn spawn(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        self.call(Call::Spawn(role)).map(|task| TaskHandle(task as u32))
    }
    /// Start a child process (memory copied on write, descriptors shared) in `role`.
    fn fork(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        self.call(Call::Fork(role)).map(|started| TaskHandle(unpair(started).0))
    }
    /// Wait until a task that this task started has ended.
    fn join(&mut self, task: TaskHandle) {
        let _ = self.call(Call::Join(task.0));
    }
    /// Sleep for `nanos` of the machine's time.
    fn sleep(&mut self, nanos: u64) {
        let _ = self.call(Call::Sleep(nanos));
    }
    /// Wait until `tasks` tasks have arrived at barrier `id`.
    fn barrier(&mut self, id: u32, tasks: u32) {
        let _ = self.call(Call::Barrier(id, tasks));
    }
    /// Like [`Os::barrier`], but without sleeping: the CPU keeps executing the program. A machine may sleep
    /// anyway.
    fn spin_barrier(&mut self, id: u32, tasks: u32) {
        self.barrier(id, tasks);
    }

    // --- groups and knobs -----------------------------------------------------------------------------------

    /// Create a control group below `parent`.
    fn group_create(&mut self, parent: Group, limits: GroupLimits) -> Result<Group, Errno> {
        self.call(Call::GroupCreate(parent, limits)).map(|group| Group(group as u32))
    }
    /// Change the limits of a group other than the root.
    fn group_limit(&mut self, group: Group, limits: GroupLimits) -> Result<(), Errno> {
        self.call(Call::GroupLimit(group, limits)).map(drop)
    }
    /// Move this process into a group. Its existing charges stay where they are; children start in the group.
    fn group_enter(&mut self, group: Group) -> Result<(), Errno> {
        self.call(Call::GroupEnter(group)).map(drop)
    }
    /// Remove a group without processes and child groups. Its charges move to its parent.
    fn group_remove(&mut self, group: Group) -> Result<(), Errno> {
        self.call(Call::GroupRemove(group)).map(drop)
    }
    /// Change a knob of the running machine by the name that sysctl or sysfs gives it.
    fn set_knob(&mut self, name: &str, value: u64) -> Result<(), Errno> {
        self.call(Call::SetKnob(Text::Said(name), value)).map(drop)
    }
    /// Set a group's own value for a knob, `vm.swappiness` or `reclaim.policy`, for a group other than the
    /// root. Groups created below it later inherit it.
    fn group_knob(&mut self, group: Group, name: &str, value: u64) -> Result<(), Errno> {
        self.call(Call::GroupKnob(group, Text::Said(name), value)).map(drop)
    }

    // --- observing ----------------------------------------------------------------------------------------

    /// Machine time in nanoseconds.
    fn now(&self) -> u64;
    /// Number of CPUs of the machine.
    fn cpus(&self) -> u32;
    /// Bytes of memory that the machine manages.
    fn memory(&self) -> u64;
    /// Whether devices may fail: an access may then raise SIGBUS, and a call end with EIO, without the program's fault.
    fn devices_may_fail(&self) -> bool {
        false
    }
    /// A seed for this task's random choices: a function of the run's seed and the task.
    fn seed(&self) -> u64;
    /// Count `units` of the program's own work as done. Two runs with the same count did the same work.
    fn progress(&mut self, units: u64);
    /// A page of this process, at this address, now holds what compressors make so much of.
    fn content(&mut self, addr: u64, packed: Packed) {
        let _ = (addr, packed);
    }
    /// A page of this process, at this address, will hold what compressors make so much of once it is stored to.
    fn first_content(&mut self, addr: u64, packed: Packed) {
        let _ = (addr, packed);
    }
    /// Report the task's total by the program's own measure: `bytes` in `nanos`.
    fn rate(&mut self, bytes: u64, nanos: u64) {
        let _ = (bytes, nanos);
    }
    /// Report how long one of the program's own operations took, in nanoseconds.
    fn took(&mut self, nanos: u64) {
        let _ = nanos;
    }
}

/// A workload.
pub trait Program {
    /// A short name for tables.
    fn name(&self) -> &str;
    /// Bytes of distinct memory and file pages that it touches, if known: `--memory 50%` is a share of this.
    fn footprint(&self) -> u64;
    /// Run as the task `role`. Role 0 runs first; the run ends when all tasks have ended.
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal>;
}

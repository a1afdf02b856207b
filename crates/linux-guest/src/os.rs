//! The trait `Os` on Linux: every call is a real call of the kernel, every access a real access.

use crate::packed::{self, Contents};
use crate::report;
use crate::sys::{self, nr};
use crate::task::RunState;
use crate::touch;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;
use program::probe::{Probe, Times};
use program::{
    Access, AccessKind, Buffer, Call, Errno, FileSpec, Group, GroupLimits, Map, Os, Packed, Program, Remap,
    Role, Signal, TaskHandle,
};

const PAGE: u64 = 4096;
/// Addresses that the guest uses itself and a program never does. The kernel's own choices for mappings are
/// above them.
const OWN: core::ops::Range<u64> = 0x6000_0000_0000..0x7000_0000_0000;
/// Bytes that one call reads, writes or allocates.
const LARGEST_TRANSFER: usize = 1 << 20;
/// Name of a file until it has its size and its blocks: a task that opened it by its own name before would find it
/// empty.
const UNFINISHED: &str = ".unfinished";
/// The number of no program's process.
const PROBES_PROCESS: u64 = u64::MAX;
/// Where control groups are mounted.
pub const GROUPS: &str = "/groups";

/// pread or pwrite.
type Transfer = fn(u32, Buffer, u64) -> Call<'static>;

/// One task's view of the system.
struct LinuxOs {
    state: &'static RunState,
    task: u32,
    transfer: Vec<u8>,
    accesses: u64,
    progress: u64,
    computed: u64,
    /// What pages of its process, which has this number, hold, if that counts.
    contents: Option<(&'static Contents, u64)>,
}

/// Run the program as one task, and add the task's sums to those of the run.
pub fn run(state: &'static RunState, task: u32, role: Role) {
    let mut os = LinuxOs::new(state, task);
    os.contents = state.contents.as_ref().map(|contents| (contents, contents.process()));
    let signal = state.program.run(&mut os, role).err();
    if task == 0 && state.contents.is_some() {
        let now = packed::levels();
        state.levels.with(|levels| *levels = now);
    }
    if let Some(note) = state.program.note(role) {
        report::print(format_args!("@note {note}"));
    }
    if let Some(signal) = signal
        && !state.program.may_be_oom_killed()
    {
        state.signals.fetch_add(1, SeqCst);
        match signal {
            Signal::Segv { addr } => report::print(format_args!("@signal task {task}: SIGSEGV at {addr:#x}")),
            Signal::Bus { addr } => report::print(format_args!("@signal task {task}: SIGBUS at {addr:#x}")),
            Signal::Kill => report::print(format_args!("@signal task {task}: SIGKILL")),
        }
    }
    state.accesses.fetch_add(os.accesses, SeqCst);
    state.progress.fetch_add(os.progress, SeqCst);
    state.computed.fetch_add(os.computed, SeqCst);
}

/// Measure what this machine takes for the kinds of work that the simulated twin's costs are made of.
pub fn probe(state: &'static RunState) -> Times {
    let probe = if state.contents.is_some() { Probe::of_packing() } else { Probe::default() };
    // It touches only memory that it has mapped.
    let _ = probe.run(&mut LinuxOs::new(state, 0), 0);
    probe.times()
}

impl LinuxOs {
    fn new(state: &'static RunState, task: u32) -> LinuxOs {
        LinuxOs { state, task, transfer: Vec::new(), accesses: 0, progress: 0, computed: 0, contents: None }
    }

    /// Transfer `len` bytes between a file and a buffer of the guest.
    fn transfer(&mut self, call: Transfer, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let room = len.min(LARGEST_TRANSFER as u64) as usize;
        if self.transfer.len() < room {
            self.transfer.resize(room, 0);
        }
        let mut done = 0;
        while done < len {
            let part = (len - done).min(LARGEST_TRANSFER as u64);
            let buffer = Buffer { addr: self.transfer.as_mut_ptr() as u64, len: part };
            // SAFETY: the kernel stays within the buffer.
            let got = unsafe { sys::make(call(fd, buffer, offset + done)) }?;
            done += got;
            if got < part {
                break;
            }
        }
        Ok(done)
    }
}

/// Allocate a file's blocks on its device and write zeroes past the page cache, so that reads do real I/O.
pub fn allocate_blocks(fd: u32, size: u64) -> Result<(), sys::Code> {
    let zeroes = vec![[0u128; PAGE as usize / 16]; LARGEST_TRANSFER / PAGE as usize + 1];
    // Direct writes need aligned memory and whole pages.
    let start = (zeroes.as_ptr() as u64).next_multiple_of(PAGE);
    // SAFETY: the call accesses no memory.
    unsafe { sys::call(nr::FALLOCATE, [fd.into(), 0, 0, size.next_multiple_of(PAGE)]) }?;
    let mut at = 0;
    while at < size.next_multiple_of(PAGE) {
        let part = (size.next_multiple_of(PAGE) - at).min(LARGEST_TRANSFER as u64);
        // SAFETY: the kernel reads the zeroes.
        at += unsafe { sys::make(Call::Pwrite(fd, Buffer { addr: start, len: part }, at)) }?;
    }
    // SAFETY: the call accesses no memory.
    unsafe { sys::make(Call::Ftruncate(fd, size)) }.map(drop)
}

impl RunState {
    /// Make the files that the program finds, and wait until the disk has them: what the file system writes for them
    /// is no work of the run.
    pub fn make_files(&self) -> Result<(), sys::Code> {
        for spec in self.program.files() {
            sys::close(self.open(spec)?)?;
        }
        self.created_kib.store(0, SeqCst);
        // SAFETY: the call accesses no memory.
        unsafe { sys::call(nr::SYNC, []) }.map(drop)
    }

    fn open(&self, spec: FileSpec<'_>) -> Result<u32, sys::Code> {
        let folder = if spec.in_memory { "/shm" } else { "/files" };
        let path = format!("{folder}/{}", spec.name.replace('/', "_"));
        let flags = if spec.writable { sys::O_RDWR } else { sys::O_RDONLY };
        match sys::open(&path, flags) {
            Err(sys::ENOENT) => {}
            other => return other,
        }
        self.creation.with(|()| {
            // Another task may have created it since.
            if let Ok(fd) = sys::open(&path, flags) {
                return Ok(fd);
            }
            let direct = if spec.in_memory { 0 } else { sys::O_DIRECT };
            let unfinished = format!("{folder}/{UNFINISHED}");
            let fd = sys::open(&unfinished, sys::O_RDWR | sys::O_CREAT | direct)?;
            if spec.in_memory {
                // SAFETY: the call accesses no memory.
                unsafe { sys::make(Call::Ftruncate(fd, spec.size)) }?;
            } else if spec.size > 0 {
                allocate_blocks(fd, spec.size)?;
                self.created_kib.fetch_add(spec.size.next_multiple_of(PAGE) / 1024, SeqCst);
            }
            sys::close(fd)?;
            sys::rename(&unfinished, &path)?;
            sys::open(&path, flags)
        })
    }
}

impl Os for LinuxOs {
    #[inline]
    fn access(&mut self, access: Access) -> Result<(), Signal> {
        self.accesses += u64::from(access.count);
        if OWN.contains(&access.addr) {
            return Err(Signal::Segv { addr: access.addr });
        }
        let page = access.addr & !(PAGE - 1);
        let stores = self.contents.filter(|_| access.mode == AccessKind::Store);
        let words = stores.and_then(|(contents, process)| contents.words(process, page / PAGE));
        for i in 0..u64::from(access.count) {
            let addr = page | (access.addr + 8 * i) & (PAGE - 8);
            match access.mode {
                AccessKind::Load | AccessKind::Fetch => touch::load(addr).map(drop)?,
                AccessKind::Store if self.contents.is_some() => packed::store(addr, words.as_ref())?,
                AccessKind::Store => touch::store(addr, addr)?,
            }
        }
        Ok(())
    }

    fn compute(&mut self, instructions: u64) {
        self.computed += instructions;
        // Two instructions an iteration.
        for i in 0..instructions / 2 {
            core::hint::black_box(i);
        }
    }

    fn mmap(&mut self, map: Map) -> Result<u64, Errno> {
        if map.addr.is_some_and(|addr| addr < OWN.end && addr.saturating_add(map.len) > OWN.start) {
            return Err(Errno::NoMem);
        }
        self.call(Call::Mmap(map))
    }

    fn mremap(&mut self, remap: Remap) -> Result<u64, Errno> {
        // Linux wants both flags for a move to a given place.
        let may_move = remap.may_move || remap.fixed.is_some();
        self.call(Call::Mremap(Remap { may_move, ..remap }))
    }

    /// Calls that Linux has in the same form.
    fn call(&mut self, call: Call<'_>) -> Result<u64, Errno> {
        // SAFETY: the call changes only the program's memory; the check in `mmap` keeps the guest's own out.
        Ok(unsafe { sys::make(call) }?)
    }

    fn open(&mut self, spec: FileSpec<'_>) -> Result<u32, Errno> {
        Ok(self.state.open(spec)?)
    }

    fn pread(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        self.transfer(Call::Pread, fd, offset, len)
    }

    fn pwrite(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        self.transfer(Call::Pwrite, fd, offset, len)
    }

    fn spawn(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        Ok(self.state.start(role, false, run).map(TaskHandle)?)
    }

    fn fork(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        Ok(self.state.start(role, true, run).map(TaskHandle)?)
    }

    fn join(&mut self, task: TaskHandle) {
        self.state.join(task.0);
    }

    fn sleep(&mut self, nanos: u64) {
        sys::sleep(nanos);
    }

    fn barrier(&mut self, id: u32, tasks: u32) {
        self.state.barrier(id, tasks);
    }

    fn group_create(&mut self, parent: Group, limits: GroupLimits) -> Result<Group, Errno> {
        // A group with processes must not have child groups, except for the root.
        if parent != Group::ROOT {
            return Err(Errno::NoSys);
        }
        sys::write_file(&format!("{GROUPS}/cgroup.subtree_control"), "+memory")?;
        let group = Group(self.state.groups.fetch_add(1, SeqCst) + 1);
        sys::mkdir(&folder(group))?;
        self.group_limit(group, limits)?;
        Ok(group)
    }

    fn group_limit(&mut self, group: Group, limits: GroupLimits) -> Result<(), Errno> {
        let GroupLimits { max, high, low, min, swap_max } = limits;
        for (file, value) in
            [("max", max), ("high", high), ("low", low), ("min", min), ("swap.max", swap_max)]
        {
            let text = if value == u64::MAX { "max".into() } else { format!("{value}") };
            sys::write_file(&format!("{}/memory.{file}", folder(group)), &text)?;
        }
        Ok(())
    }

    fn group_enter(&mut self, group: Group) -> Result<(), Errno> {
        Ok(sys::write_file(&format!("{}/cgroup.procs", folder(group)), "0")?)
    }

    fn group_remove(&mut self, group: Group) -> Result<(), Errno> {
        Ok(sys::on_path(nr::RMDIR, &folder(group))?)
    }

    fn now(&self) -> u64 {
        sys::now()
    }

    fn cpus(&self) -> u32 {
        self.state.cpus
    }

    fn memory(&self) -> u64 {
        self.state.memory
    }

    fn seed(&self) -> u64 {
        let [seed, first] = self.state.seed;
        program::rng::task_seed(seed, first as u32 + self.task)
    }

    fn progress(&mut self, units: u64) {
        self.progress += units;
    }

    fn content(&mut self, addr: u64, packed: Packed) {
        if let Some(contents) = &self.state.contents {
            // Of the probe, only what it tells of is to have content.
            let (_, process) = *self.contents.get_or_insert((contents, PROBES_PROCESS));
            contents.tell(process, addr, packed);
        }
    }

    fn first_content(&mut self, addr: u64, packed: Packed) {
        if let Some((contents, process)) = self.contents {
            contents.tell(process, addr, packed);
        }
    }
}

/// The directory of a group: all groups are below the root and have their number as a name.
fn folder(group: Group) -> String {
    if group == Group::ROOT {
        return GROUPS.into();
    }
    format!("{GROUPS}/{}", group.0)
}

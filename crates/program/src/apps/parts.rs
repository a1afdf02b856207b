//! Building blocks of several applications: tasks, memory at fixed addresses, files, and a log.

use crate::{Access, AccessKind, FileSpec, Map, MapSource, Os, Prot, Role, Signal};
use alloc::vec::Vec;

pub(super) const PAGE: u64 = 4096;
/// Where the first piece of memory is mapped; with fixed addresses every task knows them.
const BASE: u64 = 0x10_0000_0000;
/// Pieces begin at multiples of this, so that each can have 2 MiB entries of its own.
const ALIGN: u64 = 2 << 20;

/// Kill the task if a call fails, which only lack of memory should cause.
pub(super) fn must<T, E>(result: Result<T, E>) -> Result<T, Signal> {
    result.map_err(|_| Signal::Kill)
}

/// The work of a number of tasks.
pub(super) trait Job {
    /// The number of tasks, including the first.
    fn tasks(&self, cpus: u32) -> u32;
    /// Whether tasks are processes instead of threads.
    fn processes(&self) -> bool {
        false
    }
    /// Run in the first task before the others start.
    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal>;
    /// Run task `task`; the first has number 0.
    fn task<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal>;
}

/// Run the first task of a job: start the others in the roles after `first`, run task 0, and wait for the
/// others.
pub(super) fn lead<J: Job, O: Os>(job: &J, os: &mut O, first: Role) -> Result<(), Signal> {
    job.set_up(os)?;
    let others = first + 1..first + job.tasks(os.cpus());
    let start = |role| must(if job.processes() { os.fork(role) } else { os.spawn(role) });
    let others = others.map(start).collect::<Result<Vec<_>, _>>()?;
    job.task(os, 0)?;
    others.into_iter().for_each(|task| os.join(task));
    Ok(())
}

/// The part of `all` that belongs to a task.
pub(super) fn part(all: u64, task: u32, tasks: u32) -> core::ops::Range<u64> {
    let from = |task: u32| (u128::from(all) * u128::from(task) / u128::from(tasks)) as u64;
    from(task)..from(task + 1)
}

/// A piece of memory at a fixed address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Heap {
    pub(super) start: u64,
    pub(super) len: u64,
}

impl Heap {
    /// The first piece, of `len` bytes, rounded up to pages.
    pub(super) fn first(len: u64) -> Heap {
        Heap { start: BASE, len: len.max(1).next_multiple_of(PAGE) }
    }

    /// The piece after this one.
    pub(super) fn then(self, len: u64) -> Heap {
        Heap { start: (self.start + self.len).next_multiple_of(ALIGN), ..Heap::first(len) }
    }

    /// Map it, private to the process.
    pub(super) fn map<O: Os>(self, os: &mut O) -> Result<(), Signal> {
        self.map_as(os, MapSource::Anonymous, Prot::RW)
    }

    /// Map it from `source`.
    pub(super) fn map_as<O: Os>(self, os: &mut O, source: MapSource, prot: Prot) -> Result<(), Signal> {
        let Heap { start, len } = self;
        let map = Map { addr: Some(start), len, prot, source, populate: false, locked: false };
        let at = must(os.mmap(map))?;
        assert_eq!(at, start, "a fixed mapping must be at the requested address");
        Ok(())
    }

    /// Touch every word of `len` bytes from `offset` on.
    pub(super) fn touch<O: Os>(
        self,
        os: &mut O,
        offset: u64,
        len: u64,
        mode: AccessKind,
    ) -> Result<(), Signal> {
        assert!(offset + len <= self.len, "{len} bytes at {offset} must be in {self:?}");
        touch(os, self.start + offset, len, mode)
    }
}

/// Touch every word of `len` bytes from `addr` on.
pub(super) fn touch<O: Os>(os: &mut O, addr: u64, len: u64, mode: AccessKind) -> Result<(), Signal> {
    let (mut at, end) = (addr & !7, addr + len);
    while at < end {
        let next = end.min((at / PAGE + 1) * PAGE);
        os.access(Access { addr: at, count: (next - at).div_ceil(8) as u32, mode })?;
        at = next;
    }
    Ok(())
}

/// Open a file on the disk, which is created if it does not exist.
pub(super) fn open<O: Os>(os: &mut O, name: &str, size: u64) -> Result<u32, Signal> {
    must(os.open(FileSpec { name, size, in_memory: false, writable: true }))
}

/// Read all of a range.
pub(super) fn read<O: Os>(os: &mut O, fd: u32, offset: u64, len: u64) -> Result<(), Signal> {
    let got = must(os.pread(fd, offset, len))?;
    assert_eq!(got, len, "a read of existing data must be complete");
    Ok(())
}

/// Write all of a range.
pub(super) fn write<O: Os>(os: &mut O, fd: u32, offset: u64, len: u64) -> Result<(), Signal> {
    let put = must(os.pwrite(fd, offset, len))?;
    assert_eq!(put, len, "a successful write must be complete");
    Ok(())
}

/// Split a range into pieces: the start and the length of each.
pub(super) fn pieces(range: core::ops::Range<u64>, piece: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = range.end;
    range.step_by(piece as usize).map(move |at| (at, piece.min(end - at)))
}

/// A task's part of a log: appended to, synced, and restarted when it is full, like logs whose files are
/// recycled.
#[derive(Debug)]
pub(super) struct Log {
    fd: u32,
    range: core::ops::Range<u64>,
    at: u64,
    records: u32,
    sync_interval: u32,
}

impl Log {
    /// On `range` of the file, synced after every `sync_interval` records.
    pub(super) fn new(fd: u32, range: core::ops::Range<u64>, sync_interval: u32) -> Log {
        Log { fd, at: range.start, range, records: 0, sync_interval }
    }

    /// Append a record.
    pub(super) fn append<O: Os>(&mut self, os: &mut O, len: u64) -> Result<(), Signal> {
        let len = len.min(self.range.end - self.range.start);
        if self.at + len > self.range.end {
            self.at = self.range.start;
        }
        write(os, self.fd, self.at, len)?;
        self.at += len;
        self.records += 1;
        if self.records.is_multiple_of(self.sync_interval) { must(os.fsync(self.fd)) } else { Ok(()) }
    }
}

//! What a trace says: the events of one thread, in the order in which they happened.
//!
//! This file and `codec.rs` depend on nothing but `core`, `alloc` and the crate `abi`, because the recorder's plugin,
//! which runs inside QEMU and links nothing else but `std`, compiles the same two files.
//!
//! **Order across threads.** Threads of a trace are replayed in whatever order the machine's scheduler likes, so
//! a thread could touch memory before another has mapped it. Therefore every call that changes the address space
//! carries an *epoch*: its number, from 1, among such calls of its process. [`Event::Sync`] says "the thread had
//! seen this epoch when it did what follows", and is only there where the epoch was another thread's.
//!
//! Where the kernel made one task wait for another (of any process of the trace), the one that was waited for has an
//! [`Event::Mark`] and the one that waited an [`Event::After`]. In the recording each `After` came later than its mark,
//! so they never contradict each other.

use abi::{AccessKind, Advice, FileAdvice, Group, GroupLimits, Prot};

/// Bytes of a page, the granule of a run.
pub const PAGE_SIZE: u64 = 4096;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;

/// Most bytes of a file, and the end of every range of one (Linux's MAX_LFS_FILESIZE).
pub const MAX_FILE_SIZE: u64 = i64::MAX as u64;
/// Most bytes that one call reads or writes (Linux's MAX_RW_COUNT).
pub const MAX_RW_COUNT: u64 = 0x7fff_f000;

/// A file, as an index of the trace's file table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A thread, as an index of the trace's thread table; also its role when the trace is replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// What stands behind a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Private zeroes.
    Anonymous,
    /// Zeroes shared with children.
    AnonymousShared,
    /// A file from `offset` bytes on.
    File {
        /// Which.
        file: FileId,
        /// Bytes from its start; page aligned.
        offset: u64,
        /// Do stores reach the file?
        shared: bool,
    },
}

/// Accesses to one page that were recorded together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The virtual page number (address divided by 4096).
    pub page: u64,
    /// How many accesses, at least 1.
    pub count: u32,
    /// What each of them was.
    pub mode: AccessKind,
}

/// One thing that a thread did.
///
/// Only calls that succeeded are in a trace, with the result that the kernel gave: a mapping's address is where
/// it was put, lengths of reads and writes are what was transferred. Addresses and lengths are bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are the calls' own words")]
pub enum Event {
    /// Memory was touched.
    Run(Run),
    /// This many instructions ran (all of them, also those that touched memory) since the last such event.
    Compute { instructions: u64 },
    /// The thread slept for so long by the recording machine's clock.
    Idle { nanos: u64 },
    /// What follows happened after address-space change number `epoch` of this process.
    Sync { epoch: u64 },
    /// Address-space change `epoch` was attempted and failed: nothing to do, but the number is used.
    Skip { epoch: u64 },
    /// `mmap`, growth of the heap by `brk`, or a mapping that was there when the process began. `replaces`: it
    /// was asked for at a fixed address, so something may have been there.
    Map {
        epoch: u64,
        addr: u64,
        len: u64,
        rights: Prot,
        backing: Backing,
        populate: bool,
        locked: bool,
        replaces: bool,
    },
    /// `munmap`, or shrinking of the heap.
    Unmap { epoch: u64, addr: u64, len: u64 },
    /// `mprotect`.
    Protect { epoch: u64, addr: u64, len: u64, rights: Prot },
    /// `mremap`.
    Remap { epoch: u64, addr: u64, old_len: u64, new_len: u64, new_addr: u64 },
    /// `madvise`.
    Advise { addr: u64, len: u64, advice: Advice },
    /// `mlock`.
    Lock { addr: u64, len: u64 },
    /// `munlock`.
    Unlock { addr: u64, len: u64 },
    /// `msync` with MS_SYNC.
    Msync { addr: u64, len: u64 },
    /// A descriptor of `file` was opened.
    Open { file: FileId },
    /// A descriptor of `file` was closed.
    Close { file: FileId },
    /// `read`, `pread` and their kin, with the offset resolved.
    Read { file: FileId, offset: u64, len: u64 },
    /// `write`, `pwrite` and their kin, with the offset resolved.
    Write { file: FileId, offset: u64, len: u64 },
    /// `fsync`, `fdatasync`, `sync_file_range`.
    Fsync { file: FileId },
    /// `ftruncate`, a growing `fallocate`, or opening with O_TRUNC. Has an epoch because it decides which pages
    /// of a mapping exist.
    Truncate { epoch: u64, file: FileId, size: u64 },
    /// `posix_fadvise`.
    FileAdvise { file: FileId, offset: u64, len: u64, advice: FileAdvice },
    /// A thread of this process was started.
    Spawn { thread: ThreadId },
    /// A child process was started; `thread` is its first.
    Fork { epoch: u64, thread: ThreadId },
    /// The thread waited for the child process whose first thread is `thread`.
    Join { thread: ThreadId },
    /// A control group was made. Groups have numbers of the trace's own; the root's is 0.
    GroupCreate { group: Group, parent: Group, limits: GroupLimits },
    /// A control group's limits were changed.
    GroupLimit { group: Group, limits: GroupLimits },
    /// The process entered a control group, which is there: it was made by this thread, or before a fork, a spawn or a
    /// change of the address space that this thread has seen.
    GroupEnter { group: Group },
    /// A control group was removed.
    GroupRemove { group: Group },
    /// The process became another program. If that was recorded, what follows takes away all that was mapped, and maps the
    /// program; otherwise it is the last event.
    Exec,
    /// The thread has come to a point that others wait for: its mark 1, 2 and so on.
    Mark,
    /// What follows came after `thread` had come to its mark number `mark`.
    After { thread: ThreadId, mark: u64 },
}

impl Event {
    /// The address-space change that this event is, if it is one.
    pub fn epoch(&self) -> Option<u64> {
        match *self {
            Event::Skip { epoch }
            | Event::Map { epoch, .. }
            | Event::Unmap { epoch, .. }
            | Event::Protect { epoch, .. }
            | Event::Remap { epoch, .. }
            | Event::Truncate { epoch, .. }
            | Event::Fork { epoch, .. } => Some(epoch),
            _ => None,
        }
    }

    /// Can a call have succeeded with these numbers? Ranges have an end, files a largest size, and one call moves so
    /// many bytes at most: this is what bounds the work that one event of a trace can ask for.
    pub fn possible(&self) -> bool {
        let in_file = |offset: u64, len: u64| offset.checked_add(len).is_some_and(|end| end <= MAX_FILE_SIZE);
        match *self {
            Event::Map { addr, len, backing, .. } => {
                let offset = if let Backing::File { offset, .. } = backing { offset } else { 0 };
                addr.checked_add(len).is_some() && in_file(offset, len)
            }
            Event::Unmap { addr, len, .. }
            | Event::Protect { addr, len, .. }
            | Event::Advise { addr, len, .. }
            | Event::Lock { addr, len }
            | Event::Unlock { addr, len }
            | Event::Msync { addr, len } => addr.checked_add(len).is_some(),
            Event::Remap { addr, old_len, new_len, new_addr, .. } => {
                addr.checked_add(old_len).is_some() && new_addr.checked_add(new_len).is_some()
            }
            Event::Read { offset, len, .. } | Event::Write { offset, len, .. } => {
                len <= MAX_RW_COUNT && in_file(offset, len)
            }
            Event::Truncate { size, .. } => size <= MAX_FILE_SIZE,
            _ => true,
        }
    }

    /// The file that the event names.
    pub fn file(&self) -> Option<FileId> {
        match *self {
            Event::Map { backing: Backing::File { file, .. }, .. }
            | Event::Open { file }
            | Event::Close { file }
            | Event::Read { file, .. }
            | Event::Write { file, .. }
            | Event::Fsync { file }
            | Event::Truncate { file, .. }
            | Event::FileAdvise { file, .. } => Some(file),
            _ => None,
        }
    }

    /// Could another thread have used, until just before, what this event takes away?
    pub fn takes_away(&self) -> bool {
        match self {
            Event::Unmap { .. } | Event::Remap { .. } | Event::Truncate { .. } => true,
            Event::Map { replaces, .. } => *replaces,
            Event::Protect { rights, .. } => !rights.contains(Prot::RW),
            _ => false,
        }
    }
}

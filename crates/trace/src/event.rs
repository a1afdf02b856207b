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
//! **Numbers in calls** ([`Event::Call`]). A descriptor is a file of the trace's table, a role or task is a thread, a
//! group is a group of the trace: a replay has its own for each.
//!
//! Where the kernel made one task wait for another (of any process of the trace), the one that was waited for has an
//! [`Event::Mark`] and the one that waited an [`Event::After`]. In the recording each `After` came later than its mark,
//! so they never contradict each other.

pub use abi::Packed;
use abi::{AccessKind, Buffer, Call, Map, MapSource, Prot, Text};

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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are explained with their events")]
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
    /// A call that succeeded, with the value that the kernel returned: a mapping's address, the file that was opened,
    /// the group that was made. Offsets and lengths of transfers are what was transferred. `epoch` is 0, or the number
    /// of the address-space change that the call is.
    ///
    /// Growth of the heap by `brk` and mappings that were there when the process began are `mmap`s; a mapping that was
    /// asked for at a fixed address, so that something may have been there, has [`Map::addr`]. `read`, `write` and
    /// vectored transfers are `pread` and `pwrite` at their offsets. A growing `fallocate` and O_TRUNC are `ftruncate`;
    /// it has an epoch because it decides which pages of a mapping exist. A process that waits for a child joins the
    /// child's first thread. The group that a process enters exists: this thread made it, or it was made before a fork,
    /// a spawn or a change of the address space that this thread has seen.
    Call { epoch: u64, call: Call<'static>, value: u64 },
    /// The process became another program. If that was recorded, what follows takes away all that was mapped, and maps
    /// the program; otherwise it is the last event.
    Exec,
    /// What a page of the process holds now, as compressors see it. It is told of pages that were written: before they
    /// go away, when the thread ends, and from time to time in between; each time only if it has changed.
    Content { page: u64, packed: Packed },
    /// The thread has come to a point that others wait for: its mark 1, 2 and so on.
    Mark,
    /// What follows came after `thread` had come to its mark number `mark`.
    After { thread: ThreadId, mark: u64 },
}

impl Event {
    /// A call that changes no address space and has no value that a replay needs.
    pub const fn call(call: Call<'static>) -> Event {
        Event::Call { epoch: 0, call, value: 0 }
    }

    /// A call that is address-space change `epoch`.
    pub const fn change(epoch: u64, call: Call<'static>) -> Event {
        Event::Call { epoch, call, value: 0 }
    }

    /// Memory was mapped at `addr`.
    pub const fn mapped(epoch: u64, addr: u64, map: Map) -> Event {
        Event::Call { epoch, call: Call::Mmap(map), value: addr }
    }

    /// A descriptor of `file` was opened. Name and size are in the trace's table.
    pub const fn opened(file: FileId) -> Event {
        let call = Call::Open(Text::At(Buffer::anywhere(0)), 0, false, true);
        Event::Call { epoch: 0, call, value: file.0 as u64 }
    }

    /// The address-space change that this event is, if it is one that has a number.
    pub fn epoch(&self) -> Option<u64> {
        match *self {
            Event::Skip { epoch } | Event::Call { epoch, .. } if epoch > 0 => Some(epoch),
            _ => None,
        }
    }

    /// Whether a call can have succeeded with these numbers, and a replay may make it. Ranges have an end, files a
    /// largest size, and one call moves a limited number of bytes: this bounds the work of one event of a trace.
    /// Calls that would end or stop the replay itself, or whose text is in memory, are in no trace.
    pub fn possible(&self) -> bool {
        let Event::Call { call, value, .. } = self else { return true };
        let in_file = |offset: u64, len: u64| offset.checked_add(len).is_some_and(|end| end <= MAX_FILE_SIZE);
        let in_space = |addr: u64, len: u64| addr.checked_add(len).is_some();
        match *call {
            Call::Mmap(map) => {
                let offset = if let MapSource::File { offset, .. } = map.source { offset } else { 0 };
                in_space(*value, map.len) && in_file(offset, map.len)
            }
            Call::Mremap(remap) => in_space(remap.addr, remap.old_len) && in_space(*value, remap.new_len),
            Call::Pread(_, buffer, offset) | Call::Pwrite(_, buffer, offset) => {
                buffer.len <= MAX_RW_COUNT && in_file(offset, buffer.len)
            }
            Call::Ftruncate(_, size) => size <= MAX_FILE_SIZE,
            Call::Exit(_) | Call::Tell(..) | Call::Yield() | Call::Now() => false,
            Call::Sleep(_) | Call::Barrier(..) | Call::SetKnob(..) | Call::GroupKnob(..) => false,
            _ => call.range().is_none_or(|(addr, len)| in_space(addr, len)),
        }
    }

    /// The file that the event names.
    pub fn file(&self) -> Option<FileId> {
        match *self {
            Event::Call { call: Call::Open(..), value, .. } => {
                Some(FileId(u32::try_from(value).unwrap_or(u32::MAX)))
            }
            Event::Call { mut call, .. } => call.fd_mut().map(|fd| FileId(*fd)),
            _ => None,
        }
    }

    /// The thread that this event starts.
    pub fn starts(&self) -> Option<ThreadId> {
        match *self {
            Event::Call { call: Call::Spawn(role) | Call::Fork(role), .. } => Some(ThreadId(role)),
            _ => None,
        }
    }

    /// Whether another thread could have used, until just before, what this event takes away.
    pub fn takes_away(&self) -> bool {
        let Event::Call { call, .. } = self else { return false };
        match call {
            Call::Munmap(..) | Call::Mremap(_) | Call::Ftruncate(..) => true,
            Call::Mmap(map) => map.addr.is_some(),
            Call::Mprotect(_, _, prot) => !prot.contains(Prot::RW),
            _ => false,
        }
    }
}

//! System calls in registers: a number and six arguments in, two registers out.
//!
//! Encoding is done by ring 3, which may be wrong; so decoding is total: whatever the registers hold, it gives a call
//! whose every field has a meaning, or an error. Pointers are checked here against the bounds of the user arena, so no
//! later step meets one that leads elsewhere. What the fields mean to memory management (is there such a descriptor, is
//! the range mapped) is judged behind, as on any system.
//!
//! In the answer, the first register is 0 or the number of an error, the second the value of the call.

use core::ops::Range;
use program::{
    Advice, Errno, FileAdvice, Group, GroupLimits, Map, MapSource, MemPolicy, PolicyMode, Prot, Remap, Role,
    Signal,
};

/// Bytes in the user arena. A buffer of no bytes is fine wherever it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Address of the first.
    pub addr: u64,
    /// Their number.
    pub len: u64,
}

/// How a task ended, and what it counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exit {
    /// The signal that the program did not expect.
    pub signal: Option<Signal>,
    /// Loads, stores and fetches, as the program counts them.
    pub accesses: u64,
    /// Units of the program's own work.
    pub progress: u64,
    /// Accesses and file reads that the checker judged.
    pub checked: u64,
    /// How many of them were wrong.
    pub violations: u64,
}

/// What a task tells the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tell {
    /// The checker found memory wrong.
    Violation,
    /// Something that a reader of the run's numbers should know.
    Note,
    /// The task panicked, and goes no further.
    Panic,
}

/// A system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Map memory; the value is its address.
    Mmap(Map),
    /// Unmap.
    Munmap {
        /// First byte.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// Change rights.
    Mprotect {
        /// First byte.
        addr: u64,
        /// Bytes.
        len: u64,
        /// The new rights.
        prot: Prot,
    },
    /// Move or resize; the value is the new address.
    Mremap(Remap),
    /// Give advice.
    Madvise {
        /// First byte.
        addr: u64,
        /// Bytes.
        len: u64,
        /// The advice.
        advice: Advice,
    },
    /// Ask that flushes of this process's pages are never deferred.
    NeverDefer(bool),
    /// Lock pages in memory (or, `lock` false, undo it).
    Mlock {
        /// First byte.
        addr: u64,
        /// Bytes.
        len: u64,
        /// Lock or unlock?
        lock: bool,
    },
    /// Move the pages that a range shows to other frames; the value is how many could not be.
    MovePages {
        /// First byte.
        addr: u64,
        /// Bytes.
        len: u64,
        /// The node; `None`: of the node that each is on.
        node: Option<u32>,
    },
    /// Move the process's pages on nodes of one set to nodes of another; the value is how many could not be.
    MigratePages {
        /// The nodes that they are on.
        from: u64,
        /// The nodes that they go to.
        to: u64,
    },
    /// Say where memory for a range comes from; the value is how many pages could not be moved there.
    Mbind {
        /// First byte.
        addr: u64,
        /// Bytes.
        len: u64,
        /// What is said.
        policy: MemPolicy,
        /// Does what is elsewhere go there?
        moving: bool,
    },
    /// Say where memory for this process comes from.
    SetMempolicy(MemPolicy),
    /// Write dirty file pages of a range back.
    Msync {
        /// First byte.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// Open a file; the value is a [`pair`]: the descriptor and the file's number.
    Open {
        /// Its name, in UTF-8.
        name: Buffer,
        /// Size in bytes if it is created.
        size: u64,
        /// Memory and swap only?
        in_memory: bool,
        /// Open for writing?
        writable: bool,
    },
    /// Close a descriptor.
    Close {
        /// The descriptor.
        fd: u32,
    },
    /// Read at an offset; the value is the number of bytes.
    Pread {
        /// The descriptor.
        fd: u32,
        /// Where in the file.
        offset: u64,
        /// Where to.
        buffer: Buffer,
    },
    /// Write at an offset; the value is the number of bytes.
    Pwrite {
        /// The descriptor.
        fd: u32,
        /// Where in the file.
        offset: u64,
        /// Where from.
        buffer: Buffer,
    },
    /// Write the file's dirty pages back.
    Fsync {
        /// The descriptor.
        fd: u32,
    },
    /// Set the size.
    Ftruncate {
        /// The descriptor.
        fd: u32,
        /// In bytes.
        size: u64,
    },
    /// Give advice about a file range.
    Fadvise {
        /// The descriptor.
        fd: u32,
        /// First byte.
        offset: u64,
        /// Bytes; 0: to the end.
        len: u64,
        /// The advice.
        advice: FileAdvice,
    },
    /// Make a control group; the value is its number.
    GroupCreate {
        /// The group above.
        parent: Group,
        /// Its limits.
        limits: GroupLimits,
    },
    /// Change the limits of a control group.
    GroupLimit {
        /// The group.
        group: Group,
        /// Its limits from now on.
        limits: GroupLimits,
    },
    /// Move this process into a control group.
    GroupEnter(Group),
    /// Remove a control group.
    GroupRemove(Group),
    /// Change a knob.
    SetKnob {
        /// Its name.
        name: Buffer,
        /// The value.
        value: u64,
    },
    /// Give a group a knob of its own.
    GroupKnob {
        /// Which.
        group: Group,
        /// The knob's name.
        name: Buffer,
        /// The value.
        value: u64,
    },
    /// Start a thread; the value is its task.
    Spawn(Role),
    /// Start a child process; the value is a [`pair`]: its task and its process.
    Fork(Role),
    /// Wait for the end of a task.
    Join(u32),
    /// Sleep for so many nanoseconds.
    Sleep(u64),
    /// Wait until `tasks` tasks have come to barrier `id`.
    Barrier {
        /// The barrier.
        id: u32,
        /// Tasks that it holds.
        tasks: u32,
    },
    /// The value is the machine's time in nanoseconds.
    Now,
    /// Let other tasks run; the value is 1 if this process is to end.
    Yield,
    /// Tell the world something.
    Tell(Tell, Buffer),
    /// The task has ended. The call does not return.
    Exit(Exit),
}

/// Flags of mmap and mremap.
mod flag {
    pub const FIXED: u64 = 1 << 3;
    pub const POPULATE: u64 = 1 << 4;
    pub const LOCKED: u64 = 1 << 5;
    pub const MAY_MOVE: u64 = 1 << 6;
    /// What stands behind a mapping, in two bits from here on.
    pub const SOURCE: u32 = 8;
    pub const MMAP: u64 = 0b111 | FIXED | POPULATE | LOCKED | 0b11 << SOURCE;
    pub const MREMAP: u64 = FIXED | MAY_MOVE;
}

/// Two numbers in one value.
pub const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The numbers of a [`pair`].
pub const fn unpair(value: u64) -> (u32, u32) {
    (value as u32, (value >> 32) as u32)
}

/// An answer in registers.
pub fn encode_answer(answer: Result<u64, Errno>) -> [u64; 2] {
    match answer {
        Ok(value) => [0, value],
        Err(errno) => [errno.number(), 0],
    }
}

/// The answer that registers hold.
pub fn decode_answer([error, value]: [u64; 2]) -> Result<u64, Errno> {
    match error {
        0 => Ok(value),
        error => Err(Errno::from_number(error).unwrap_or(Errno::NoSys)),
    }
}

/// A signal as a number other than 0; its address travels beside it.
pub const fn signal_number(signal: Signal) -> u64 {
    match signal {
        Signal::Segv { .. } => 1,
        Signal::Bus { .. } => 2,
        Signal::Kill => 3,
    }
}

/// The signal of that number, raised by a touch of `addr`; 0 is none.
pub const fn signal_of(number: u64, addr: u64) -> Option<Signal> {
    match number {
        0 => None,
        1 => Some(Signal::Segv { addr }),
        2 => Some(Signal::Bus { addr }),
        _ => Some(Signal::Kill),
    }
}

/// A call as number and arguments.
pub fn encode(call: &Call) -> (u64, [u64; 6]) {
    match *call {
        Call::Mmap(map) => (0, encode_map(&map)),
        Call::Munmap { addr, len } => (1, [addr, len, 0, 0, 0, 0]),
        Call::Mprotect { addr, len, prot } => (2, [addr, len, prot.bits(), 0, 0, 0]),
        Call::Mremap(Remap { addr, old_len, new_len, may_move, fixed }) => {
            let flags = if may_move { flag::MAY_MOVE } else { 0 } | fixed.map_or(0, |_| flag::FIXED);
            (3, [addr, old_len, new_len, flags, fixed.unwrap_or(0), 0])
        }
        Call::Madvise { addr, len, advice } => (4, [addr, len, advice.number(), 0, 0, 0]),
        Call::NeverDefer(never) => (5, [never as u64, 0, 0, 0, 0, 0]),
        Call::Mlock { addr, len, lock } => (6, [addr, len, lock as u64, 0, 0, 0]),
        Call::MovePages { addr, len, node } => {
            (31, [addr, len, node.is_some() as u64, node.unwrap_or(0) as u64, 0, 0])
        }
        Call::MigratePages { from, to } => (32, [from, to, 0, 0, 0, 0]),
        Call::Mbind { addr, len, policy: MemPolicy { mode, nodes }, moving } => {
            (33, [addr, len, mode.number(), nodes, moving as u64, 0])
        }
        Call::SetMempolicy(MemPolicy { mode, nodes }) => (34, [mode.number(), nodes, 0, 0, 0, 0]),
        Call::Msync { addr, len } => (7, [addr, len, 0, 0, 0, 0]),
        Call::Open { name, size, in_memory, writable } => {
            (8, [name.addr, name.len, size, in_memory as u64 | (writable as u64) << 1, 0, 0])
        }
        Call::Close { fd } => (9, [fd as u64, 0, 0, 0, 0, 0]),
        Call::Pread { fd, offset, buffer } => (10, [fd as u64, offset, buffer.addr, buffer.len, 0, 0]),
        Call::Pwrite { fd, offset, buffer } => (11, [fd as u64, offset, buffer.addr, buffer.len, 0, 0]),
        Call::Fsync { fd } => (12, [fd as u64, 0, 0, 0, 0, 0]),
        Call::Ftruncate { fd, size } => (13, [fd as u64, size, 0, 0, 0, 0]),
        Call::Fadvise { fd, offset, len, advice } => (14, [fd as u64, offset, len, advice.number(), 0, 0]),
        Call::GroupCreate { parent, limits } => (26, encode_group(parent, limits)),
        Call::GroupLimit { group, limits } => (27, encode_group(group, limits)),
        Call::GroupEnter(group) => (28, [group.0 as u64, 0, 0, 0, 0, 0]),
        Call::GroupRemove(group) => (29, [group.0 as u64, 0, 0, 0, 0, 0]),
        Call::SetKnob { name, value } => (30, [name.addr, name.len, value, 0, 0, 0]),
        Call::GroupKnob { group, name, value } => (35, [group.0 as u64, name.addr, name.len, value, 0, 0]),
        Call::Spawn(role) => (15, [role as u64, 0, 0, 0, 0, 0]),
        Call::Fork(role) => (16, [role as u64, 0, 0, 0, 0, 0]),
        Call::Join(task) => (17, [task as u64, 0, 0, 0, 0, 0]),
        Call::Sleep(nanos) => (18, [nanos, 0, 0, 0, 0, 0]),
        Call::Barrier { id, tasks } => (19, [id as u64, tasks as u64, 0, 0, 0, 0]),
        Call::Now => (20, [0; 6]),
        Call::Yield => (21, [0; 6]),
        Call::Tell(Tell::Violation, text) => (22, [text.addr, text.len, 0, 0, 0, 0]),
        Call::Tell(Tell::Panic, text) => (23, [text.addr, text.len, 0, 0, 0, 0]),
        Call::Tell(Tell::Note, text) => (25, [text.addr, text.len, 0, 0, 0, 0]),
        Call::Exit(Exit { signal, accesses, progress, checked, violations }) => {
            let addr = match signal {
                Some(Signal::Segv { addr } | Signal::Bus { addr }) => addr,
                Some(Signal::Kill) | None => 0,
            };
            (24, [signal.map_or(0, signal_number), addr, accesses, progress, checked, violations])
        }
    }
}

fn encode_group(group: Group, limits: GroupLimits) -> [u64; 6] {
    let GroupLimits { max, high, low, min, swap_max } = limits;
    [group.0 as u64, max, high, low, min, swap_max]
}

fn encode_map(map: &Map) -> [u64; 6] {
    let (source, fd, offset) = match map.source {
        MapSource::Anonymous => (0, 0, 0),
        MapSource::AnonymousShared => (1, 0, 0),
        MapSource::File { fd, offset, shared } => (2 + shared as u64, fd, offset),
    };
    let flag = |on: bool, bit: u64| if on { bit } else { 0 };
    let flags = map.prot.bits()
        | flag(map.addr.is_some(), flag::FIXED)
        | flag(map.populate, flag::POPULATE)
        | flag(map.locked, flag::LOCKED)
        | source << flag::SOURCE;
    [map.addr.unwrap_or(0), map.len, flags, fd as u64, offset, 0]
}

fn flags(word: u64, known: u64) -> Result<u64, Errno> {
    if word & !known == 0 { Ok(word) } else { Err(Errno::Inval) }
}

fn number(word: u64) -> Result<u32, Errno> {
    u32::try_from(word).map_err(|_| Errno::Inval)
}

fn descriptor(word: u64) -> Result<u32, Errno> {
    u32::try_from(word).map_err(|_| Errno::BadF)
}

/// Bytes at `addr`, all of them inside `arena`.
fn buffer(arena: &Range<u64>, addr: u64, len: u64) -> Result<Buffer, Errno> {
    let end = addr.checked_add(len).ok_or(Errno::Fault)?;
    let inside = len == 0 || (arena.start <= addr && end <= arena.end);
    if inside { Ok(Buffer { addr, len }) } else { Err(Errno::Fault) }
}

fn decode_map([addr, len, bits, fd, offset, _]: [u64; 6]) -> Result<Map, Errno> {
    let bits = flags(bits, flag::MMAP)?;
    let source = match bits >> flag::SOURCE {
        0 => MapSource::Anonymous,
        1 => MapSource::AnonymousShared,
        kind => MapSource::File { fd: descriptor(fd)?, offset, shared: kind == 3 },
    };
    Ok(Map {
        addr: (bits & flag::FIXED != 0).then_some(addr),
        len,
        prot: Prot::from_bits(bits),
        source,
        populate: bits & flag::POPULATE != 0,
        locked: bits & flag::LOCKED != 0,
    })
}

fn policy_of(mode: u64, nodes: u64) -> Result<MemPolicy, Errno> {
    Ok(MemPolicy { mode: PolicyMode::from_number(mode).ok_or(Errno::Inval)?, nodes })
}

fn limits_of([_, max, high, low, min, swap_max]: [u64; 6]) -> GroupLimits {
    GroupLimits { max, high, low, min, swap_max }
}

/// The call that registers hold, for a machine whose user arena lies at `arena`. Arguments that a call does not have
/// are not looked at.
pub fn decode(call: u64, args: [u64; 6], arena: &Range<u64>) -> Result<Call, Errno> {
    let [a, b, c, d, e, f] = args;
    Ok(match call {
        0 => Call::Mmap(decode_map(args)?),
        1 => Call::Munmap { addr: a, len: b },
        2 => Call::Mprotect { addr: a, len: b, prot: Prot::from_bits(flags(c, Prot::ALL.bits())?) },
        3 => {
            let flags = flags(d, flag::MREMAP)?;
            let fixed = (flags & flag::FIXED != 0).then_some(e);
            Call::Mremap(Remap {
                addr: a,
                old_len: b,
                new_len: c,
                may_move: flags & flag::MAY_MOVE != 0,
                fixed,
            })
        }
        4 => Call::Madvise { addr: a, len: b, advice: Advice::from_number(c).ok_or(Errno::Inval)? },
        5 => Call::NeverDefer(flags(a, 1)? != 0),
        6 => Call::Mlock { addr: a, len: b, lock: flags(c, 1)? != 0 },
        7 => Call::Msync { addr: a, len: b },
        8 => {
            let flags = flags(d, 0b11)?;
            let (in_memory, writable) = (flags & 1 != 0, flags & 2 != 0);
            Call::Open { name: buffer(arena, a, b)?, size: c, in_memory, writable }
        }
        9 => Call::Close { fd: descriptor(a)? },
        10 => Call::Pread { fd: descriptor(a)?, offset: b, buffer: buffer(arena, c, d)? },
        11 => Call::Pwrite { fd: descriptor(a)?, offset: b, buffer: buffer(arena, c, d)? },
        12 => Call::Fsync { fd: descriptor(a)? },
        13 => Call::Ftruncate { fd: descriptor(a)?, size: b },
        14 => Call::Fadvise {
            fd: descriptor(a)?,
            offset: b,
            len: c,
            advice: FileAdvice::from_number(d).ok_or(Errno::Inval)?,
        },
        26 => Call::GroupCreate { parent: Group(number(a)?), limits: limits_of(args) },
        27 => Call::GroupLimit { group: Group(number(a)?), limits: limits_of(args) },
        28 => Call::GroupEnter(Group(number(a)?)),
        29 => Call::GroupRemove(Group(number(a)?)),
        30 => Call::SetKnob { name: buffer(arena, a, b)?, value: c },
        31 => {
            let (given, node) = (flags(c, 1)? != 0, number(d)?);
            Call::MovePages { addr: a, len: b, node: given.then_some(node) }
        }
        32 => Call::MigratePages { from: a, to: b },
        33 => {
            let policy = policy_of(c, d)?;
            Call::Mbind { addr: a, len: b, policy, moving: flags(e, 1)? != 0 }
        }
        34 => Call::SetMempolicy(policy_of(a, b)?),
        35 => Call::GroupKnob { group: Group(number(a)?), name: buffer(arena, b, c)?, value: d },
        15 => Call::Spawn(number(a)?),
        16 => Call::Fork(number(a)?),
        17 => Call::Join(number(a)?),
        18 => Call::Sleep(a),
        19 => Call::Barrier { id: number(a)?, tasks: number(b)? },
        20 => Call::Now,
        21 => Call::Yield,
        22 => Call::Tell(Tell::Violation, buffer(arena, a, b)?),
        23 => Call::Tell(Tell::Panic, buffer(arena, a, b)?),
        25 => Call::Tell(Tell::Note, buffer(arena, a, b)?),
        24 => {
            let signal = signal_of(a, b);
            Call::Exit(Exit { signal, accesses: c, progress: d, checked: e, violations: f })
        }
        _ => return Err(Errno::NoSys),
    })
}

#[cfg(test)]
mod tests;

//! System calls: one row for each, with its number and its arguments, and how they travel in registers.
//!
//! A call is a number and six arguments in, two registers out: 0 or the number of an error, and the call's value. Who
//! encodes may be wrong, so decoding is total: whatever the registers hold, it gives a call whose every field has a
//! meaning, or an error. Buffers are checked here against the part of the caller's memory in which they may lie, so no
//! later step meets one that leads elsewhere. What the fields mean to memory management (is there such a descriptor,
//! is the range mapped) is the kernel's to judge.

mod register;

use crate::numbered;
use crate::{Advice, Errno, FileAdvice, Group, GroupLimits, Map, MemPolicy, Prot, Remap};
use core::ops::Range;
use register::{Reader, Register, Writer};

/// Which part of a program a task plays; role 0 is the first task.
pub type Role = u32;

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

impl Signal {
    /// A number other than 0; the signal's address travels beside it.
    pub const fn number(self) -> u64 {
        match self {
            Signal::Segv { .. } => 1,
            Signal::Bus { .. } => 2,
            Signal::Kill => 3,
        }
    }

    /// The signal of that number, raised by a touch of `addr`; 0 is none.
    pub const fn of(number: u64, addr: u64) -> Option<Signal> {
        match number {
            0 => None,
            1 => Some(Signal::Segv { addr }),
            2 => Some(Signal::Bus { addr }),
            _ => Some(Signal::Kill),
        }
    }
}

/// Bytes in the caller's memory. A buffer of no bytes is fine wherever it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Address of the first.
    pub addr: u64,
    /// Their number.
    pub len: u64,
}

impl Buffer {
    /// So many bytes of no place: the machine has one for them, if it needs one.
    pub const fn anywhere(len: u64) -> Buffer {
        Buffer { addr: 0, len }
    }
}

/// A text that a call is given, in UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Text<'a> {
    /// As the caller has it.
    Said(&'a str),
    /// Where it lies in the caller's memory: what travels in registers.
    At(Buffer),
}

/// How a task ended, and what it counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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

numbered! {
    /// What a task tells the world.
    Tell {
        /// The checker found memory wrong.
        Violation = 0,
        /// Something that a reader of the run's numbers should know.
        Note = 1,
        /// The task panicked, and goes no further.
        Panic = 2,
    }
}

macro_rules! calls {
    ($($(#[$help:meta])* $number:literal $name:ident($($arg:ident: $type:ty),*),)*) => {
        /// A system call.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Call<'a> {
            $($(#[$help])* #[doc = concat!("\n\nArguments: ", stringify!($($arg),*), ".")] $name($($type),*),)*
        }

        impl Call<'_> {
            /// Number and arguments; `hold` puts a text where it may lie, and says where that is.
            #[inline]
            pub fn encode(self, mut hold: impl FnMut(&str) -> Buffer) -> (u64, [u64; 6]) {
                let mut to = Writer { words: [0; 6], at: 0, hold: &mut hold };
                let number = match self {
                    $(Call::$name($($arg),*) => {
                        $($arg.put(&mut to);)*
                        $number
                    })*
                };
                (number, to.words)
            }

            /// The call that registers hold, whose buffers may lie in `arena`. Arguments that a call does not have are
            /// not looked at.
            #[inline]
            pub fn decode(number: u64, args: [u64; 6], arena: &Range<u64>) -> Result<Call<'static>, Errno> {
                let mut from = Reader { words: args, at: 0, arena };
                Ok(match number {
                    $($number => {
                        $(let $arg = Register::take(&mut from)?;)*
                        Call::$name($($arg),*)
                    })*
                    _ => return Err(Errno::NoSys),
                })
            }

            /// Numbers that calls have.
            #[cfg(test)]
            const NUMBERS: &'static [u64] = &[$($number),*];
        }
    };
}

calls! {
    /// Map memory; the value is its address.
    0 Mmap(map: Map),
    /// Unmap; holes are fine.
    1 Munmap(addr: u64, len: u64),
    /// Change rights.
    2 Mprotect(addr: u64, len: u64, prot: Prot),
    /// Move or resize; the value is the new address.
    3 Mremap(remap: Remap),
    /// Give advice.
    4 Madvise(addr: u64, len: u64, advice: Advice),
    /// Ask that flushes of this process's pages are never deferred (`false`: as the system's policy says).
    5 NeverDefer(never: bool),
    /// Lock pages in memory (or, `lock` false, undo it).
    6 Mlock(addr: u64, len: u64, lock: bool),
    /// Write dirty file pages of a range back and wait for it (MS_SYNC).
    7 Msync(addr: u64, len: u64),
    /// Open a file, which is made with so many bytes if it is not there; the value is a [`pair`]: the descriptor and
    /// the file's number.
    8 Open(name: Text<'a>, size: u64, in_memory: bool, writable: bool),
    /// Close a descriptor. Mappings of the file stay.
    9 Close(fd: u32),
    /// Read at an offset; the value is the number of bytes (short at the end of the file).
    10 Pread(fd: u32, offset: u64, buffer: Buffer),
    /// Write at an offset, growing the file if needed; the value is the number of bytes.
    11 Pwrite(fd: u32, offset: u64, buffer: Buffer),
    /// Write the file's dirty pages back and wait.
    12 Fsync(fd: u32),
    /// Set the size.
    13 Ftruncate(fd: u32, size: u64),
    /// Give advice about a file range; no bytes: to the end.
    14 Fadvise(fd: u32, offset: u64, len: u64, advice: FileAdvice),
    /// Start a thread; the value is its task.
    15 Spawn(role: Role),
    /// Start a child process; the value is a [`pair`]: its task and its process.
    16 Fork(role: Role),
    /// Wait for the end of a task.
    17 Join(task: u32),
    /// Sleep for so many nanoseconds.
    18 Sleep(nanos: u64),
    /// Wait until so many tasks have come to barrier `id`.
    19 Barrier(id: u32, tasks: u32),
    /// The value is the machine's time in nanoseconds.
    20 Now(),
    /// Let other tasks run; the value is 1 if this process is to end.
    21 Yield(),
    /// Tell the world something.
    22 Tell(what: Tell, text: Text<'a>),
    /// The task has ended. The call does not return.
    24 Exit(exit: Exit),
    /// Make a control group; the value is its number.
    26 GroupCreate(parent: Group, limits: GroupLimits),
    /// Change the limits of a control group.
    27 GroupLimit(group: Group, limits: GroupLimits),
    /// Move this process into a control group.
    28 GroupEnter(group: Group),
    /// Remove a control group.
    29 GroupRemove(group: Group),
    /// Change a knob.
    30 SetKnob(name: Text<'a>, value: u64),
    /// Move the pages that a range shows to a node (`None`: to other frames of the node that each is on); the value is
    /// how many could not be.
    31 MovePages(addr: u64, len: u64, node: Option<u32>),
    /// Move the process's pages on nodes of one set to nodes of another (bit n: node n); the value is how many could
    /// not be.
    32 MigratePages(from: u64, to: u64),
    /// Say where memory for a range comes from, and perhaps move what is elsewhere; the value is how many pages could
    /// not be moved there.
    33 Mbind(addr: u64, len: u64, policy: MemPolicy, moving: bool),
    /// Say where memory for this process comes from.
    34 SetMempolicy(policy: MemPolicy),
    /// Give a group a knob of its own.
    35 GroupKnob(group: Group, name: Text<'a>, value: u64),
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

#[cfg(test)]
mod tests;

//! System calls: one row for each, with its number, its name and its arguments, and how they travel in registers.
//!
//! A call is a number and six arguments in, two registers out: 0 or the number of an error, and the call's value. A
//! call that Linux has in the same form has its number and its registers, so a Linux kernel can be asked for it
//! ([`Call::on_linux`]) and a recorder can read it ([`Call::of_linux`]); the others are our own. Traces hold the same
//! calls.
//!
//! A caller may be wrong, so decoding is total: from any registers it returns a call whose every field is valid, or an
//! error. It checks buffers against the part of the caller's memory where they may be, so later steps need not. The
//! kernel checks whether a descriptor is open and a range is mapped.

mod register;

use crate::numbered;
use crate::{Advice, Errno, FileAdvice, Group, GroupLimits, Map, MemPolicy, Prot, Remap};
use core::ops::Range;
use register::{Reader, Register, Writer};

/// Which part of a program a task plays; role 0 is the first task.
pub type Role = u32;

/// A signal that kills a task unless the task expects it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// No mapping at the address, or the mapping does not allow the access.
    Segv {
        /// The address touched.
        addr: u64,
    },
    /// The mapped file has no such page.
    Bus {
        /// The address touched.
        addr: u64,
    },
    /// The system ran out of memory and chose this process.
    Kill,
}

impl Signal {
    /// Its number, which is not 0. The address is passed separately.
    pub const fn number(self) -> u64 {
        match self {
            Signal::Segv { .. } => 1,
            Signal::Bus { .. } => 2,
            Signal::Kill => 3,
        }
    }

    /// The signal with this number, raised by an access to `addr`; `None` for 0.
    pub const fn of(number: u64, addr: u64) -> Option<Signal> {
        match number {
            0 => None,
            1 => Some(Signal::Segv { addr }),
            2 => Some(Signal::Bus { addr }),
            _ => Some(Signal::Kill),
        }
    }
}

/// Bytes in the caller's memory. An empty buffer is valid at any address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Address of the first byte.
    pub addr: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Buffer {
    /// A buffer of `len` bytes without an address: a machine that needs one provides it.
    pub const fn anywhere(len: u64) -> Buffer {
        Buffer { addr: 0, len }
    }
}

/// A text argument, in UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Text<'a> {
    /// The text itself.
    Said(&'a str),
    /// Its place in the caller's memory: the form in registers.
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
    /// Number of wrong ones.
    pub violations: u64,
}

numbered! {
    /// What a task reports to the user.
    Tell {
        /// The checker found wrong memory content.
        Violation = 0,
        /// A remark for readers of the run's numbers.
        Note = 1,
        /// The task panicked and cannot continue.
        Panic = 2,
    }
}

/// Find an argument by its name in the row.
macro_rules! named {
    (fd: fd $arg:ident) => {
        Some($arg)
    };
    (fd: map $arg:ident) => {
        $arg.fd_mut()
    };
    (group: group $arg:ident) => {
        Some($arg)
    };
    (group: parent $arg:ident) => {
        Some($arg)
    };
    (addr: addr $arg:ident) => {
        Some(*$arg)
    };
    (at: addr $arg:ident) => {
        Some($arg)
    };
    (len: len $arg:ident) => {
        Some(*$arg)
    };
    ($what:ident: $name:ident $arg:ident) => {
        None
    };
}

macro_rules! calls {
    ($(
        $(#[$help:meta])*
        $number:literal $(/ $common:literal)? $word:literal $name:ident($($arg:ident: $type:ty),*) $([$flag:literal])?,
    )*) => {
        /// A system call.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Call<'a> {
            $($(#[$help])* #[doc = concat!("\n\nArguments: ", stringify!($($arg),*), ".")] $name($($type),*),)*
        }

        impl Call<'_> {
            /// Number and arguments. `hold` copies a text to a place where the kernel can read it, and returns the
            /// place.
            #[inline]
            pub fn encode(self, mut hold: impl FnMut(&str) -> Buffer) -> (u64, [u64; 6]) {
                let mut to = Writer { words: [0; 6], at: 0, hold: &mut hold };
                let number = match self {
                    $(Call::$name($($arg),*) => {
                        $($arg.put(&mut to);)*
                        $(u64::put($flag, &mut to);)?
                        $number
                    })*
                };
                (number, to.words)
            }

            /// The call that the registers hold. Its buffers must be in `arena`. Registers beyond the call's arguments
            /// are ignored.
            #[inline]
            pub fn decode(number: u64, args: [u64; 6], arena: &Range<u64>) -> Result<Call<'static>, Errno> {
                let mut from = Reader { words: args, at: 0, arena };
                Ok(match number {
                    $($number => {
                        $(let $arg = Register::take(&mut from)?;)*
                        $(from.expect($flag)?;)?
                        Call::$name($($arg),*)
                    })*
                    _ => return Err(Errno::NoSys),
                })
            }

            /// Its name in messages.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Call::$name(..) => $word,)*
                }
            }

            /// Its descriptor argument.
            #[allow(unused_variables, reason = "most arguments are no descriptors")]
            pub fn fd_mut(&mut self) -> Option<&mut u32> {
                match self {
                    $(Call::$name($($arg),*) => [None, $(named!(fd: $arg $arg)),*].into_iter().flatten().next(),)*
                }
            }

            /// Its control group argument.
            #[allow(unused_variables, reason = "most arguments are no groups")]
            pub fn group_mut(&mut self) -> Option<&mut Group> {
                match self {
                    $(Call::$name($($arg),*) => [None, $(named!(group: $arg $arg)),*].into_iter().flatten().next(),)*
                }
            }

            /// Its range of addresses: start and length.
            #[allow(unused_variables, reason = "most arguments are no addresses")]
            pub fn range(&self) -> Option<(u64, u64)> {
                match self {
                    $(Call::$name($($arg),*) => {
                        let addr = [None, $(named!(addr: $arg $arg)),*].into_iter().flatten().next();
                        addr.zip([None, $(named!(len: $arg $arg)),*].into_iter().flatten().next())
                    })*
                }
            }

            /// The start of its range of addresses.
            #[allow(unused_variables, reason = "most arguments are no addresses")]
            pub fn addr_mut(&mut self) -> Option<&mut u64> {
                match self {
                    $(Call::$name($($arg),*) => [None, $(named!(at: $arg $arg)),*].into_iter().flatten().next(),)*
                }
            }

            /// The numbers of all calls.
            const NUMBERS: &'static [u64] = &[$($number),*];
        }

        /// The number on x86-64 of a call that has this number in Linux's common table; `None` if it has no row here.
        pub const fn of_common(number: u64) -> Option<u64> {
            match number {
                $($($common => Some($number),)?)*
                _ => None,
            }
        }
    };
}

calls! {
    // Calls that Linux has in the same form: number on x86-64 / number in the common table of newer architectures.
    /// Map memory; the value is its address.
    9 / 222 "mmap" Mmap(map: Map),
    /// Unmap; holes are fine.
    11 / 215 "munmap" Munmap(addr: u64, len: u64),
    /// Change rights.
    10 / 226 "mprotect" Mprotect(addr: u64, len: u64, prot: Prot),
    /// Move or resize; the value is the new address.
    25 / 216 "mremap" Mremap(remap: Remap),
    /// Give advice.
    28 / 233 "madvise" Madvise(addr: u64, len: u64, advice: Advice),
    /// Lock pages in memory.
    149 / 228 "mlock" Mlock(addr: u64, len: u64),
    /// Undo [`Call::Mlock`].
    150 / 229 "munlock" Munlock(addr: u64, len: u64),
    /// Write dirty file pages of a range back and wait for it (MS_SYNC).
    26 / 227 "msync" Msync(addr: u64, len: u64) [4],
    /// Close a descriptor. Mappings of the file stay.
    3 / 57 "close" Close(fd: u32),
    /// Read at an offset; the value is the number of bytes (short at the end of the file).
    17 / 67 "pread" Pread(fd: u32, buffer: Buffer, offset: u64),
    /// Write at an offset, growing the file if needed; the value is the number of bytes.
    18 / 68 "pwrite" Pwrite(fd: u32, buffer: Buffer, offset: u64),
    /// Write the file's dirty pages back and wait.
    74 / 82 "fsync" Fsync(fd: u32),
    /// Set the size.
    77 / 46 "ftruncate" Ftruncate(fd: u32, size: u64),
    /// Give advice about a file range; no bytes: to the end.
    221 / 223 "fadvise" Fadvise(fd: u32, offset: u64, len: u64, advice: FileAdvice),

    // Our own calls: Linux has no such call, or passes structures in memory.
    /// Ask that flushes of this process's pages are never deferred (`false`: as the system's policy says).
    0x1000 "never_defer" NeverDefer(never: bool),
    /// Open a file, which is made with this size if it does not exist; the value is a [`pair`]: the descriptor and the
    /// file's number.
    0x1001 "open" Open(name: Text<'a>, size: u64, in_memory: bool, writable: bool),
    /// Start a thread; the value is its task.
    0x1002 "spawn" Spawn(role: Role),
    /// Start a child process; the value is a [`pair`]: its task and its process.
    0x1003 "fork" Fork(role: Role),
    /// Wait for the end of a task.
    0x1004 "join" Join(task: u32),
    /// Sleep for this many nanoseconds.
    0x1005 "sleep" Sleep(nanos: u64),
    /// Wait until this many tasks have come to barrier `id`.
    0x1006 "barrier" Barrier(id: u32, tasks: u32),
    /// The value is the machine's time in nanoseconds.
    0x1007 "now" Now(),
    /// Let other tasks run; the value is 1 if this process is to end.
    0x1008 "yield" Yield(),
    /// Report something to the user.
    0x1009 "tell" Tell(what: Tell, text: Text<'a>),
    /// The task has ended. The call does not return.
    0x100a "exit" Exit(exit: Exit),
    /// Make a control group; the value is its number.
    0x100b "group_create" GroupCreate(parent: Group, limits: GroupLimits),
    /// Change the limits of a control group.
    0x100c "group_limit" GroupLimit(group: Group, limits: GroupLimits),
    /// Move this process into a control group.
    0x100d "group_enter" GroupEnter(group: Group),
    /// Remove a control group.
    0x100e "group_remove" GroupRemove(group: Group),
    /// Change a knob.
    0x100f "set_knob" SetKnob(name: Text<'a>, value: u64),
    /// Give a group a knob of its own.
    0x1010 "group_knob" GroupKnob(group: Group, name: Text<'a>, value: u64),
    /// Move the pages that a range shows to a node (`None`: to other frames of the node that each is on); the value is
    /// the number of pages that could not be moved.
    0x1011 "move_pages" MovePages(addr: u64, len: u64, node: Option<u32>),
    /// Move the process's pages on nodes of one set to nodes of another (bit n: node n); the value is the number of
    /// pages that could not be moved.
    0x1012 "migrate_pages" MigratePages(from: u64, to: u64),
    /// Set the memory policy of a range and, if `moving`, migrate its pages; the value is the number of pages that
    /// could not be migrated.
    0x1013 "mbind" Mbind(addr: u64, len: u64, policy: MemPolicy, moving: bool),
    /// Set the memory policy of this process.
    0x1014 "set_mempolicy" SetMempolicy(policy: MemPolicy),
}

/// The first number of our own calls. Smaller numbers are Linux's.
const OURS: u64 = 0x1000;

impl Call<'_> {
    /// Number and registers on Linux for x86-64; `None` if Linux does not have the call in this form.
    pub fn on_linux(self) -> Option<(u64, [u64; 6])> {
        let (number, args) = self.encode(|_| Buffer::anywhere(0));
        (number < OURS).then_some((number, args))
    }

    /// The call that these registers hold on Linux for x86-64, if it has a row here.
    pub fn of_linux(number: u64, args: [u64; 6]) -> Option<Call<'static>> {
        let anywhere = 0..u64::MAX;
        if number < OURS { Call::decode(number, args, &anywhere).ok() } else { None }
    }

    /// Whether a call with a row here has this number on Linux for x86-64.
    pub fn is_linux(number: u64) -> bool {
        number < OURS && Call::NUMBERS.contains(&number)
    }

    /// Whether it changes which addresses of a process are mapped, or which pages of a mapping exist.
    pub const fn changes_space(&self) -> bool {
        matches!(
            self,
            Call::Mmap(_)
                | Call::Munmap(..)
                | Call::Mprotect(..)
                | Call::Mremap(_)
                | Call::Ftruncate(..)
                | Call::Fork(_)
        )
    }
}

/// Pack two numbers into one value.
pub const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Unpack a [`pair`].
pub const fn unpair(value: u64) -> (u32, u32) {
    (value as u32, (value >> 32) as u32)
}

/// Encode a result in two registers.
pub fn encode_answer(answer: Result<u64, Errno>) -> [u64; 2] {
    match answer {
        Ok(value) => [0, value],
        Err(errno) => [errno.number(), 0],
    }
}

/// Decode a result from two registers.
pub fn decode_answer([error, value]: [u64; 2]) -> Result<u64, Errno> {
    match error {
        0 => Ok(value),
        error => Err(Errno::from_number(error).unwrap_or(Errno::NoSys)),
    }
}

#[cfg(test)]
mod tests;

//! Arguments in registers.

use super::{Buffer, Exit, Signal, Tell, Text};
use crate::{
    Advice, Errno, FileAdvice, Group, GroupLimits, Map, MapSource, MemPolicy, PolicyMode, Prot, Remap,
};
use core::ops::Range;

/// Registers to fill.
pub(super) struct Writer<'h> {
    pub(super) words: [u64; 6],
    pub(super) at: usize,
    pub(super) hold: &'h mut dyn FnMut(&str) -> Buffer,
}

/// Registers to read.
pub(super) struct Reader<'r> {
    pub(super) words: [u64; 6],
    pub(super) at: usize,
    pub(super) arena: &'r Range<u64>,
}

impl Reader<'_> {
    fn flags(&mut self, known: u64) -> Result<u64, Errno> {
        let word = u64::take(self)?;
        if word & !known == 0 { Ok(word) } else { Err(Errno::Inval) }
    }

    /// Read a register that must hold `word`.
    pub(super) fn expect(&mut self, word: u64) -> Result<(), Errno> {
        if u64::take(self)? == word { Ok(()) } else { Err(Errno::Inval) }
    }
}

/// An argument in one register or in consecutive ones.
pub(super) trait Register: Sized {
    fn put(self, to: &mut Writer<'_>);
    fn take(from: &mut Reader<'_>) -> Result<Self, Errno>;
}

impl Register for u64 {
    #[inline]
    fn put(self, to: &mut Writer<'_>) {
        to.words[to.at] = self;
        to.at += 1;
    }

    #[inline]
    fn take(from: &mut Reader<'_>) -> Result<u64, Errno> {
        from.at += 1;
        Ok(from.words[from.at - 1])
    }
}

/// Arguments of one register.
macro_rules! words {
    ($($name:ty: $put:expr, $take:expr;)*) => {$(
        impl Register for $name {
            #[inline]
            fn put(self, to: &mut Writer<'_>) {
                let put: fn($name) -> u64 = $put;
                put(self).put(to);
            }

            #[inline]
            fn take(from: &mut Reader<'_>) -> Result<$name, Errno> {
                let take: fn(u64) -> Option<$name> = $take;
                take(u64::take(from)?).ok_or(Errno::Inval)
            }
        }
    )*};
}

words! {
    u32: u64::from, |word| u32::try_from(word).ok();
    bool: u64::from, |word| (word < 2).then_some(word == 1);
    Prot: Prot::bits, |word| (word <= Prot::ALL.bits()).then(|| Prot::from_bits(word));
    Group: |group| group.0.into(), |word| u32::try_from(word).ok().map(Group);
    Advice: Advice::number, Advice::from_number;
    FileAdvice: FileAdvice::number, FileAdvice::from_number;
    PolicyMode: PolicyMode::number, PolicyMode::from_number;
    Tell: Tell::number, Tell::from_number;
}

impl Register for Option<u32> {
    fn put(self, to: &mut Writer<'_>) {
        self.is_some().put(to);
        self.unwrap_or(0).put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Option<u32>, Errno> {
        let (given, value) = (bool::take(from)?, u32::take(from)?);
        Ok(given.then_some(value))
    }
}

impl Register for Option<Signal> {
    fn put(self, to: &mut Writer<'_>) {
        self.map_or(0, Signal::number).put(to);
        let addr = match self {
            Some(Signal::Segv { addr } | Signal::Bus { addr }) => addr,
            Some(Signal::Kill) | None => 0,
        };
        addr.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Option<Signal>, Errno> {
        Ok(Signal::of(u64::take(from)?, u64::take(from)?))
    }
}

/// Arguments of several registers, in the order of their fields.
macro_rules! fields {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl Register for $name {
            fn put(self, to: &mut Writer<'_>) {
                $(self.$field.put(to);)*
            }

            fn take(from: &mut Reader<'_>) -> Result<$name, Errno> {
                Ok($name { $($field: Register::take(from)?),* })
            }
        }
    )*};
}

fields! {
    MemPolicy { mode, nodes }
    GroupLimits { max, high, low, min, swap_max }
    Exit { signal, accesses, progress, checked, violations }
}

impl Register for Buffer {
    #[inline]
    fn put(self, to: &mut Writer<'_>) {
        self.addr.put(to);
        self.len.put(to);
    }

    #[inline]
    fn take(from: &mut Reader<'_>) -> Result<Buffer, Errno> {
        let (addr, len) = (u64::take(from)?, u64::take(from)?);
        let end = addr.checked_add(len).ok_or(Errno::Fault)?;
        let inside = len == 0 || (from.arena.start <= addr && end <= from.arena.end);
        if inside { Ok(Buffer { addr, len }) } else { Err(Errno::Fault) }
    }
}

impl Register for Text<'_> {
    fn put(self, to: &mut Writer<'_>) {
        match self {
            Text::Said(text) => (to.hold)(text),
            Text::At(buffer) => buffer,
        }
        .put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Errno> {
        Buffer::take(from).map(Text::At)
    }
}

/// Flags of mmap and mremap.
mod flag {
    pub const SHARED: u64 = 0x01;
    pub const PRIVATE: u64 = 0x02;
    pub const FIXED: u64 = 0x10;
    pub const ANONYMOUS: u64 = 0x20;
    pub const LOCKED: u64 = 0x2000;
    pub const POPULATE: u64 = 0x8000;
    pub const MMAP: u64 = SHARED | PRIVATE | FIXED | ANONYMOUS | LOCKED | POPULATE;
    pub const MREMAP_MAYMOVE: u64 = 1;
    pub const MREMAP_FIXED: u64 = 2;
}

/// The descriptor of a mapping without a file.
const NO_FILE: u64 = u64::MAX;

fn flag(on: bool, bit: u64) -> u64 {
    if on { bit } else { 0 }
}

impl Register for Map {
    fn put(self, to: &mut Writer<'_>) {
        let (kind, fd, offset) = match self.source {
            MapSource::Anonymous => (flag::PRIVATE | flag::ANONYMOUS, NO_FILE, 0),
            MapSource::AnonymousShared => (flag::SHARED | flag::ANONYMOUS, NO_FILE, 0),
            MapSource::File { fd, offset, shared } => {
                (if shared { flag::SHARED } else { flag::PRIVATE }, fd.into(), offset)
            }
        };
        let flags = kind
            | flag(self.addr.is_some(), flag::FIXED)
            | flag(self.populate, flag::POPULATE)
            | flag(self.locked, flag::LOCKED);
        [self.addr.unwrap_or(0), self.len, self.prot.bits(), flags, fd, offset]
            .into_iter()
            .for_each(|word| word.put(to));
    }

    fn take(from: &mut Reader<'_>) -> Result<Map, Errno> {
        let (addr, len, prot) = (u64::take(from)?, u64::take(from)?, Prot::take(from)?);
        let flags = from.flags(flag::MMAP)?;
        let has = |bit: u64| flags & bit != 0;
        if has(flag::SHARED) == has(flag::PRIVATE) {
            return Err(Errno::Inval);
        }
        let source = match (has(flag::ANONYMOUS), has(flag::SHARED)) {
            (true, false) => MapSource::Anonymous,
            (true, true) => MapSource::AnonymousShared,
            (false, shared) => MapSource::File { fd: u32::take(from)?, offset: u64::take(from)?, shared },
        };
        Ok(Map {
            addr: has(flag::FIXED).then_some(addr),
            len,
            prot,
            source,
            populate: has(flag::POPULATE),
            locked: has(flag::LOCKED),
        })
    }
}

impl Register for Remap {
    fn put(self, to: &mut Writer<'_>) {
        let flags =
            flag(self.may_move, flag::MREMAP_MAYMOVE) | flag(self.fixed.is_some(), flag::MREMAP_FIXED);
        let words = [self.addr, self.old_len, self.new_len, flags, self.fixed.unwrap_or(0)];
        words.into_iter().for_each(|word| word.put(to));
    }

    fn take(from: &mut Reader<'_>) -> Result<Remap, Errno> {
        let [addr, old_len, new_len] = [u64::take(from)?, u64::take(from)?, u64::take(from)?];
        let (flags, fixed) = (from.flags(flag::MREMAP_MAYMOVE | flag::MREMAP_FIXED)?, u64::take(from)?);
        let may_move = flags & flag::MREMAP_MAYMOVE != 0;
        let fixed = (flags & flag::MREMAP_FIXED != 0).then_some(fixed);
        Ok(Remap { addr, old_len, new_len, may_move, fixed })
    }
}

//! How arguments travel in registers.

use super::{Buffer, Exit, Signal, Tell, Text};
use crate::{
    Advice, Errno, FileAdvice, Group, GroupLimits, Map, MapSource, MemPolicy, PolicyMode, Prot, Remap,
};
use core::ops::Range;

/// Registers that are being filled.
pub(super) struct Writer<'h> {
    pub(super) words: [u64; 6],
    pub(super) at: usize,
    pub(super) hold: &'h mut dyn FnMut(&str) -> Buffer,
}

/// Registers that are being read.
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
}

/// An argument: a register, or several that follow each other.
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

/// What is one number of Linux's, or of its own.
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

/// What is several arguments, in the order of its fields.
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
    pub const FIXED: u64 = 1 << 3;
    pub const POPULATE: u64 = 1 << 4;
    pub const LOCKED: u64 = 1 << 5;
    pub const MAY_MOVE: u64 = 1 << 6;
    /// What stands behind a mapping, in two bits from here on.
    pub const SOURCE: u32 = 8;
    pub const MMAP: u64 = 0b111 | FIXED | POPULATE | LOCKED | 0b11 << SOURCE;
    pub const MREMAP: u64 = FIXED | MAY_MOVE;
}

fn flag(on: bool, bit: u64) -> u64 {
    if on { bit } else { 0 }
}

impl Register for Map {
    fn put(self, to: &mut Writer<'_>) {
        let (source, fd, offset) = match self.source {
            MapSource::Anonymous => (0, 0, 0),
            MapSource::AnonymousShared => (1, 0, 0),
            MapSource::File { fd, offset, shared } => (2 + shared as u64, fd, offset),
        };
        let flags = self.prot.bits()
            | flag(self.addr.is_some(), flag::FIXED)
            | flag(self.populate, flag::POPULATE)
            | flag(self.locked, flag::LOCKED)
            | source << flag::SOURCE;
        [self.addr.unwrap_or(0), self.len, flags, fd.into(), offset]
            .into_iter()
            .for_each(|word| word.put(to));
    }

    fn take(from: &mut Reader<'_>) -> Result<Map, Errno> {
        let (addr, len, bits) = (u64::take(from)?, u64::take(from)?, from.flags(flag::MMAP)?);
        let source = match bits >> flag::SOURCE {
            0 => MapSource::Anonymous,
            1 => MapSource::AnonymousShared,
            kind => MapSource::File { fd: u32::take(from)?, offset: u64::take(from)?, shared: kind == 3 },
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
}

impl Register for Remap {
    fn put(self, to: &mut Writer<'_>) {
        let flags = flag(self.may_move, flag::MAY_MOVE) | flag(self.fixed.is_some(), flag::FIXED);
        let words = [self.addr, self.old_len, self.new_len, flags, self.fixed.unwrap_or(0)];
        words.into_iter().for_each(|word| word.put(to));
    }

    fn take(from: &mut Reader<'_>) -> Result<Remap, Errno> {
        let [addr, old_len, new_len] = [u64::take(from)?, u64::take(from)?, u64::take(from)?];
        let (flags, fixed) = (from.flags(flag::MREMAP)?, u64::take(from)?);
        let (may_move, fixed) = (flags & flag::MAY_MOVE != 0, (flags & flag::FIXED != 0).then_some(fixed));
        Ok(Remap { addr, old_len, new_len, may_move, fixed })
    }
}

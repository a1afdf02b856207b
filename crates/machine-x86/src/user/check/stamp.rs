//! Stamps: what stores leave in memory.
//!
//! A stamp identifies a state of a page. Each 512-byte sector begins with it, so a transfer or a copy of only
//! a part of the page shows. The sector's number is a part of it, so sectors in the wrong order show. A page
//! without stores holds zeroes, which no stamp equals.

use core::fmt;

/// Bytes in a sector.
pub const SECTOR: u64 = 512;
/// Sectors in a page.
pub const SECTORS: u64 = 8;

/// Bits of the sector's number, and one that is 0 in every stamp.
const SECTOR_BITS: u32 = 4;
const VERSION_BITS: u32 = 26;
const PAGE_BITS: u32 = 21;
const OWNER_BITS: u32 = 12;
const PAGE_SHIFT: u32 = SECTOR_BITS + VERSION_BITS;
const OWNER_SHIFT: u32 = PAGE_SHIFT + PAGE_BITS;
const FILE_SHIFT: u32 = OWNER_SHIFT + OWNER_BITS;

/// In a [`Mark`], this bit of the sector's field means that the page reads as zeroes.
const ZERO: u64 = 8;

const fn field(word: u64, shift: u32, bits: u32) -> u64 {
    word >> shift & ((1 << bits) - 1)
}

/// The owner of a page, and which of its pages it is. Numbers are kept modulo a power of two: a few owners
/// share one, so a confusion between those is not noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin(u64);

impl Origin {
    /// A page of a file.
    pub fn file(file: u32, page: u64) -> Origin {
        Origin::new(1, file, page)
    }

    /// A private page of a process.
    pub fn process(process: u32, page: u64) -> Origin {
        Origin::new(0, process, page)
    }

    fn new(file: u64, owner: u32, page: u64) -> Origin {
        let owner = owner as u64 % (1 << OWNER_BITS);
        Origin(file << FILE_SHIFT | owner << OWNER_SHIFT | (page % (1 << PAGE_BITS)) << PAGE_SHIFT)
    }
}

/// A state of a page: the stamp in its sectors, without the sectors' numbers, or zeroes. Both have a version;
/// a later state of the same page has a higher one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

impl Mark {
    /// Zeroes before the first store.
    pub const ZERO: Mark = Mark(ZERO);

    /// Zeroes since `version`.
    pub const fn zero(version: u32) -> Mark {
        Mark((version as u64) << SECTOR_BITS | ZERO)
    }

    /// The mark of store number `version` (at least 1) to a page.
    ///
    /// # Panics
    /// If the version does not fit in a stamp: after 67 million stores to one page.
    pub fn stamp(origin: Origin, version: u32) -> Mark {
        assert!(
            version > 0 && version >> VERSION_BITS == 0,
            "a page was stored to more often than stamps can count"
        );
        Mark(origin.0 | (version as u64) << SECTOR_BITS)
    }

    /// The state of a word found at the start of `sector`. A word in the wrong sector gives a state that was
    /// never stored.
    pub const fn found(word: u64, sector: u64) -> Mark {
        match word {
            0 => Mark::ZERO,
            word => Mark(word ^ sector),
        }
    }

    /// The word at the start of `sector`.
    pub const fn word(self, sector: u64) -> u64 {
        if self.is_zero() { 0 } else { self.0 | sector }
    }

    /// Whether it reads as zeroes.
    pub const fn is_zero(self) -> bool {
        self.0 & ZERO != 0
    }

    /// Whether it is a stamp, found in the right sector.
    pub const fn is_stamp(self) -> bool {
        field(self.0, 0, SECTOR_BITS) == 0
    }

    /// Its version.
    pub const fn version(self) -> u32 {
        field(self.0, SECTOR_BITS, VERSION_BITS) as u32
    }

    /// The owner of the page.
    pub const fn origin(self) -> Origin {
        Origin(self.0 >> PAGE_SHIFT << PAGE_SHIFT)
    }

    /// As a word, for an atomic.
    pub(super) const fn to_bits(self) -> u64 {
        self.0
    }

    pub(super) const fn from_bits(bits: u64) -> Mark {
        Mark(bits)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("zeroes");
        }
        let owner = field(self.0, OWNER_SHIFT, OWNER_BITS);
        let kind = if self.0 >> FILE_SHIFT == 1 { "file" } else { "process" };
        let page = field(self.0, PAGE_SHIFT, PAGE_BITS);
        write!(f, "{kind} {owner} page {page:#x} version {}", self.version())?;
        match self.is_stamp() {
            true => Ok(()),
            false => write!(f, " of another sector"),
        }
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stamps_survive_a_round_trip(file: bool, owner: u32, page: u64, version in 1u32..1 << VERSION_BITS,
                                             sector in 0..SECTORS) {
            let origin = if file { Origin::file(owner, page) } else { Origin::process(owner, page) };
            let mark = Mark::stamp(origin, version);
            prop_assert_eq!(Mark::found(mark.word(sector), sector), mark);
            prop_assert_ne!(mark.word(sector), 0);
            prop_assert_eq!((mark.version(), mark.origin()), (version, origin));
            let elsewhere = Mark::found(mark.word(sector), (sector + 1) % SECTORS);
            prop_assert!(elsewhere != mark && !elsewhere.is_stamp());
        }
    }

    #[test]
    fn zero_marks_read_as_zero_in_every_sector() {
        assert!(Mark::zero(7).is_zero() && Mark::zero(7).version() == 7 && Mark::zero(7).word(3) == 0);
        assert_eq!(Mark::found(0, 5), Mark::ZERO);
    }

    #[test]
    fn marks_are_displayed_in_words() {
        assert_eq!(Mark::stamp(Origin::file(3, 0x21), 9).to_string(), "file 3 page 0x21 version 9");
        assert_eq!(Mark::zero(2).to_string(), "zeroes");
    }
}

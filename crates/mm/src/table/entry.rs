//! Page-table entries in x86-64's format.
//!
//! The low bits are the hardware's; an entry that is not present may hold a swap entry instead.

use crate::units::*;

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    /// Bits of an entry.
    pub struct Bits: u64 {
        /// The translation may be used.
        const PRESENT = 1 << 0;
        /// Stores are allowed.
        const WRITE = 1 << 1;
        /// User mode may use it.
        const USER = 1 << 2;
        /// Accessed since cleared (the accessed bit).
        const YOUNG = 1 << 5;
        /// Written since cleared.
        const DIRTY = 1 << 6;
        /// Maps a large page (in a table above the lowest).
        const LARGE = 1 << 7;
        /// A software bit: YOUNG was cleared once, so a CPU may cache the translation although YOUNG is clear.
        const AGED = 1 << 9;
        /// Instruction fetches are forbidden.
        const NO_EXEC = 1 << 63;
    }
}

bitflags::bitflags! {
    /// Bits that an entry may be given without a proof that no CPU caches an older translation of its page: all except
    /// the right to write.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Rights: u64 {
        /// User mode may use it.
        const USER = Bits::USER.bits();
        /// Instruction fetches are forbidden.
        const NO_EXEC = Bits::NO_EXEC.bits();
        /// Accessed.
        const YOUNG = Bits::YOUNG.bits();
        /// Written.
        const DIRTY = Bits::DIRTY.bits();
    }
}

impl Rights {
    /// As bits of an entry. The mask drops anything that is not a right, since raw bits may hold more.
    #[inline]
    pub(crate) const fn bits_of_entry(self) -> Bits {
        Bits::from_bits_truncate(self.bits() & Rights::all().bits())
    }
}

/// The frame number's bits.
const FRAME_MASK: u64 = 0x000f_ffff_ffff_f000;
/// Marks a swap entry: not present, this bit set, the slot from bit 12 up, the exclusive mark in bit 2.
const SWAP: u64 = 1 << 1;
const SWAP_EXCLUSIVE: u64 = 1 << 2;

/// Marks an entry whose page is being migrated: not present, this bit set, all other bits unchanged.
const MIGRATING: u64 = 1 << 10;

/// One page-table entry.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Entry(u64);

/// The content of an entry that maps nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    /// Empty.
    None,
    /// The page is in swap. `exclusive`: no other process shares it.
    Swap {
        /// The slot.
        slot: SwapSlot,
        /// Whether this is the only entry for the slot.
        exclusive: bool,
    },
    /// The page is being migrated ([`Migrating`]).
    Moving(Migrating),
}

impl From<Absent> for Entry {
    #[inline]
    fn from(absent: Absent) -> Entry {
        match absent {
            Absent::None => Entry::NONE,
            Absent::Swap { slot, exclusive } => Entry::swap(slot, exclusive),
            Absent::Moving(migrating) => migrating.0,
        }
    }
}

impl Entry {
    /// The empty entry.
    pub const NONE: Entry = Entry(0);

    /// From the raw value in a table.
    #[inline]
    pub const fn from_raw(raw: u64) -> Entry {
        Entry(raw)
    }

    /// The raw value, with the bits that hardware has set.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// A present entry for a frame. Private to this room, so that no entry becomes writable without a proof.
    #[inline]
    pub(super) const fn new(pfn: Pfn, bits: Bits) -> Entry {
        Entry((pfn.0 as u64) << PAGE_SHIFT | bits.bits())
    }

    /// An entry that points to the next table.
    #[inline]
    pub(super) const fn table(pfn: Pfn) -> Entry {
        Entry::new(pfn, Bits::PRESENT.union(Bits::WRITE).union(Bits::USER).union(Bits::YOUNG))
    }

    /// An entry whose page is in swap. `exclusive`: no other process shares it.
    #[inline]
    pub(super) const fn swap(slot: SwapSlot, exclusive: bool) -> Entry {
        Entry((slot.0 as u64) << PAGE_SHIFT | SWAP | if exclusive { SWAP_EXCLUSIVE } else { 0 })
    }

    /// Whether the entry is empty; a swap entry is not.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether hardware may use it.
    #[inline]
    pub const fn is_present(self) -> bool {
        self.0 & Bits::PRESENT.bits() != 0
    }

    /// The bits.
    #[inline]
    pub const fn bits(self) -> Bits {
        Bits::from_bits_truncate(self.0 & !FRAME_MASK)
    }

    /// Whether all of `bits` are set.
    #[inline]
    pub const fn has(self, bits: Bits) -> bool {
        self.0 & bits.bits() == bits.bits()
    }

    /// The frame that a present entry points to.
    #[inline]
    pub const fn pfn(self) -> Pfn {
        Pfn(((self.0 & FRAME_MASK) >> PAGE_SHIFT) as u32)
    }

    /// The entry of the same kind `pages` pages further on, for the folio's next frames. The empty entry stays empty.
    #[inline]
    pub(super) const fn ahead(self, pages: u32) -> Entry {
        Entry(self.0 + ((pages as u64) << PAGE_SHIFT))
    }

    /// The slot of a swap entry, and whether it is exclusive.
    #[inline]
    pub(crate) const fn as_swap(self) -> Option<(SwapSlot, bool)> {
        // In other kinds of entry the bit means something else.
        if self.0 & (SWAP | Bits::PRESENT.bits() | MIGRATING) != SWAP {
            return None;
        }
        Some((SwapSlot((self.0 >> PAGE_SHIFT) as u32), self.0 & SWAP_EXCLUSIVE != 0))
    }

    /// What an entry that is not present holds.
    #[inline]
    pub(crate) fn absent(self) -> Absent {
        debug_assert!(!self.is_present());
        if let Some((slot, exclusive)) = self.as_swap() {
            return Absent::Swap { slot, exclusive };
        }
        self.as_migrating().map_or(Absent::None, Absent::Moving)
    }

    /// The entry as a [`Migrating`], if it is one.
    #[inline]
    pub(crate) const fn as_migrating(self) -> Option<Migrating> {
        let found = self.0 & (Bits::PRESENT.bits() | MIGRATING) == MIGRATING;
        if found { Some(Migrating(self)) } else { None }
    }

    /// The entry that replaces a present one while its page is migrated.
    #[inline]
    pub(super) const fn migrating(self) -> Entry {
        Entry(self.0 & !Bits::PRESENT.bits() | MIGRATING)
    }

    /// With `bits` set.
    #[inline]
    pub const fn with(self, bits: Bits) -> Entry {
        Entry(self.0 | bits.bits())
    }

    /// With `bits` cleared.
    #[inline]
    #[must_use]
    pub const fn without(self, bits: Bits) -> Entry {
        Entry(self.0 & !bits.bits())
    }
}

/// An entry whose page is being migrated. It holds no reference, and records what the entry for the new frame will be.
/// It is made from a present entry and never gains rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrating(Entry);

impl Migrating {
    /// The frame that the page is leaving, or returns to. Its folio stays locked while such an entry exists.
    #[inline]
    pub const fn page(self) -> Pfn {
        self.0.pfn()
    }

    /// Whether it was a 2 MiB entry.
    #[inline]
    pub const fn is_large(self) -> bool {
        self.0.has(Bits::LARGE)
    }

    /// Whether the page may be written once it is mapped again.
    #[inline]
    pub const fn writes(self) -> bool {
        self.0.has(Bits::WRITE)
    }

    /// The other rights and marks.
    #[inline]
    pub const fn rights(self) -> Rights {
        Rights::from_bits_truncate(self.0.0)
    }

    /// With `rights` in place of its own. It keeps its marks, and the right to write unless `read_only`.
    pub(crate) fn with_rights(self, rights: Rights, read_only: bool) -> Migrating {
        let kept = self.rights() & (Rights::YOUNG | Rights::DIRTY);
        let gone = Rights::all().bits_of_entry() | if read_only { Bits::WRITE } else { Bits::empty() };
        Migrating(self.0.without(gone).with((rights | kept).bits_of_entry()))
    }

    /// Without the right to write.
    pub fn read_only(self) -> Migrating {
        Migrating(self.0.without(Bits::WRITE))
    }

    pub(crate) fn forgetting(self, marks: Rights) -> Migrating {
        Migrating(self.0.without(marks.bits_of_entry()))
    }
}

impl core::fmt::Debug for Entry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.as_migrating().is_some() {
            return write!(f, "moving({}{:?})", self.pfn(), self.bits());
        }
        match self.as_swap() {
            Some((slot, exclusive)) => write!(f, "swap({slot}{})", if exclusive { " exclusive" } else { "" }),
            None if self.is_present() => write!(f, "{}{:?}", self.pfn(), self.bits()),
            None => write!(f, "none({:x})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_from_raw_bits_hold_only_rights() {
        assert_eq!(Rights::from_bits_retain(u64::MAX).bits_of_entry(), Rights::all().bits_of_entry());
        assert!(!Rights::all().bits_of_entry().contains(Bits::WRITE));
    }

    #[test]
    fn entries_round_trip() {
        let bits = Bits::PRESENT | Bits::WRITE | Bits::NO_EXEC | Bits::DIRTY;
        let entry = Entry::new(Pfn(0xfff_fffe), bits);
        assert_eq!((entry.pfn(), entry.bits(), entry.as_swap()), (Pfn(0xfff_fffe), bits, None));
        assert_eq!(Entry::swap(SwapSlot(77), true).as_swap(), Some((SwapSlot(77), true)));
        assert!(!Entry::swap(SwapSlot(0), false).is_none());
        assert!(Entry::NONE.as_swap().is_none());
    }

    #[test]
    fn migrating_entry_keeps_rights_and_marks() {
        let bits = Bits::PRESENT | Bits::WRITE | Bits::USER | Bits::DIRTY | Bits::AGED | Bits::LARGE;
        let moving = Entry::new(Pfn(77), bits).migrating();
        assert!(!moving.is_present() && moving.as_swap().is_none() && !moving.is_none());
        let migrating = moving.as_migrating().unwrap();
        assert_eq!((migrating.page(), migrating.is_large(), migrating.writes()), (Pfn(77), true, true));
        assert_eq!(migrating.rights(), Rights::USER | Rights::DIRTY);
        let less = migrating.with_rights(Rights::NO_EXEC, true).forgetting(Rights::YOUNG);
        assert_eq!((less.rights(), less.writes()), (Rights::NO_EXEC | Rights::DIRTY, false));
        assert_eq!(Entry::from(Absent::Moving(less)).absent(), Absent::Moving(less));
        for other in [Entry::NONE, Entry::swap(SwapSlot(9), true), Entry::new(Pfn(3), Bits::PRESENT)] {
            assert_eq!(other.as_migrating(), None);
        }
    }
}

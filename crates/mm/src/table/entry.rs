//! Page-table entries in x86-64's format.
//!
//! The low bits are the hardware's; an entry that is not present may hold a swap entry instead.

use crate::units::*;

bitflags::bitflags! {
    /// Bits of an entry.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Bits: u64 {
        /// The translation may be used.
        const PRESENT = 1 << 0;
        /// Stores are allowed.
        const WRITE = 1 << 1;
        /// User mode may use it.
        const USER = 1 << 2;
        /// Used since cleared (the accessed bit).
        const YOUNG = 1 << 5;
        /// Written since cleared.
        const DIRTY = 1 << 6;
        /// Maps a large page (in a table above the lowest).
        const LARGE = 1 << 7;
        /// Not the hardware's: YOUNG was cleared once, so a CPU may hold the translation although YOUNG is clear.
        const AGED = 1 << 9;
        /// Instruction fetches are forbidden.
        const NO_EXEC = 1 << 63;
    }
}

bitflags::bitflags! {
    /// What an entry can be given without a proof that nobody holds an older translation of its page: all but the right
    /// to write.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Rights: u64 {
        /// User mode may use it.
        const USER = Bits::USER.bits();
        /// Instruction fetches are forbidden.
        const NO_EXEC = Bits::NO_EXEC.bits();
        /// Counts as used.
        const YOUNG = Bits::YOUNG.bits();
        /// Counts as written.
        const DIRTY = Bits::DIRTY.bits();
    }
}

impl Rights {
    /// As bits of an entry. Nothing but rights: a value made from raw bits may hold more.
    #[inline]
    pub const fn bits_of_entry(self) -> Bits {
        Bits::from_bits_truncate(self.bits() & Rights::all().bits())
    }
}

/// The frame number's bits.
const FRAME_MASK: u64 = 0x000f_ffff_ffff_f000;
/// A swap entry: not present, this bit set, the slot from bit 12 on, the exclusive mark in bit 2.
const SWAP: u64 = 1 << 1;
const SWAP_EXCLUSIVE: u64 = 1 << 2;

/// An entry whose page is on its way to another frame: not present, this bit set, all else as it was.
const MIGRATING: u64 = 1 << 10;

/// One page-table entry.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Entry(u64);

/// What an entry holds that maps nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    /// Nothing.
    None,
    /// The page is in swap. `exclusive`: no other process shares it.
    Swap {
        /// Where.
        slot: SwapSlot,
        /// Only this entry knows it.
        exclusive: bool,
    },
    /// The page is being moved to another frame ([`Migrating`]).
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
    /// Nothing there.
    pub const NONE: Entry = Entry(0);

    /// What hardware finds in a table.
    #[inline]
    pub const fn from_raw(raw: u64) -> Entry {
        Entry(raw)
    }

    /// What hardware puts into a table, having set bits.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// A present entry for a frame. Only this room makes one, so that none is made writable without a proof.
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

    /// Is nothing there, not even a swap entry?
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// May hardware use it?
    #[inline]
    pub const fn is_present(self) -> bool {
        self.0 & Bits::PRESENT.bits() != 0
    }

    /// The bits.
    #[inline]
    pub const fn bits(self) -> Bits {
        Bits::from_bits_truncate(self.0 & !FRAME_MASK)
    }

    /// Are all of these bits set?
    #[inline]
    pub const fn has(self, bits: Bits) -> bool {
        self.0 & bits.bits() == bits.bits()
    }

    /// The frame that a present entry points to.
    #[inline]
    pub const fn pfn(self) -> Pfn {
        Pfn(((self.0 & FRAME_MASK) >> PAGE_SHIFT) as u32)
    }

    /// An entry of the same kind for what comes `pages` pages behind: the next frames of a folio. An entry that maps
    /// nothing has nothing behind it.
    #[inline]
    pub(super) const fn ahead(self, pages: u32) -> Entry {
        Entry(self.0 + ((pages as u64) << PAGE_SHIFT))
    }

    /// The slot of a swap entry, and whether it is exclusive.
    #[inline]
    pub const fn as_swap(self) -> Option<(SwapSlot, bool)> {
        // The bit means something else in other entries.
        if self.0 & (SWAP | Bits::PRESENT.bits() | MIGRATING) != SWAP {
            return None;
        }
        Some((SwapSlot((self.0 >> PAGE_SHIFT) as u32), self.0 & SWAP_EXCLUSIVE != 0))
    }

    /// What an entry that is not present says.
    #[inline]
    pub fn absent(self) -> Absent {
        debug_assert!(!self.is_present());
        if let Some((slot, exclusive)) = self.as_swap() {
            return Absent::Swap { slot, exclusive };
        }
        self.as_migrating().map_or(Absent::None, Absent::Moving)
    }

    /// An entry whose page is being moved, if it is one.
    #[inline]
    pub const fn as_migrating(self) -> Option<Migrating> {
        let found = self.0 & (Bits::PRESENT.bits() | MIGRATING) == MIGRATING;
        if found { Some(Migrating(self)) } else { None }
    }

    /// What takes the place of a present entry while its page is moved.
    #[inline]
    pub(super) const fn migrating(self) -> Entry {
        Entry(self.0 & !Bits::PRESENT.bits() | MIGRATING)
    }

    /// With more bits.
    #[inline]
    pub const fn with(self, bits: Bits) -> Entry {
        Entry(self.0 | bits.bits())
    }

    /// Without some bits.
    #[inline]
    #[must_use]
    pub const fn without(self, bits: Bits) -> Entry {
        Entry(self.0 & !bits.bits())
    }
}

/// An entry whose page is being moved. It holds no reference, and says what the entry for the page's new place will
/// say. Only a present entry becomes one, and none is given more rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrating(Entry);

impl Migrating {
    /// The frame that the page leaves, or comes back to. Its folio is locked as long as an entry says this.
    #[inline]
    pub const fn page(self) -> Pfn {
        self.0.pfn()
    }

    /// Was it an entry of 2 MiB?
    #[inline]
    pub const fn is_large(self) -> bool {
        self.0.has(Bits::LARGE)
    }

    /// May the page be written through the entry when it is back?
    #[inline]
    pub const fn writes(self) -> bool {
        self.0.has(Bits::WRITE)
    }

    /// The other rights and marks.
    #[inline]
    pub const fn rights(self) -> Rights {
        Rights::from_bits_truncate(self.0.0)
    }

    /// With these rights in the place of what it has, its marks, and the right to write unless that is taken.
    pub fn with_rights(self, rights: Rights, read_only: bool) -> Migrating {
        let kept = self.rights() & (Rights::YOUNG | Rights::DIRTY);
        let gone = Rights::all().bits_of_entry() | if read_only { Bits::WRITE } else { Bits::empty() };
        Migrating(self.0.without(gone).with((rights | kept).bits_of_entry()))
    }

    /// Without the right to write.
    pub fn read_only(self) -> Migrating {
        Migrating(self.0.without(Bits::WRITE))
    }

    /// Without some marks.
    pub fn forgetting(self, marks: Rights) -> Migrating {
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
    fn rights_made_from_raw_bits_are_rights() {
        assert_eq!(Rights::from_bits_retain(u64::MAX).bits_of_entry(), Rights::all().bits_of_entry());
        assert!(!Rights::all().bits_of_entry().contains(Bits::WRITE));
    }

    #[test]
    fn entries_give_back_what_was_put_in() {
        let bits = Bits::PRESENT | Bits::WRITE | Bits::NO_EXEC | Bits::DIRTY;
        let entry = Entry::new(Pfn(0xfff_fffe), bits);
        assert_eq!((entry.pfn(), entry.bits(), entry.as_swap()), (Pfn(0xfff_fffe), bits, None));
        assert_eq!(Entry::swap(SwapSlot(77), true).as_swap(), Some((SwapSlot(77), true)));
        assert!(!Entry::swap(SwapSlot(0), false).is_none());
        assert!(Entry::NONE.as_swap().is_none());
    }

    #[test]
    fn an_entry_whose_page_is_moved_says_what_it_said() {
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

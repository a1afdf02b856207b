//! A locked tree of a space that nobody holds an old translation of.

use super::{Bits, Entry, LEVELS, Locked, Paid, Rights, Slot, TABLE_ENTRIES, new_table};
use crate::alloc::{Allocator, Mark, NeedsReclaim, Reserve};
use crate::event::{Concern, Event};
use crate::frame::Owner;
use crate::machine::Machine;
use crate::tlb::FileSettled;
use crate::units::*;
use core::ops::{Deref, DerefMut};

/// May a page be written through an entry?
#[derive(Debug)]
pub enum Writes {
    /// No.
    No,
    /// Yes; only this space sees it.
    Private,
    /// Yes; everybody who maps the file sees it.
    Shared(FileSettled),
}

/// The locked tree of a space, when all that was owed for the space, or for one of its tables, has been paid under this very
/// lock. Only [`Locked::settle`] and [`Locked::settle_at`] make one. Pages may now change what they show, and be written.
pub struct Settled<'a, M>(Locked<'a, M>);

impl<'a, M> Deref for Settled<'a, M> {
    type Target = Locked<'a, M>;

    #[inline]
    fn deref(&self) -> &Locked<'a, M> {
        &self.0
    }
}

impl<M> DerefMut for Settled<'_, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<'a, M: Machine> Settled<'a, M> {
    #[inline]
    pub(super) fn new(mut locked: Locked<'a, M>, paid: Paid) -> Settled<'a, M> {
        locked.settled = paid;
        Settled(locked)
    }

    /// Map a frame for `page`. The entry was empty, or has been cleared and flushed under this lock.
    #[inline]
    pub fn install(&mut self, slot: Slot, page: Vpn, pfn: Pfn, rights: Rights, writes: Writes) {
        let mut bits = Bits::PRESENT | rights.bits_of_entry();
        bits.set(Bits::WRITE, self.admit(slot.table, pfn, writes));
        self.means_something_else(page);
        let old = self.replace(slot, Entry::new(pfn, bits));
        debug_assert!(!old.is_present(), "{old:?} was not cleared first");
    }

    /// Let a present entry be written; it counts as written and used.
    #[inline]
    pub fn allow_writes(&mut self, slot: Slot, page: Vpn, writes: Writes) {
        let allowed = self.admit(slot.table, self.read(slot).pfn(), writes);
        assert!(allowed, "nothing is allowed to {page}");
        self.means_something_else(page);
        self.set_bits(slot, Bits::WRITE | Bits::DIRTY | Bits::YOUNG);
    }

    /// Tells who traces that the page shows something else, or allows more, from here on.
    #[inline]
    fn means_something_else(&self, page: Vpn) {
        let concern = Concern::Pages { space: self.space, first: page, count: 1 };
        self.base.event(Event::TlbHazard, concern.args());
    }

    /// May the frame be written through the entry? Tells who traces that a file is about to change.
    fn admit(&self, table: Pfn, pfn: Pfn, writes: Writes) -> bool {
        // Another lock can be assigned to this one; what was paid stays with the lock under which it was.
        let settled = self.settled == Paid::All || self.settled == Paid::Table(table);
        assert!(settled, "the lock of {} is not the one that was settled", self.space);
        let head = self.base.frames.head(pfn);
        match (writes, self.base.frames[head].owner()) {
            (Writes::No, _) => false,
            (Writes::Private, owner) => {
                assert!(!matches!(owner, Owner::File(_)), "{pfn} of {owner:?} is not private");
                true
            }
            (Writes::Shared(settled), owner) => {
                assert_eq!(owner, Owner::File(settled.file()), "{pfn} is of another file");
                let index = self.base.frames[head].page_index().0 + (pfn.0 - head.0) as u64;
                let concern = Concern::File { file: settled.file(), first: PageIndex(index), count: 1 };
                self.base.event(Event::TlbHazard, concern.args());
                true
            }
        }
    }

    /// Move an entry, whatever it is, to an empty place. The caller flushes the old page before it unlocks the tree.
    pub fn move_entry(&mut self, from: Slot, to: Slot) -> Entry {
        let entry = self.replace(from, Entry::NONE);
        let old = self.replace(to, entry);
        assert!(old.is_none(), "{entry:?} is moved over {old:?}");
        entry
    }

    /// Let a child's empty entry say what its parent's says now, without the marks in `forget`. The right to write goes
    /// along: whoever may write to the page through one entry may do so through another.
    pub fn inherit(&mut self, slot: Slot, parent: &Locked<'_, M>, from: Slot, forget: Rights) {
        let old = self.replace(slot, parent.read(from).without(forget.bits_of_entry()));
        debug_assert!(old.is_none());
    }

    /// Map an aligned 2 MiB range with one large entry. The range has no table.
    pub fn map_large(
        &mut self,
        alloc: &Allocator,
        page: Vpn,
        (pfn, rights, writes): (Pfn, Rights, Writes),
        mark: Mark,
        reserve: Reserve,
    ) -> Result<(), NeedsReclaim> {
        assert!(page.0.is_multiple_of(TABLE_ENTRIES as u64));
        let mut table = self.root;
        for level in (2..LEVELS).rev() {
            let slot = self.slot(table, page, level);
            let next = self.read(slot);
            table = if next.is_present() {
                next.pfn()
            } else {
                let new = new_table(self.base, alloc, mark, reserve)?;
                self.replace(slot, Entry::table(new));
                self.counts.tables += 1;
                new
            };
        }
        let mut bits = Bits::PRESENT | Bits::LARGE | rights.bits_of_entry();
        bits.set(Bits::WRITE, self.admit(table, pfn, writes));
        let slot = self.slot(table, page, 1);
        let old = self.replace(slot, Entry::new(pfn, bits));
        assert!(old.is_none(), "a large entry over {old:?}");
        Ok(())
    }
}

//! A locked tree of a space that nobody holds an old translation of.

use super::run::MARKS;
use super::{Bits, Entry, EntryRun, LockedTables, Paid, Rights, Slot};
use crate::event::{Concern, Event};
use crate::frame::{FolioPages, FrameFlags, Owner};
use crate::linear::linear;
use crate::machine::Machine;
use crate::primitive::Ordering::*;
use crate::tlb::{FileSettled, Range, stale};
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

/// Entries of a range move to other addresses; the old ones are flushed when all have moved.
#[must_use = "CPUs may still use the old places: end it with `Settled::moved`"]
pub struct Moving {
    start: Vpn,
    pages: u64,
}

linear!(Moving, "entries were moved and their old places not flushed: end the move with `Settled::moved`");

impl Moving {
    /// Those of some pages from `start` on.
    pub fn of(start: Vpn, pages: u64) -> Moving {
        Moving { start, pages }
    }
}

/// The locked tree of a space, when all that was owed for the space, or for one of its tables, has been paid under this
/// very lock. Only [`LockedTables::settle`] and [`LockedTables::settle_at`] make one. Pages may now change what they show, and be
/// written.
pub struct Settled<'a, M>(LockedTables<'a, M>);

impl<'a, M> Deref for Settled<'a, M> {
    type Target = LockedTables<'a, M>;

    #[inline]
    fn deref(&self) -> &LockedTables<'a, M> {
        &self.0
    }
}

impl<M> DerefMut for Settled<'_, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<M: Machine> LockedTables<'_, M> {
    /// Tells who traces that pages show something else, or allow more, from here on.
    #[inline]
    pub(super) fn means_something_else(&self, page: Vpn, count: u32) {
        let concern = Concern::Pages { space: self.space, first: page, count: count as u64 };
        self.mmu.event(Event::TlbHazard, concern.args());
    }
}

impl<'a, M: Machine> Settled<'a, M> {
    #[inline]
    pub(super) fn new(mut locked: LockedTables<'a, M>, paid: Paid) -> Settled<'a, M> {
        locked.settled = paid;
        Settled(locked)
    }

    /// Map pages of a folio from `page` on. The entries were empty, or have been cleared and flushed under this lock.
    #[inline]
    pub fn install(&mut self, slot: Slot, page: Vpn, pages: FolioPages, rights: Rights, writes: Writes) {
        let mut bits = Bits::PRESENT | rights.bits_of_entry();
        bits.set(Bits::WRITE, self.admit(slot.table, pages, writes));
        self.vacated.check(page, pages.count);
        self.means_something_else(page, pages.count);
        let present = self.put_run(slot, Entry::new(pages.first, bits), pages.count);
        debug_assert!(!present, "an entry for {page} was not cleared first");
    }

    /// Let the present entry that maps `page` be written; it counts as written and used.
    #[inline]
    pub fn allow_writes(&mut self, slot: Slot, page: Vpn, writes: Writes) {
        let entry = self.read(slot);
        let mut mapped = FolioPages::one(&self.mmu.frames, entry.pfn());
        let mut first = page;
        if entry.has(Bits::LARGE) {
            mapped.count = TABLE_ENTRIES as u32;
            first = Vpn(page.0 & !(TABLE_ENTRIES as u64 - 1));
        }
        let allowed = self.admit(slot.table, mapped, writes);
        assert!(allowed, "nothing is allowed to {page}");
        self.means_something_else(first, mapped.count);
        self.set_bits(slot, 1, Bits::WRITE | Bits::DIRTY | Bits::YOUNG);
    }

    /// Let the anonymous pages of `[start, end)` that no other space can see be written, those of entries that forbid
    /// it to this space. They do not count as used or written for that. Returns how many entries have changed.
    pub fn allow_exclusive_writes(&mut self, start: Vpn, end: Vpn) -> u64 {
        assert!(self.settled == Paid::All, "the lock of {} is not settled", self.space);
        let mut allowed = 0;
        self.0.for_each(start, end, |tables, run| {
            let right = run.entry.bits() & (Bits::USER | Bits::WRITE);
            if !run.entry.is_present() || right != Bits::USER || run.page < start || run.end() > end {
                return;
            }
            for at in 0..run.count {
                let (slot, pages) = (run.slot.ahead(at), 1u32 << run.order.0);
                let first = tables.read(slot).pfn();
                let frames = &tables.mmu.frames;
                let exclusive = |pfn: Pfn| frames[pfn].has(FrameFlags::EXCLUSIVE);
                if frames[frames.head(first)].is_anon() && (0..pages).all(|i| exclusive(first.add(i))) {
                    tables.means_something_else(Vpn(run.page.0 + (u64::from(at) << run.order.0)), pages);
                    tables.set_bits(slot, 1, Bits::WRITE);
                    allowed += 1;
                }
            }
        });
        allowed
    }

    /// May pages be written through entries of a table? Tells who traces that a file is about to change.
    #[inline]
    pub(super) fn admit(&self, table: Pfn, pages: FolioPages, writes: Writes) -> bool {
        // Another lock can be assigned to this one; what was paid stays with the lock under which it was.
        let settled = self.settled == Paid::All || self.settled == Paid::Table(table);
        assert!(settled, "the lock of {} is not the one that was settled", self.space);
        let head = self.head_of(pages);
        match (writes, head.owner()) {
            (Writes::No, _) => false,
            (Writes::Private, owner) => {
                assert!(!matches!(owner, Owner::File(_)), "{} of {owner:?} is not private", pages.first);
                true
            }
            (Writes::Shared(settled), owner) => {
                assert_eq!(owner, Owner::File(settled.file()), "{} is of another file", pages.first);
                let first = PageIndex(head.page_index().0 + pages.offset() as u64);
                let concern = Concern::File { file: settled.file(), first, count: pages.count as u64 };
                self.mmu.event(Event::TlbHazard, concern.args());
                true
            }
        }
    }

    /// Move a run of entries, whatever they are, to empty places of one table.
    pub fn move_run(&mut self, run: &EntryRun, to: Slot, moving: &Moving) {
        let within = moving.start <= run.page && run.end().0 <= moving.start.0 + moving.pages;
        assert!(within, "{run:?} is not of the range that is moved");
        assert_eq!(self.empty_from(to, run.count), run.count, "{run:?} is moved over other entries");
        let mut moved = run.entry;
        for i in 0..run.count {
            let entry = self.replace(run.slot.ahead(i), Entry::NONE);
            self.replace(to.ahead(i), entry);
            moved = if i == 0 { entry } else { moved.with(entry.bits() & MARKS) };
        }
        if moved.is_present() {
            let head = run.mapped(&self.mmu.frames).head;
            stale(self.mmu, &run.cleared(self.space, moved, head), true);
        }
    }

    /// All entries of a range have moved: nobody may find an old place empty while a CPU can still use it.
    pub fn moved(&mut self, moving: Moving) {
        let (start, count) = (moving.start, moving.pages);
        self.mmu.tlb.flush(self.mmu, self.space, Range::pages(start, count));
        let concern = Concern::Emptied { space: self.space, first: start, count };
        self.mmu.event(Event::TlbHazard, concern.args());
        moving.spend();
    }

    /// Let a child's empty entries say what its parent's run says now, without the marks in `forget`. The right to
    /// write goes along: whoever may write to a page through one entry may do so through another.
    pub fn inherit(&mut self, slot: Slot, parent: &LockedTables<'_, M>, run: &EntryRun, forget: Rights) {
        let mut new = 0;
        for (cell, from) in self.cells(slot, run.count).iter().zip(parent.cells(run.slot, run.count)) {
            let entry = Entry::from_raw(from.load(Acquire)).without(forget.bits_of_entry());
            let old = Entry::from_raw(cell.swap(entry.raw(), AcqRel));
            assert!(old.is_none(), "an entry is set over another");
            new += 1;
        }
        self.count_entries(slot.table, new);
    }
}

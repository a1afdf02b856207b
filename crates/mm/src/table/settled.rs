//! The locked tree of a space of which no CPU caches a stale translation.

use super::run::MARKS;
use super::{Bits, Entry, EntryRun, LockedTables, Paid, Rights, Slot};
use crate::event::{Concern, Event};
use crate::frame::{FolioPages, FrameFlags, Owner};
use crate::machine::Machine;
use crate::mmu::Mmu;
use crate::primitive::Ordering::*;
use crate::tlb::{FileSettled, Range, stale};
use crate::units::*;
use base::{demand, linear};
use core::ops::{Deref, DerefMut};

/// Whether an entry may be writable, and why that is safe.
#[derive(Debug)]
pub enum Writes {
    /// Not writable.
    No,
    /// Writable; the page is private to this space.
    Private,
    /// Writable; every mapping of the file shows the store.
    Shared(PageSettled),
}

/// Proof that a page of a file may be written through an entry: what was owed for the file was paid while its folio was
/// locked, and the folio still is.
#[derive(Debug)]
#[must_use = "it stands for a payment that was made for a store"]
pub struct PageSettled {
    folio: Pfn,
    file: FileSettled,
}

impl PageSettled {
    /// Pay what is owed for the file of the folio at `folio`.
    ///
    /// # Panics
    /// If it is not a locked folio of a file: another task could unmap it after the payment.
    pub fn new<M: Machine>(mmu: &Mmu<M>, folio: Pfn) -> PageSettled {
        let frame = &mmu.frames[folio];
        demand!(frame.has(FrameFlags::LOCKED), [folio]; "{folio} must be locked before its file is paid for");
        let Owner::File(file) = frame.owner() else {
            base::demand::fail(move || panic!("{folio} must be a file's"))
        };
        PageSettled { folio, file: mmu.tlb.settle_file(mmu.host(), file) }
    }
}

/// Entries of a range move to other addresses. The old addresses are flushed once all have moved.
#[must_use = "CPUs may still use the old places: end it with `Settled::moved`"]
pub struct Moving {
    start: Vpn,
    pages: u64,
}

linear!(Moving, "entries were moved and their old places not flushed: end the move with `Settled::moved`");

impl Moving {
    /// A move of `pages` pages starting at `start`.
    pub fn of(start: Vpn, pages: u64) -> Moving {
        Moving { start, pages }
    }
}

/// The locked tree of a space, or a locked table, with everything owed for it, or for one of its tables, paid in this
/// hold of the lock. Only [`LockedTables::settle`] and [`LockedTables::settle_at`] make one. Entries may now map other
/// pages and become writable.
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
    /// Report to tracers that pages show something else, or allow more, from here on.
    #[inline]
    pub(super) fn means_something_else(&self, page: Vpn, count: u32) {
        let concern = Concern::Pages { space: self.space, first: page, count: count as u64 };
        self.mmu.event(Event::TlbHazard, concern.args());
    }
}

impl<'a, M: Machine> Settled<'a, M> {
    #[inline]
    pub(super) fn new(locked: LockedTables<'a, M>, paid: Paid) -> Settled<'a, M> {
        locked.settled.set(paid);
        Settled(locked)
    }

    /// Map pages of a folio at `page`. The entries were empty, or have been cleared and flushed in this hold of the
    /// lock.
    #[inline(always)]
    pub fn install(&mut self, slot: Slot, page: Vpn, pages: FolioPages, rights: Rights, writes: Writes) {
        let mut bits = Bits::PRESENT | rights.bits_of_entry();
        bits.set(Bits::WRITE, self.admit(slot.table, pages, writes));
        self.vacated.check(page, pages.count);
        self.means_something_else(page, pages.count);
        let present = self.put_run(slot, Entry::new(pages.first, bits), pages.count);
        debug_assert!(!present, "the entry for {page} must be cleared before it is installed");
    }

    /// Make the present entry that maps `page` writable; it counts as written and accessed.
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
        demand!(allowed, [page]; "{page} must be writable to its caller");
        self.means_something_else(first, mapped.count);
        self.set_bits(slot, 1, Bits::WRITE | Bits::DIRTY | Bits::YOUNG);
    }

    /// Make the exclusive anonymous pages of `[start, end)` writable where an entry forbids it. Their entries do not
    /// count as accessed or written by this. Returns how many entries changed.
    pub(crate) fn allow_exclusive_writes(&mut self, start: Vpn, end: Vpn) -> u64 {
        assert!(self.settled.get() == Paid::All, "the whole of {} must be settled", self.space);
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

    /// Assert that pages may be writable through entries of a table, and report to tracers that a file is about to
    /// change.
    #[inline(always)]
    pub(super) fn admit(&self, table: Pfn, pages: FolioPages, writes: Writes) -> bool {
        // A `LockedTables` can be swapped for another, but what was paid stays with the lock under which it was paid.
        let paid = self.settled.get();
        let settled = paid == Paid::All || paid == Paid::Table(table);
        demand!(settled, [space = self.space]; "the table of {space} must be settled in this hold of the lock");
        let head = self.head_of(pages);
        match (writes, head.owner()) {
            (Writes::No, _) => false,
            (Writes::Private, owner) => {
                let private = !matches!(owner, Owner::File(_));
                demand!(private, [page = pages.first, owner]; "{page} of {owner:?} must be private");
                true
            }
            (Writes::Shared(settled), owner) => {
                let PageSettled { folio, file } = settled;
                let same = owner == Owner::File(file.file()) && folio == pages.head;
                demand!(
                    same && head.has(FrameFlags::LOCKED), [page = pages.first];
                    "{page} must be the page that was paid for, and still locked"
                );
                let first = PageIndex(head.page_index().0 + pages.offset() as u64);
                let concern = Concern::File { file: file.file(), first, count: pages.count as u64 };
                self.mmu.event(Event::TlbHazard, concern.args());
                true
            }
        }
    }

    /// Move a run of entries of any kind to empty places of one table.
    pub fn move_run(&mut self, run: &EntryRun, to: Slot, moving: &Moving) {
        self.assert_alone("moving entries");
        let within = moving.start <= run.page && run.end().0 <= moving.start.0 + moving.pages;
        demand!(within, [run = *run]; "{run:?} must be within the moved range");
        assert_eq!(self.empty_from(to, run.count), run.count, "the destination of {run:?} must be empty");
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

    /// All entries of a range have moved. Flush the old addresses, so that none can be empty while a CPU still caches
    /// it.
    pub fn moved(&mut self, moving: Moving) {
        let (start, count) = (moving.start, moving.pages);
        self.mmu.tlb.flush(self.mmu.host(), self.space, Range::pages(start, count));
        let concern = Concern::Emptied { space: self.space, first: start, count };
        self.mmu.event(Event::TlbHazard, concern.args());
        moving.spend();
    }

    /// Set a child's empty entries to those of its parent's run, without the marks in `forget`. The right to write is
    /// inherited: a task that may write through one entry may write through the other.
    pub fn inherit(&mut self, slot: Slot, parent: &LockedTables<'_, M>, run: &EntryRun, forget: Rights) {
        let mut new = 0;
        for (cell, from) in self.cells(slot, run.count).iter().zip(parent.cells(run.slot, run.count)) {
            let entry = Entry::from_raw(from.load(Acquire)).without(forget.bits_of_entry());
            let old = Entry::from_raw(cell.swap(entry.raw(), AcqRel));
            assert!(old.is_none(), "an inherited entry must go to an empty place");
            new += 1;
        }
        self.count_entries(slot.table, new);
    }
}

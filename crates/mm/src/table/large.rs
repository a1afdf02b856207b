//! Entries that map 2 MiB.
//!
//! Such an entry is in a table of level 1, in place of a table of 512 entries, and maps all of a folio that fills it.
//! It holds one reference and counts once in the folio's mapcount.
//!
//! **Splitting.** Before a part of what it maps can be treated differently, it must be split. An entry of a file is
//! just cleared: a task that uses its pages faults them in again. An entry of anonymous memory becomes a table of 512
//! entries that map the same ([`LockedTables::split_large`]). The table was reserved when the entry was made, so that
//! splitting never fails: reclaim and munmap could not handle that.
//!
//! *Problem.* Storing the table's address over the large entry would be one step, but wrong twice. A CPU that caches
//! the large translation continues to use it, and its next walk would find a translation of 4 KiB for the same
//! address. Processors do not define which of the two they use, and some raise a machine check when the two differ,
//! which they do as soon as one of the new entries changes. And bits that hardware sets in the large entry after it
//! was read would be lost.
//!
//! *Rule.* The entry is exchanged for an empty one, which collects its bits, and is flushed on every CPU; only then is
//! the table stored there. In between the address has no translation: a task that uses it faults and waits at the
//! tree, which is held alone all the time. No policy defers this flush: new entries follow at once.
//!
//! *Why not otherwise.* Bits can keep an entry present while hardware may not use it, but only for software walkers.
//! Ours wait for the lock. (x86 Linux: `__split_huge_pmd_locked`; Intel SDM 3A 4.10.2.3; AMD erratum 383.)

use super::walk::index;
use super::{Bits, Entry, EntryRun, LEVELS, LockedTables, Rights, Settled, Shown, Slot, Writes, new_table};
use crate::alloc::{Allocator, Means, NeedsReclaim};
use crate::event::{Concern, Event};
use crate::frame::FolioPages;
use crate::machine::{Machine, Work};
use crate::primitive::Ordering::*;
use crate::tlb::Range;
use crate::units::*;
use base::linear;

/// A 2 MiB entry that has become 512 entries of pages, for which mapcounts and references are still to be taken.
#[must_use = "the new entries would hold no references: give it to `Rmap::split_large`"]
#[derive(Debug)]
pub(crate) struct SplitEntry {
    head: Option<Pfn>,
}

linear!(
    SplitEntry,
    "entries of pages took the place of a 2 MiB entry without references: `Rmap::split_large`"
);

impl SplitEntry {
    /// The folio that is mapped, for the code that takes the references. `None`: it is being moved, so its entries have
    /// none.
    pub(crate) fn into_head(self) -> Option<Pfn> {
        let head = self.head;
        self.spend();
        head
    }
}

impl<M: Machine> LockedTables<'_, M> {
    /// Make the tables above a large entry for `page`, the first of 512. `None`: there is a table or such an entry
    /// already.
    pub(crate) fn reserve_large(
        &mut self,
        alloc: &Allocator,
        page: Vpn,
        means: Means,
    ) -> Result<Option<Slot>, NeedsReclaim> {
        assert!(page.0.is_multiple_of(TABLE_ENTRIES as u64), "{page} begins no large entry");
        let mut table = self.root();
        for level in (2..LEVELS).rev() {
            let entry = self.at(table, index(page, level));
            if entry.is_present() {
                table = entry.pfn();
                continue;
            }
            if !self.held.is_alone() {
                self.become_alone();
                return self.reserve_large(alloc, page, means);
            }
            table = self.add_table(alloc, self.slot(table, page, level), means)?;
        }
        self.mmu.charge(Work::TableLevel, LEVELS as u64 - 1);
        self.enter(table);
        let slot = self.slot(table, page, 1);
        Ok(Some(slot).filter(|&slot| self.read(slot).is_none()))
    }

    /// The place of a large entry for `page`, if the tables above it exist and the place is empty.
    pub(crate) fn large_place(&self, page: Vpn) -> Option<Slot> {
        let mut table = self.root();
        for level in (2..LEVELS).rev() {
            let entry = self.at(table, index(page, level));
            table = Some(entry).filter(|entry| entry.is_present())?.pfn();
        }
        self.enter(table);
        let slot = self.slot(table, page, 1);
        self.read(slot).is_none().then_some(slot)
    }

    /// Reserve a table for an entry of anonymous memory that is about to be made.
    pub(crate) fn deposit(&mut self, alloc: &Allocator, means: Means) -> Result<(), NeedsReclaim> {
        let table = new_table(self.mmu, alloc, means)?;
        self.tree.deposits.lock().push(table);
        Ok(())
    }

    /// Take back the table that was reserved for an entry of anonymous memory, which is gone.
    pub(crate) fn withdraw(&mut self) -> Pfn {
        let deposit = self.tree.deposits.lock().pop();
        deposit.expect("each large entry of anonymous memory has a table in reserve")
    }

    /// Map a folio of a file with one entry, where every old translation of the addresses shows the same content (as in
    /// [`LockedTables::install_unchanged`]).
    pub(crate) fn install_large_unchanged(
        &mut self,
        (slot, page): (Slot, Vpn),
        head: Pfn,
        shown: Shown,
        rights: Rights,
    ) {
        self.vacated.check(page, TABLE_ENTRIES as u32);
        let frame = &self.mmu.frames[head];
        let same = shown.is_page_of(frame, 0);
        assert!(same, "{head} of {:?} is not what its address shows: {shown:?}", frame.owner());
        self.put_large(slot, head, rights.bits_of_entry());
    }

    fn put_large(&mut self, slot: Slot, head: Pfn, bits: Bits) {
        assert!(self.mmu.frames[head].order() == PAGEBLOCK_ORDER, "{head} does not fill a large entry");
        let old = self.replace(slot, Entry::new(head, Bits::PRESENT | Bits::LARGE | bits));
        assert!(old.is_none(), "a large entry over {old:?}");
    }

    /// Replace a large entry of anonymous memory by 512 entries that map the same. On return no CPU caches the large
    /// translation. `Rmap::split_large` updates mapcounts and references.
    pub(crate) fn split_large(&mut self, run: &EntryRun) -> SplitEntry {
        assert!(run.is_large());
        self.assert_alone("splitting an entry");
        let mmu = self.mmu;
        let old = self.replace(run.slot, Entry::NONE);
        if old.is_present() {
            // The new entries inherit the reference of the old one. The caller takes the missing ones.
            let _ = mmu.tlb.flush_emptied(mmu.host(), self.emptied(run, old)).into_parts();
        } else {
            // The task that moves the folio may not have flushed yet.
            mmu.tlb.flush(mmu.host(), self.space, Range::entries(run.page, run.pages(), run.order));
        }
        let concern = Concern::Emptied { space: self.space, first: run.page, count: run.pages() };
        mmu.event(Event::TlbHazard, concern.args());
        let table = self.withdraw();
        let first = old.without(Bits::LARGE);
        for (i, cell) in (0..).zip(mmu.machine.table(table)) {
            cell.store(first.ahead(i).raw(), Relaxed);
        }
        mmu.frames[table].set_table(TABLE_ENTRIES as u64);
        mmu.charge(Work::EntrySet, TABLE_ENTRIES as u64);
        self.link_table(run.slot, table);
        SplitEntry { head: old.is_present().then(|| old.pfn()) }
    }
}

impl<M: Machine> Settled<'_, M> {
    /// Map a folio with one entry from `page` on. The place was empty, or was cleared and flushed under this lock.
    pub(crate) fn install_large(&mut self, slot: Slot, page: Vpn, head: Pfn, rights: Rights, writes: Writes) {
        let pages = FolioPages::all(&self.mmu.frames, head);
        let mut bits = rights.bits_of_entry();
        bits.set(Bits::WRITE, self.admit(slot.table, pages, writes));
        self.vacated.check(page, pages.count);
        self.means_something_else(page, pages.count);
        self.put_large(slot, head, bits);
    }
}

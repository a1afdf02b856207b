//! Entries whose pages are being migrated.
//!
//! A task that moves a folio replaces each entry that maps it by a migration entry. When the content is in the new
//! frame, or the move has failed, the task replaces each of these by an entry that maps the new frame or the old one.
//! In between the page has no translation, the entry holds no reference, and a fault waits. The entry may still
//! be removed, copied by fork, moved to another address, or lose rights, and its successor has its latest state.
//!
//! *A read-only entry* is restored without paying debts: a CPU that still reads through its old translation reads the
//! same content as in the copy. A later change of what the address maps is paid for then, as the table is marked. *A
//! writable one* is restored under a settled lock, like any other.

use super::run::MARKS;
use super::{Bits, Entry, EntryRun, LockedTables, Migrating, Rights, Settled, Slot, Writes};
use crate::frame::FolioPages;
use crate::machine::Machine;
use crate::primitive::{AtomicU64, Ordering::*};
use crate::tlb::{Emptied, Generation, UnmapBatch};
use crate::units::*;
use base::{demand, linear};

/// Entries that wait for a folio to be moved.
#[must_use = "entries wait for the folio: end its move with `Rmap::end_move`"]
#[derive(Debug)]
pub(crate) struct Waiting {
    head: Pfn,
    /// Whether an entry was dirty when it was emptied.
    dirty: bool,
    /// What the batch that took the entries must pay before no CPU can store through one.
    owed: Generation,
}

linear!(Waiting, "entries wait for a folio: copy it or give up, and end its move with `Rmap::end_move`");

impl Waiting {
    /// All entries of the folio at `head` wait; `batch` has taken what they were.
    pub fn of(head: Pfn, dirty: bool, batch: &UnmapBatch) -> Waiting {
        Waiting { head, dirty, owed: batch.owed_for_stores() }
    }

    /// The folio.
    pub fn head(&self) -> Pfn {
        self.head
    }

    /// Whether an entry was dirty.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Give up: the pages are where they were.
    pub fn back(self) -> Landing {
        let head = self.head;
        self.spend();
        Landing { from: head, to: head }
    }

    /// The content is in the folio at `to`. `batch` has paid for the entries.
    pub fn copied(self, to: Pfn, batch: &UnmapBatch) -> Landing {
        let paid = self.owed <= batch.paid_up_to() && !batch.owes_for_stores();
        demand!(
            paid, [head = self.head];
            "the batch that took the entries of {head} must be settled before a copy replaces it"
        );
        let from = self.head;
        self.spend();
        Landing { from, to }
    }
}

/// An anonymous page of one process whose entry was clean when its copy began, so that the entry tells of stores that
/// the copy misses.
#[must_use = "it stands for a flush that was made for a copy"]
#[derive(Debug)]
pub(crate) struct Cleaned(Pfn);

impl Cleaned {
    /// The page at `head`, whose entry has just been cleaned and flushed.
    pub fn of(head: Pfn) -> Cleaned {
        Cleaned(head)
    }

    /// The page.
    pub fn head(&self) -> Pfn {
        self.0
    }

    /// It has been copied to `to`.
    pub fn copied(self, to: Pfn) -> UsedCopy {
        UsedCopy { from: self.0, to }
    }
}

/// A copy of such a page.
#[must_use = "the copy is worth what the page's entry says when it is emptied"]
#[derive(Debug)]
pub(crate) struct UsedCopy {
    from: Pfn,
    to: Pfn,
}

impl UsedCopy {
    /// The page, and the frame with the copy.
    pub(crate) fn into_frames(self) -> (Pfn, Pfn) {
        (self.from, self.to)
    }
}

/// Where the pages of a folio are after an attempt to move them: in another folio, with the same content, or in place.
#[must_use = "entries wait for the folio: end its move with `Rmap::end_move`"]
#[derive(Debug)]
pub(crate) struct Landing {
    from: Pfn,
    to: Pfn,
}

linear!(Landing, "entries wait for a folio: end its move with `Rmap::end_move`");

impl Landing {
    /// In their old place, after all.
    pub fn back(mut self) -> Landing {
        self.to = self.from;
        self
    }

    /// All entries that waited map the pages.
    pub fn done(self) {
        self.spend();
    }

    /// The head of the old folio.
    #[inline]
    pub fn from(&self) -> Pfn {
        self.from
    }

    /// The head of the folio that the pages are in.
    #[inline]
    pub fn to(&self) -> Pfn {
        self.to
    }

    /// Where a page is.
    #[inline]
    pub fn place(&self, page: Pfn) -> Pfn {
        self.to.add(page.0 - self.from.0)
    }
}

/// Put a migration entry in place of one that has just been seen. Returns what it replaced: hardware may have marked
/// the entry since, and the migration entry keeps that, too.
fn begin_to_wait(cell: &AtomicU64, seen: Entry) -> Entry {
    let old = Entry::from_raw(cell.swap(seen.migrating().raw(), AcqRel));
    if old != seen {
        // Hardware was faster. It does not change an entry that is not present.
        cell.store(old.migrating().raw(), Release);
    }
    old
}

impl<M: Machine> LockedTables<'_, M> {
    /// Empty a run of present entries whose pages are about to be moved; each place keeps its entry's state.
    pub(crate) fn begin_move(&mut self, run: &EntryRun) -> Emptied {
        demand!(run.entry.is_present(), [run = *run]; "{run:?} maps nothing");
        let mut first = run.entry;
        let mut marks = Bits::empty();
        for (i, cell) in self.cells(run.slot, run.count).iter().enumerate() {
            let old = begin_to_wait(cell, Entry::from_raw(cell.load(Acquire)));
            if i == 0 {
                first = old;
            }
            marks |= old.bits() & MARKS;
        }
        self.vacated.add(run.page, run.pages());
        self.emptied(run, first.with(marks))
    }

    /// The migration entry of a page and those that continue it in the same folio, up to `most` entries.
    pub(crate) fn find_migrating(&self, page: Vpn, most: u32) -> Option<(EntryRun, Migrating)> {
        let mut run = self.find(page)?;
        let migrating = run.entry.as_migrating()?;
        if !run.is_large() {
            let most = most.min(run.slot.room()).min(self.longest_run() as u32);
            let (mut count, mut marked) = (0, run.entry);
            for cell in self.cells(run.slot, most) {
                let next = Entry::from_raw(cell.load(Acquire));
                if next.without(MARKS) != run.entry.ahead(count).without(MARKS) {
                    break;
                }
                marked = marked.with(next.bits() & MARKS);
                count += 1;
            }
            (run.count, run.entry) = (count, marked);
            return Some((run, marked.as_migrating()?));
        }
        Some((run, migrating))
    }

    /// Map pages again by a run of read-only migration entries, where the pages are now.
    pub(crate) fn land(&mut self, run: &EntryRun, landing: &Landing) -> FolioPages {
        demand!(!run.entry.has(Bits::WRITE), [run = *run]; "{run:?} is writable: settle the lock");
        self.put_landed(run, landing, Bits::empty())
    }

    fn put_landed(&mut self, run: &EntryRun, landing: &Landing, write: Bits) -> FolioPages {
        self.vacated.check(run.page, run.pages() as u32);
        let pages = landed(run, landing);
        self.head_of(pages);
        let rights = Rights::from_bits_truncate(run.entry.bits().bits());
        let bits = Bits::PRESENT | write | rights.bits_of_entry() | run.entry.bits() & Bits::LARGE;
        let entry = Entry::new(pages.first, bits);
        for (i, cell) in (0..).zip(self.cells(run.slot, run.count)) {
            let old = Entry::from_raw(cell.swap(entry.ahead(i).raw(), AcqRel));
            demand!(old.as_migrating().is_some(), [old]; "{old:?} is not a migration entry");
        }
        pages
    }

    /// Remove rights or marks from a migration entry.
    pub(crate) fn restrict(
        &mut self,
        slot: Slot,
        restrict: impl FnOnce(Migrating) -> Migrating,
    ) -> Migrating {
        let less = self.read(slot).as_migrating().map(restrict).expect("the page is being moved");
        self.set_absent(slot, super::Absent::Moving(less));
        less
    }
}

impl<M: Machine> Settled<'_, M> {
    /// As [`LockedTables::land`], for writable entries.
    pub(crate) fn land_writable(&mut self, run: &EntryRun, landing: &Landing, writes: Writes) -> FolioPages {
        demand!(run.entry.has(Bits::WRITE), [run = *run]; "{run:?} is read-only");
        let pages = landed(run, landing);
        let allowed = self.admit(run.slot.table, pages, writes);
        demand!(allowed, [page = run.page]; "{page} must be writable to its caller");
        self.means_something_else(run.page, pages.count);
        self.put_landed(run, landing, Bits::WRITE)
    }
}

/// The pages that a run will map.
fn landed(run: &EntryRun, landing: &Landing) -> FolioPages {
    FolioPages { head: landing.to, first: landing.place(run.entry.pfn()), count: run.pages() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_that_is_marked_after_it_was_seen_keeps_its_marks() {
        let seen = Entry::new(Pfn(9), Bits::PRESENT | Bits::USER | Bits::WRITE);
        let marked = seen.with(Bits::YOUNG | Bits::DIRTY);
        let cell = AtomicU64::new(marked.raw());
        assert_eq!(begin_to_wait(&cell, seen), marked);
        assert_eq!(Entry::from_raw(cell.load(Relaxed)), marked.migrating());
        assert_ne!(marked.migrating(), seen.migrating());
    }
}

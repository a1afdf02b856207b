//! Runs: consecutive entries of one table that map consecutive pages of one folio in the same way.
//!
//! Every operation on the entries of a range (unmap, share, protect, clear young bits) handles a run in one step: one
//! visit, one record of what may be stale, one update of counters. A run ends
//! - at the end of its table, of the walked range, or of its folio;
//! - before an entry that is empty or does not map the folio's next page;
//! - before an entry with other rights. Bits that hardware sets (young, dirty) do not end a run; a run has those of
//!   all of its entries.
//!
//! An entry of a single-page folio, a swap entry and a 2 MiB entry are runs of one. With the knob `rmap.batch` off
//! every run has one entry. The contract is that of Linux's `folio_pte_batch`.

use super::{Absent, Bits, Entry, LockedTables, Slot};
use crate::frame::{FolioPages, FrameFlags, FrameTable};
use crate::knobs::Knob;
use crate::machine::Machine;
use crate::primitive::{AtomicU64, Ordering::*};
use crate::tlb::{Cleared, Emptied, Refs, Tightened, UnmapBatch};
use crate::units::*;
use base::demand;

/// Bits in which the entries of a run may differ.
pub(super) const MARKS: Bits = Bits::YOUNG.union(Bits::AGED).union(Bits::DIRTY);

/// Consecutive entries of one table that map consecutive pages of one folio in the same way; or one entry of any kind.
#[derive(Clone, Copy, Debug)]
pub struct EntryRun {
    /// The page of the first entry.
    pub page: Vpn,
    /// The place of the first entry.
    pub slot: Slot,
    /// The first entry as found, with the marks of all.
    pub entry: Entry,
    /// Size that each entry maps: one page or 2 MiB.
    pub order: Order,
    /// Number of entries.
    pub count: u32,
    /// Head of the mapped folio, if already looked up; else [`Pfn::NONE`].
    pub(super) head: Pfn,
}

impl EntryRun {
    /// A run of one entry.
    #[inline(always)]
    pub fn one(page: Vpn, slot: Slot, entry: Entry) -> EntryRun {
        EntryRun { page, slot, entry, order: Order::ZERO, count: 1, head: Pfn::NONE }
    }

    /// Number of pages that the run maps.
    #[inline]
    pub fn pages(&self) -> u64 {
        (self.count as u64) << self.order.0
    }

    /// The page after the run.
    #[inline]
    pub fn end(&self) -> Vpn {
        Vpn(self.page.0 + self.pages())
    }

    /// Whether this is a 2 MiB entry.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.order != Order::ZERO
    }

    /// The pages that a run of present entries maps.
    #[inline]
    pub fn mapped(&self, frames: &FrameTable) -> FolioPages {
        let first = self.entry.pfn();
        let head = if self.head.is_some() { self.head } else { frames.head(first) };
        FolioPages { head, first, count: self.pages() as u32 }
    }

    /// The first `count` entries, and the rest if there is one.
    pub fn split(self, count: u32) -> (EntryRun, Option<EntryRun>) {
        if count >= self.count {
            return (self, None);
        }
        let rest = EntryRun {
            page: Vpn(self.page.0 + count as u64),
            slot: self.slot.ahead(count),
            entry: self.entry.ahead(count),
            count: self.count - count,
            ..self
        };
        (EntryRun { count, ..self }, Some(rest))
    }

    /// A record that entries of `space`, which mapped pages of the folio at `head`, were cleared or lost rights. `old`
    /// is the first one as it was, with the marks of all.
    #[inline(always)]
    pub(super) fn cleared(&self, space: SpaceId, old: Entry, head: Pfn) -> Cleared {
        Cleared {
            space,
            page: self.page,
            pages: self.pages() as u32,
            order: self.order,
            pfn: old.pfn(),
            head,
            usable: old.has(Bits::USER),
            writable: old.has(Bits::WRITE),
            dirty: old.has(Bits::DIRTY),
            never_used: !old.bits().intersects(MARKS),
            dropped: false,
        }
    }
}

/// Entries that were emptied or have lost rights, as they were.
pub trait TakenRun {
    /// The first entry, with all marks that hardware had set in any of them.
    fn entry(&self) -> Entry;
    /// The pages that they mapped.
    fn mapped(&self) -> FolioPages;
}

macro_rules! taken_run {
    ($($type:ty)*) => {$(
        impl TakenRun for $type {
            #[inline(always)]
            fn entry(&self) -> Entry {
                Entry::from_raw(self.raw())
            }

            #[inline(always)]
            fn mapped(&self) -> FolioPages {
                let what = self.what();
                FolioPages { head: what.head, first: what.pfn, count: what.pages }
            }
        }
    )*};
}

taken_run!(Emptied Tightened);

/// Replace the entries of a run; returns the first as it was, with the marks of all.
#[inline]
pub(super) fn exchange(cells: &[AtomicU64], mut new: impl FnMut(u32) -> Entry) -> Entry {
    let mut swap = |i: usize| Entry::from_raw(cells[i].swap(new(i as u32).raw(), AcqRel));
    let first = swap(0);
    if cells.len() == 1 {
        return first;
    }
    let marks = (1..cells.len()).fold(Bits::empty(), |marks, i| marks | (swap(i).bits() & MARKS));
    first.with(marks)
}

impl<'a, M: Machine> LockedTables<'a, M> {
    /// The longest run allowed here: 1 if entries are handled one by one.
    #[inline]
    pub(super) fn longest_run(&self) -> usize {
        if self.mmu.knobs.get(Knob::RmapBatch) == 0 { 1 } else { TABLE_ENTRIES }
    }

    /// Whether a run of one entry maps a page of a larger folio. If it does not, the folio is that page, and its head
    /// is noted.
    #[inline(always)]
    pub(super) fn is_of_large_folio(&self, run: &mut EntryRun) -> bool {
        if !run.entry.is_present() {
            return false;
        }
        run.head = run.entry.pfn();
        self.mmu.frames[run.head].has_any(FrameFlags::HEAD | FrameFlags::TAIL)
    }

    /// How many of `cells` continue the entry `first`, including itself; that entry with the marks of all; and the
    /// folio's head.
    pub(super) fn lengthen(&self, first: Entry, cells: &[AtomicU64]) -> (u32, Entry, Pfn) {
        let frames = &self.mmu.frames;
        let head = frames.head(first.pfn());
        let rest = frames[head].pages() - (first.pfn().0 - head.0);
        let (mut count, mut marked) = (1, first);
        for cell in cells.iter().take(rest as usize).skip(1) {
            let next = Entry::from_raw(cell.load(Acquire));
            if next.without(MARKS) != first.ahead(count).without(MARKS) {
                break;
            }
            marked = marked.with(next.bits() & MARKS);
            count += 1;
        }
        (count, marked, head)
    }

    /// The run that begins with the entry of `page` and ends at `end` at the latest; `None` if there is no table for
    /// it.
    pub(crate) fn find_run(&self, page: Vpn, end: Vpn) -> Option<EntryRun> {
        let mut run = self.find(page)?;
        if !run.is_large() && self.is_of_large_folio(&mut run) {
            let most = (self.longest_run() as u32).min(run.slot.room()).min((end.0 - page.0) as u32);
            let cells = self.cells(run.slot, most);
            (run.count, run.entry, run.head) = self.lengthen(run.entry, cells);
        }
        Some(run)
    }

    /// What was removed from a run that was `old` with the marks of all; must be flushed.
    #[inline(always)]
    pub(super) fn emptied(&self, run: &EntryRun, old: Entry) -> Emptied {
        let head = EntryRun { entry: old, ..*run }.mapped(&self.mmu.frames).head;
        Emptied::new(run.cleared(self.space, old, head), (run.slot.table, run.slot.hold), old.raw())
    }

    /// What a run that was `old` with the marks of all has lost; must be flushed.
    #[inline]
    pub(super) fn tightened(&self, run: &EntryRun, old: Entry) -> Tightened {
        let head = EntryRun { entry: old, ..*run }.mapped(&self.mmu.frames).head;
        Tightened::new(run.cleared(self.space, old, head), old.raw())
    }

    /// Empty a run of present entries; `rest` gives what each entry becomes, by its index in the run.
    #[inline]
    pub fn empty_run(&mut self, run: &EntryRun, mut rest: impl FnMut(u32) -> Absent) -> Emptied {
        demand!(run.entry.is_present(), [run = *run]; "{run:?} must map pages");
        let mut gone = 0;
        let entry = exchange(self.cells(run.slot, run.count), |i| {
            let new = Entry::from(rest(i));
            gone += i64::from(new.is_none());
            new
        });
        self.count_entries(run.slot.table, -gone);
        self.vacated.add(run.page, run.pages());
        self.emptied(run, entry)
    }

    /// Put back what [`LockedTables::empty_run`] removed from this run and left empty in the same hold of the lock.
    #[expect(clippy::disallowed_methods, reason = "CPUs that still use the entries use what is there again")]
    pub(crate) fn restore(&mut self, run: &EntryRun, emptied: Emptied) {
        let (what, place) = (emptied.what(), (emptied.table(), emptied.hold()));
        let same = (what.space, what.page, u64::from(what.pages)) == (self.space, run.page, run.pages());
        demand!(
            same && place == (run.slot.table, run.slot.hold), [run = *run];
            "{run:?} gets back what was emptied elsewhere"
        );
        self.put_run(run.slot, emptied.entry(), run.count);
        emptied.put_back();
    }

    /// Give entries that were emptied in this hold of the lock to a batch. Their references come back; until the batch
    /// is settled, the frames may still be used through these entries.
    #[inline]
    #[expect(clippy::disallowed_methods, reason = "the entries were emptied in this hold of the lock")]
    pub(crate) fn leave_to(&mut self, batch: &mut UnmapBatch, emptied: Emptied) -> Refs {
        assert!(
            emptied.hold() == self.hold.get(),
            "entries must be given to a batch in the hold that emptied them"
        );
        batch.take(self.mmu.host(), &self.mmu.tlb, emptied)
    }

    /// Flush emptied entries. On return no CPU caches them, and their places may be reused.
    pub fn flush(&mut self, emptied: Emptied) -> Refs {
        let (start, end) = emptied.range();
        let refs = self.mmu.tlb.flush_emptied(self.mmu.host(), emptied);
        self.vacated.flushed(start, end);
        refs
    }

    /// Flush entries that lost rights. On return no CPU has more rights than they grant now.
    pub(crate) fn flush_tightened(&mut self, tightened: Tightened) {
        self.mmu.tlb.flush_tightened(self.mmu.host(), tightened);
    }

    /// Write `entry` and its continuation to `count` places. Returns whether a present entry was overwritten.
    #[inline]
    pub(super) fn put_run(&mut self, slot: Slot, entry: Entry, count: u32) -> bool {
        let (mut new, mut present) = (0, false);
        for (i, cell) in (0..).zip(self.cells(slot, count)) {
            let old = Entry::from_raw(cell.swap(entry.ahead(i).raw(), AcqRel));
            new += i64::from(old.is_none());
            present |= old.is_present();
        }
        self.count_entries(slot.table, new);
        present
    }

    /// How many places starting at `slot` are empty, up to `most`.
    #[inline]
    pub(crate) fn empty_from(&self, slot: Slot, most: u32) -> u32 {
        let empty = |cell: &&AtomicU64| Entry::from_raw(cell.load(Acquire)).is_none();
        self.cells(slot, most).iter().take_while(empty).count() as u32
    }

    /// Whether `count` places starting at `slot` hold consecutive swap slots, beginning with `first`.
    pub(crate) fn hold_slots(&self, slot: Slot, first: Absent, count: u32) -> bool {
        let first = Entry::from(first);
        let holds = |(i, cell): (u32, &AtomicU64)| cell.load(Acquire) == first.ahead(i).raw();
        (0..).zip(self.cells(slot, count)).all(holds)
    }

    /// Clear bits of present entries; returns the first as it was, with the marks of all.
    #[inline]
    pub(super) fn clear_bits(&mut self, run: &EntryRun, bits: Bits) -> Entry {
        let mut first = run.entry;
        let mut marks = Bits::empty();
        for (i, cell) in self.cells(run.slot, run.count).iter().enumerate() {
            let old = Entry::from_raw(cell.fetch_and(!bits.bits(), AcqRel));
            if i == 0 {
                first = old;
            }
            marks |= old.bits() & MARKS;
        }
        first.with(marks)
    }

    #[inline]
    pub(super) fn set_bits(&mut self, slot: Slot, count: u32, bits: Bits) {
        for cell in self.cells(slot, count) {
            cell.fetch_or(bits.bits(), AcqRel);
        }
    }
}

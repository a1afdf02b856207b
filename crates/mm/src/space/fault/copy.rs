//! Stores to pages that are mapped read-only: copy on write, reuse, and the first store to a shared page.

use super::{Fault, FaultStop, Served};
use crate::cache::{drop_unmapped, free_swap};
use crate::frame::FrameFlags;
use crate::machine::{Machine, Scope, Work};
use crate::space::unmap::zap_if;
use crate::stat::Stat;
use crate::table::{Absent, Bits, Entry, EntryRun, LockedTables, Resident, Slot, Writes};
use crate::tlb::Refs;
use crate::units::*;

impl<M: Machine> Fault<'_, M> {
    #[inline(never)]
    pub(super) fn write_fault(&self, entry: Entry) -> Result<Served, FaultStop> {
        let _scope = self.core.scope(Scope::DoWpPage);
        if entry.has(Bits::LARGE) && !self.vma.is_shared() {
            return self.write_fault_large(entry);
        }
        if self.vma.is_shared() {
            let (file, index) = self.vma.file_index(self.page).expect("a shared range has a file");
            return self.shared_store_mapped(entry, file, index);
        }
        if self.is_exclusive(entry) {
            return self.reuse(entry);
        }
        if let Some(served) = self.reuse_if_alone(entry)? {
            return Ok(served);
        }
        self.copy(entry)
    }

    /// Is the page known to be this process's alone?
    fn is_exclusive(&self, entry: Entry) -> bool {
        let page = entry.pfn();
        page != self.core.zero
            && self.core.frames[self.core.frames.head(page)].is_anon()
            && self.core.frames[page].has(FrameFlags::EXCLUSIVE)
    }

    /// Let a page that was shared be written where it is, if nobody else can see it any more. `None`: somebody can.
    fn reuse_if_alone(&self, entry: Entry) -> Result<Option<Served>, FaultStop> {
        let page = entry.pfn();
        let head = self.core.frames.head(page);
        let frame = &self.core.frames[head];
        // A larger folio that was shared goes sooner if its pages are copied, be it that nobody else maps this one any
        // more: a page that stays would keep all others.
        let single = head == page && frame.order() == Order::ZERO;
        if page == self.core.zero || !frame.is_anon() || !single || frame.mapcount() != 1 {
            return Ok(None);
        }
        // Under the lock the entry keeps the page for us. It may be gone by now, and its frame be another process's,
        // which is about to share it with a child.
        let mut tables = self.lock();
        let Some(slot) = self.slot_if(&mut tables, entry)? else { return Ok(Some(Served::MINOR)) };
        if !self.become_exclusive(head) {
            return Ok(None);
        }
        self.allow_private_writes(tables, slot);
        Ok(Some(Served::MINOR))
    }

    /// Is the entry of a page, which is there and stays, all that refers to it? Then it is this process's alone.
    fn become_exclusive(&self, page: Pfn) -> bool {
        let frame = &self.core.frames[page];
        if !self.core.try_lock_folio(page) {
            return false;
        }
        free_swap(&self.core, page);
        // Any other reference may be that of somebody who still reads it.
        let alone = frame.refs() == 1 && frame.mapcount() == 1;
        if alone {
            frame.set(FrameFlags::EXCLUSIVE);
        }
        self.core.unlock_folio(page);
        alone
    }

    /// Give the entry the right to write. More rights need no flush elsewhere: a CPU that still holds the old
    /// translation faults and finds the new one.
    pub(super) fn reuse(&self, entry: Entry) -> Result<Served, FaultStop> {
        let mut tables = self.lock();
        if let Some(slot) = self.slot_if(&mut tables, entry)? {
            self.allow_private_writes(tables, slot);
        }
        Ok(Served::MINOR)
    }

    fn allow_private_writes(&self, tables: LockedTables<'_, M>, slot: Slot) {
        tables.settle_at(slot, self.page).allow_writes(slot, self.page, Writes::Private);
        self.core.charge(Work::EntrySet, 1);
        self.count(Stat::Pgreuse);
    }

    /// Give the process a copy of its own.
    fn copy(&self, entry: Entry) -> Result<Served, FaultStop> {
        let old = entry.pfn();
        let held = if old == self.core.zero { None } else { self.hold_if_mapped(entry) };
        if held.is_none() && old != self.core.zero {
            return Ok(Served::MINOR);
        }
        let new = match self.new_anon_page() {
            Ok(new) => new,
            Err(stop) => {
                held.inspect(|&head| self.core.put(head));
                return Err(stop);
            }
        };
        if held.is_some() {
            self.core.copy(new, old, 1);
        } else {
            self.core.zero(new, 1);
        }
        let outcome = self.map_new_anon(new, entry);
        held.inspect(|&head| self.core.put(head));
        outcome
    }

    /// Take a reference of the mapped folio, which then keeps its size, if the entry is still the same. Returns its
    /// head.
    pub(super) fn hold_if_mapped(&self, entry: Entry) -> Option<Pfn> {
        let tables = self.lock();
        let same = tables.find(self.page).is_some_and(|leaf| super::same_page(leaf.entry, entry));
        same.then(|| {
            let head = self.core.frames.head(entry.pfn());
            self.core.frames[head].get(1);
            head
        })
    }

    /// Clear an entry and see to it that no CPU uses it any more, *before* another page takes its place: else one
    /// thread could write to the new page while another still reads the old one. Returns what the entry held, which
    /// the caller drops when the tables are unlocked.
    pub(super) fn take_old(&self, tables: &mut LockedTables<'_, M>, slot: Slot) -> Refs {
        let mmu = &self.core;
        let run = EntryRun::one(self.page, slot, tables.read(slot));
        let emptied = tables.empty_run(&run, |_| Absent::None);
        self.core.charge(Work::EntryClear, 1);
        let pages = emptied.mapped();
        if pages.head == self.core.zero {
            return tables.flush(emptied.of_zeroes(self.core.zero));
        }
        let refs = tables.flush(emptied);
        tables.counts().add(Resident::of(&self.core.frames[pages.head]), -1);
        if self.core.rmap.remove_range(mmu, pages) {
            self.core.lru.defer_split(mmu, pages.head);
        }
        drop_unmapped(&self.core, pages.head);
        refs
    }

    /// The first store to a shared page that is mapped: the file must know that it is dirty.
    fn shared_store_mapped(&self, entry: Entry, file: FileId, index: PageIndex) -> Result<Served, FaultStop> {
        let Some(pfn) = self.hold_if_mapped(entry) else { return Ok(Served::MINOR) };
        self.core.lock_folio(pfn);
        let still_there = self.core.cache.is_page(&self.core, pfn, file, index);
        let mut outcome = Ok(Served::MINOR);
        if still_there {
            self.core.cache.mark_dirty(&self.core, pfn);
            let settled = self.core.tlb.settle_file(&self.core, file);
            let mut tables = self.lock();
            outcome = self.slot_if(&mut tables, entry).map(|slot| {
                if let Some(slot) = slot {
                    let mut tables = tables.settle_at(slot, self.page);
                    tables.allow_writes(slot, self.page, Writes::Shared(settled));
                    self.core.charge(Work::EntrySet, 1);
                    self.count(Stat::Pgreuse);
                }
                Served { dirtied: Some(file), ..Served::MINOR }
            });
        }
        self.core.unlock_folio(pfn);
        self.core.put(pfn);
        if !still_there {
            self.drop_truncated(entry);
        }
        outcome
    }

    /// The page was cut off its file, and whoever cuts will come for this entry when the rest of the file is gone,
    /// which may take long. It goes now, so that the next try meets the file's end instead of this page again.
    fn drop_truncated(&self, entry: Entry) {
        self.drop_entry(entry);
    }

    /// Take the entry away if it is still the same, of whatever size it is.
    pub(super) fn drop_entry(&self, entry: Entry) {
        self.core.gather(self.id, |gather| {
            gather.changes(self.page, Vpn(self.page.0 + 1));
            let one = (self.page, Vpn(self.page.0 + 1));
            zap_if(self.core, self.id, one, false, gather, |run| super::same_page(run.entry, entry));
        });
    }
}

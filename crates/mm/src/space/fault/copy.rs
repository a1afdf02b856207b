//! Stores to pages that are mapped read-only: copy on write, reuse, and the first store to a shared page.

use super::{Fault, FaultStop, Served};
use crate::cache::{drop_unmapped, free_swap};
use crate::frame::FrameFlags;
use crate::machine::{Machine, Scope, Work};
use crate::space::zap::{Zap, zap_if};
use crate::stat::Stat;
use crate::table::{Absent, Bits, Entry, EntryRun, LockedTables, Resident, Slot, Source, TakenRun, Writes};
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
            let (file, index) = self.vma.file_index(self.page).expect("a shared range must have a file");
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

    /// Whether the page is known to belong to this process alone.
    fn is_exclusive(&self, entry: Entry) -> bool {
        let page = entry.pfn();
        page != self.core.zero
            && self.core.frames[self.core.frames.head(page)].is_anon()
            && self.core.frames[page].has(FrameFlags::EXCLUSIVE)
    }

    /// If no other process can see a shared page any more, allow writes in place. `None`: another one may.
    fn reuse_if_alone(&self, entry: Entry) -> Result<Option<Served>, FaultStop> {
        let page = entry.pfn();
        let head = self.core.frames.head(page);
        let frame = &self.core.frames[head];
        // Pages of a large folio that was shared are copied, even if nothing else maps this one: a page that stays
        // would keep the whole folio allocated.
        let single = head == page && frame.order() == Order::ZERO;
        if page == self.core.zero || !frame.is_anon() || !single || frame.mapcount() != 1 {
            return Ok(None);
        }
        // The entry keeps the page only under the page-table lock. Before, the frame may have become another
        // process's, which is about to share it with a child.
        let Some((tables, slot)) = self.lock_if(entry)? else { return Ok(Some(Served::MINOR)) };
        if !self.become_exclusive(head) {
            return Ok(None);
        }
        self.allow_private_writes(tables, slot);
        Ok(Some(Served::MINOR))
    }

    /// Mark a mapped page exclusive if its entry holds the only reference. Returns whether it is.
    fn become_exclusive(&self, page: Pfn) -> bool {
        let frame = &self.core.frames[page];
        if !self.core.try_lock_folio(page) {
            return false;
        }
        free_swap(self.core, page);
        // Any other reference may belong to a reader.
        let alone = frame.refs() == 1 && frame.mapcount() == 1;
        if alone {
            frame.set(FrameFlags::EXCLUSIVE);
        }
        self.core.unlock_folio(page);
        alone
    }

    /// Give the entry the right to write. This needs no flush: a CPU that still holds the old translation faults and
    /// finds the new one.
    pub(super) fn reuse(&self, entry: Entry) -> Result<Served, FaultStop> {
        if let Some((tables, slot)) = self.lock_if(entry)? {
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
            self.core.copy(new, Source::shared(&self.core.frames, old));
        } else {
            self.core.zero_new(new);
        }
        let outcome = self.map_new_anon(new, entry);
        held.inspect(|&head| self.core.put(head));
        outcome
    }

    /// Take a reference to the mapped folio, which keeps its size, if the entry is still the same. Returns its head.
    pub(super) fn hold_if_mapped(&self, entry: Entry) -> Option<Pfn> {
        let tables = self.lock();
        let same = tables.find(self.page).is_some_and(|leaf| super::same_page(leaf.entry, entry));
        same.then(|| {
            let head = self.core.frames.head(entry.pfn());
            self.core.frames[head].get(1);
            head
        })
    }

    /// Clear an entry and flush it *before* another page takes its place: otherwise one thread could write to the new
    /// page while another still reads the old one. Returns the entry's references, which the caller drops after it has
    /// unlocked the tables.
    pub(super) fn take_old(&self, tables: &mut LockedTables<'_, M>, slot: Slot) -> Refs {
        let run = EntryRun::one(self.page, slot, tables.read(slot));
        let emptied = tables.empty_run(&run, |_| Absent::None);
        self.core.charge(Work::EntryClear, 1);
        let pages = emptied.mapped();
        if pages.head == self.core.zero {
            return tables.flush(emptied.of_zeroes(self.core.zero));
        }
        let refs = tables.flush(emptied);
        tables.counts().add(Resident::of(&self.core.frames[pages.head]), -1);
        if self.core.rmap.remove_range(self.core, pages) {
            self.core.lru.defer_split(self.core, pages.head);
        }
        drop_unmapped(self.core, &self.core.frames[pages.head], pages.head);
        refs
    }

    /// The first store to a mapped shared page: the file's folio must be marked dirty.
    fn shared_store_mapped(&self, entry: Entry, file: FileId, index: PageIndex) -> Result<Served, FaultStop> {
        let Some(pfn) = self.hold_if_mapped(entry) else { return Ok(Served::MINOR) };
        self.core.lock_folio(pfn);
        let still_there = self.core.cache.is_page(self.core, pfn, file, index);
        let mut outcome = Ok(Served::MINOR);
        if still_there {
            self.core.cache.mark_dirty(self.core, pfn);
            let settled = self.core.settle_page(pfn);
            outcome = self.lock_if(entry).map(|found| {
                if let Some((tables, slot)) = found {
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
            // Truncate will take the entry of the truncated page away, but only after the rest of the file, which may
            // take long. Without it the next try meets the end of the file instead of this page.
            self.drop_entry(entry);
        }
        outcome
    }

    /// Clear the entry, of any size, if it is still the same.
    pub(super) fn drop_entry(&self, entry: Entry) {
        self.core.gather(self.id, |gather| {
            gather.changes(self.page, Vpn(self.page.0 + 1));
            let one = Zap::new(self.page, Vpn(self.page.0 + 1));
            zap_if(self.core, one, gather, |run| super::same_page(run.entry, entry));
        });
    }
}

//! Stores to pages that are mapped read-only: copy on write, reuse, and the first store to a shared page.

use super::{Fault, FaultStop, Served};
use crate::cache::{drop_unmapped, free_swap};
use crate::frame::FrameFlags;
use crate::machine::{Machine, Scope, Work};
use crate::space::unmap::{resident_kind, zap_if};
use crate::stat::Stat;
use crate::table::{Absent, Bits, Entry, Locked, Run, Slot, Writes};
use crate::tlb::Refs;
use crate::units::*;

impl<M: Machine> Fault<'_, M> {
    #[inline(never)]
    pub(super) fn write_fault(&self, entry: Entry) -> Result<Served, FaultStop> {
        let _scope = self.st.scope(Scope::DoWpPage);
        if entry.has(Bits::LARGE) && !self.vma.is_shared() {
            return self.write_fault_large(entry);
        }
        if self.vma.is_shared() {
            let (file, index) = self.vma.file_index(self.page).expect("a shared range has a file");
            return self.shared_store_mapped(entry, file, index);
        }
        if self.may_reuse(entry) {
            return self.reuse(entry);
        }
        self.copy(entry)
    }

    /// Is this process the only one that can see the page?
    fn may_reuse(&self, entry: Entry) -> bool {
        let page = entry.pfn();
        if page == self.st.zero {
            return false;
        }
        let head = self.st.frames.head(page);
        let frame = &self.st.frames[head];
        if !frame.is_anon() {
            return false;
        }
        if self.st.frames[page].has(FrameFlags::EXCLUSIVE) {
            return true;
        }
        // A larger folio that was shared goes sooner if its pages are copied, be it that nobody else maps this one any
        // more: a page that stays would keep all others.
        let single = head == page && frame.order() == Order::ZERO;
        if !single || frame.mapcount() != 1 || !self.st.try_lock_folio(head) {
            return false;
        }
        free_swap(self.st.memory(), head);
        // One reference is the entry's; any other may be somebody who still reads it.
        let alone = frame.refs() == 1 && frame.mapcount() == 1;
        if alone {
            frame.set(FrameFlags::EXCLUSIVE);
        }
        self.st.unlock_folio(head);
        alone
    }

    /// Give the entry the right to write. More rights need no flush elsewhere: a CPU that still holds the old
    /// translation faults and finds the new one.
    pub(super) fn reuse(&self, entry: Entry) -> Result<Served, FaultStop> {
        let mut tables = self.lock();
        if let Some(slot) = self.slot_if(&mut tables, entry)? {
            let mut tables = tables.settle_at(slot, self.page);
            tables.allow_writes(slot, self.page, Writes::Private);
            self.st.charge(Work::EntrySet, 1);
            self.count(Stat::Pgreuse);
        }
        Ok(Served::MINOR)
    }

    /// Give the process a copy of its own.
    fn copy(&self, entry: Entry) -> Result<Served, FaultStop> {
        let old = entry.pfn();
        let held = if old == self.st.zero { None } else { self.hold_if_mapped(entry) };
        if held.is_none() && old != self.st.zero {
            return Ok(Served::MINOR);
        }
        let new = match self.new_anon_page() {
            Ok(new) => new,
            Err(stop) => {
                held.inspect(|&head| self.st.put(head));
                return Err(stop);
            }
        };
        if held.is_some() {
            self.st.copy(new, old, 1);
        } else {
            self.st.zero(new, 1);
        }
        let outcome = self.map_new_anon(new, entry);
        held.inspect(|&head| self.st.put(head));
        outcome
    }

    /// Take a reference of the mapped folio, which then keeps its size, if the entry is still the same. Returns its
    /// head.
    pub(super) fn hold_if_mapped(&self, entry: Entry) -> Option<Pfn> {
        let tables = self.lock();
        let same = tables.find(self.page).is_some_and(|leaf| super::same_page(leaf.entry, entry));
        same.then(|| {
            let head = self.st.frames.head(entry.pfn());
            self.st.frames[head].get(1);
            head
        })
    }

    /// Clear an entry and see to it that no CPU uses it any more, *before* another page takes its place: else one
    /// thread could write to the new page while another still reads the old one. Returns what the entry held, which
    /// the caller drops when the tables are unlocked.
    pub(super) fn take_old(&self, tables: &mut Locked<'_, M>, slot: Slot) -> Refs {
        let base = self.st.memory().ground();
        let run = Run::one(self.page, slot, tables.read(slot));
        let emptied = tables.empty_run(&run, |_| Absent::None);
        self.st.charge(Work::EntryClear, 1);
        let pages = emptied.mapped();
        if pages.head == self.st.zero {
            return tables.flush(emptied.of_zeroes(self.st.zero));
        }
        let refs = tables.flush(emptied);
        tables.counts().add(resident_kind(self.st, pages.head), -1);
        if self.st.rmap.remove_range(base, pages) {
            self.st.lru.defer_split(base, pages.head);
        }
        drop_unmapped(self.st.memory(), pages.head);
        refs
    }

    /// The first store to a shared page that is mapped: the file must know that it is dirty.
    fn shared_store_mapped(&self, entry: Entry, file: FileId, index: PageIndex) -> Result<Served, FaultStop> {
        let Some(pfn) = self.hold_if_mapped(entry) else { return Ok(Served::MINOR) };
        self.st.lock_folio(pfn);
        let still_there = self.st.cache.is_page(self.st.memory(), pfn, file, index);
        let mut outcome = Ok(Served::MINOR);
        if still_there {
            self.st.cache.mark_dirty(self.st.memory(), pfn);
            let settled = self.st.tlb.settle_file(self.st.memory().ground(), file);
            let mut tables = self.lock();
            outcome = self.slot_if(&mut tables, entry).map(|slot| {
                if let Some(slot) = slot {
                    let mut tables = tables.settle_at(slot, self.page);
                    tables.allow_writes(slot, self.page, Writes::Shared(settled));
                    self.st.charge(Work::EntrySet, 1);
                    self.count(Stat::Pgreuse);
                }
                Served { dirtied: Some(file), ..Served::MINOR }
            });
        }
        self.st.unlock_folio(pfn);
        self.st.put(pfn);
        if !still_there {
            self.drop_cut_off(entry);
        }
        outcome
    }

    /// The page was cut off its file, and whoever cuts will come for this entry when the rest of the file is gone,
    /// which may take long. It goes now, so that the next try meets the file's end instead of this page again.
    fn drop_cut_off(&self, entry: Entry) {
        self.drop_entry(entry);
    }

    /// Take the entry away if it is still the same, of whatever size it is.
    pub(super) fn drop_entry(&self, entry: Entry) {
        self.st.gather(self.id, |gather| {
            gather.changes(self.page, Vpn(self.page.0 + 1));
            let one = (self.page, Vpn(self.page.0 + 1));
            zap_if(self.st, self.id, one, false, gather, |run| super::same_page(run.entry, entry));
        });
    }
}

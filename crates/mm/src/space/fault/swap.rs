//! Faults on pages that are in swap.

use super::unshared::SwapRoute;
use super::{Fault, FaultStop, Served};
use crate::api::Prot;
use crate::cache::{
    Nearby, SwapinStep, drop_swap_entry, page_of_slot, remove_from_swap_cache, swapin, swapin_near,
};
use crate::frame::{FolioPages, FrameFlags, Owner};
use crate::knobs::{FaultForm, Knob};
use crate::machine::{Machine, Scope, Work};
use crate::space::VmaFlags;
use crate::table::{Absent, Bits, Entry, LockedTables, Resident, Shown, Slot, Writes};
use crate::units::*;

/// log2 of the most pages that are read ahead by address.
const MAX_CLUSTER: u64 = 5;

/// Pages of a folio that are mapped together, with the slot and address of the first.
struct SwapRun {
    at: Slot,
    page: Vpn,
    pages: FolioPages,
}

impl<M: Machine> Fault<'_, M> {
    /// Swap a page in. `exclusive`: no other process has an entry for the slot.
    #[inline(never)]
    pub(super) fn swap_fault(
        &self,
        entry: Entry,
        slot: SwapSlot,
        exclusive: bool,
    ) -> Result<Served, FaultStop> {
        let _scope = self.core.scope(Scope::DoSwapPage);
        // Another thread may have served the fault and freed the slot: take a reference to it under the lock.
        match self.swap_route(entry, slot) {
            SwapRoute::Cache => {}
            SwapRoute::Unshared => return self.swap_in_unshared(entry, slot),
            SwapRoute::Retry => return Ok(Served::MINOR),
        }
        let page = if self.core.knobs.get(Knob::SwapVmaRaEnabled) == 0 {
            swapin(self.core, slot, self.gfp)
        } else {
            swapin_near(self.core, slot, self.gfp, |step| self.nearby(step))
        };
        let outcome = match page {
            Ok(page) => {
                if page.began_again {
                    self.count_again();
                }
                self.core.lock_folio(page.folio);
                let outcome = self.map_swapped(page.folio, entry, slot, exclusive);
                self.core.unlock_folio(page.folio);
                if outcome != Ok(true) {
                    self.core.put(page.folio);
                }
                outcome.map(|_| Served::from_major(page.major))
            }
            Err(error) => Err(error.into()),
        };
        #[expect(clippy::disallowed_methods, reason = "it is the reference that this fault took")]
        drop_swap_entry(self.core, slot);
        outcome
    }

    /// Swap slots of neighbouring pages that are worth reading with this one. Slots are in the order of reclaim, which
    /// predicts use less well than addresses do.
    fn nearby(&self, step: SwapinStep) -> Nearby {
        let most = 1 << self.core.knobs.get(Knob::PageCluster).min(MAX_CLUSTER);
        if most == 1 && !matches!(step, SwapinStep::Found { .. }) {
            return Nearby::new();
        }
        let window = self.space.vmas.lock().change_readahead(self.vma.start, |state| match step {
            SwapinStep::Found { ahead } => {
                state.found(self.page, ahead);
                None
            }
            SwapinStep::Plan => state.window(self.page, most),
            SwapinStep::Read => {
                state.read(self.page, most);
                None
            }
        });
        let Some(window) = window else { return Nearby::new() };
        let table = self.page.0 & !(TABLE_ENTRIES as u64 - 1);
        let first = window.start.max(self.vma.start.0).max(table);
        let end = window.end.min(self.vma.end().0).min(table + TABLE_ENTRIES as u64);
        self.core.charge(Work::EntryScan, end.saturating_sub(first));
        let slots = (first..end).filter_map(|page| self.tree.look(self.core, Vpn(page)).as_swap());
        slots.map(|(slot, _)| slot).collect()
    }

    /// A load brought a shared page back. Serve the store in the same fault: reclaim could take the page before the
    /// next fault, again and again.
    pub(super) fn store_after_swap(&self, served: Served) -> Result<Served, FaultStop> {
        let entry = self.tree.look(self.core, self.page);
        if !entry.is_present() || entry.has(Bits::WRITE) {
            return Ok(served);
        }
        Ok(Served { done: served.done, ..self.write_fault(entry)? })
    }

    /// Whether the entry of an exclusive page gives the right to write. A load gives it, too (since Linux 6.11), unless
    /// the policy defers flushes, because the flush of a writable entry cannot be deferred.
    pub(super) fn swaps_in_writable(&self) -> bool {
        let knobs = &self.core.knobs;
        let gives = self.is_store() || !knobs.flush_policy().defers() && knobs.fault_form() != FaultForm::V61;
        gives && self.vma.prot.contains(Prot::WRITE)
    }

    /// Whether this fault alone uses the locked folio's content. Then a store needs no copy, even if others once had
    /// entries for the slot. The page-table lock keeps fork from making another entry.
    fn is_alone(&self, folio: Pfn) -> bool {
        let frame = &self.core.frames[folio];
        // Two uses of the slot: the entry's and the fault's. Two references: the swap cache's and the fault's.
        frame.order() == Order::ZERO
            && frame.mapcount() == 0
            && frame.refs() == 2
            && !frame.has(FrameFlags::WRITEBACK)
            && self.core.swap.entries_of_run(frame.swap_slot(), 1) == 2
    }

    /// Map the locked folio that holds the slot's content, whole if possible. Returns whether the entries took the
    /// caller's reference.
    fn map_swapped(
        &self,
        folio: Pfn,
        entry: Entry,
        slot: SwapSlot,
        exclusive: bool,
    ) -> Result<bool, FaultStop> {
        let frame = &self.core.frames[folio];
        let Some(pfn) = page_of_slot(self.core, folio, slot) else { return Ok(false) };
        let set = self.set_for(exclusive);
        let Some((mut tables, at)) = self.lock_if(entry)? else { return Ok(false) };
        let finds_out = self.is_store() && self.core.knobs.fault_form() != FaultForm::V73;
        let exclusive = exclusive || finds_out && self.is_alone(folio);
        let writable = exclusive && self.swaps_in_writable();
        if frame.owner() == Owner::None {
            frame.set_owner(Owner::Anon(set), self.vma.anon_index(self.page));
        }
        let SwapRun { at, page, pages } = match self.whole_swapped_folio(&tables, folio, pfn, exclusive) {
            Some(whole) => whole,
            None => SwapRun { at, page: self.page, pages: FolioPages::one(&self.core.frames, pfn) },
        };
        if exclusive {
            pages.iter().for_each(|pfn| _ = self.core.frames[pfn].set(FrameFlags::EXCLUSIVE));
        }
        tables.counts().add(Resident::Swap, -i64::from(pages.count));
        if pages.count > 1 {
            frame.get(pages.count - 1);
        }
        if writable {
            let mut tables = tables.settle_at(at, page);
            for (offset, part) in self.steps(pages) {
                let page = Vpn(page.0 + u64::from(offset));
                self.install_at(&mut tables, at.ahead(offset), page, part, Writes::Private);
            }
        } else {
            for (offset, part) in self.steps(pages) {
                let place = (at.ahead(offset), Vpn(page.0 + u64::from(offset)));
                self.install_unchanged(&mut tables, place, part, Shown::in_swap(), self.rights(false));
            }
        }
        // Drop the entries' uses of the slots; the caller still has its own.
        let first = SwapSlot(frame.swap_slot().0 + pages.offset());
        #[expect(clippy::disallowed_methods, reason = "their entries map the pages now")]
        self.core.swap.free_entries(self.core, first, pages.count);
        let stored = writable && self.is_store();
        if stored || self.vma.flags.contains(VmaFlags::LOCKED) || self.core.swap.is_half_full() {
            self.drop_slots(folio);
        }
        Ok(true)
    }

    /// The whole large folio, if the entries beside the fault's hold its slots in order, in one table, and with the
    /// same exclusiveness.
    fn whole_swapped_folio(
        &self,
        tables: &LockedTables<'_, M>,
        folio: Pfn,
        faulted: Pfn,
        exclusive: bool,
    ) -> Option<SwapRun> {
        let shown = FolioPages { head: folio, first: faulted, count: 1 };
        let (page, pages) = self.whole_folio(self.page, shown)?;
        let at = tables.find(page)?.slot;
        self.core.charge(Work::EntryScan, u64::from(pages.count));
        let first = Absent::Swap { slot: self.core.frames[folio].swap_slot(), exclusive };
        tables.hold_slots(at, first, pages.count).then_some(SwapRun { at, page, pages })
    }

    /// The set that owns a page that was swapped in. If other processes may map it, this is the oldest set, with which
    /// all of them are registered.
    fn set_for(&self, exclusive: bool) -> AnonId {
        let own = self.anon_set();
        if exclusive {
            return own;
        }
        let vmas = self.space.vmas.lock();
        vmas.range_of(self.page).and_then(|vma| vma.sets.first().copied()).unwrap_or(own)
    }

    /// Free the slots of the folio, if no entry needs any of them: a page is about to differ from its slot, or slots
    /// are scarce.
    fn drop_slots(&self, folio: Pfn) {
        let frame = &self.core.frames[folio];
        // One use is the caller's own.
        let needed = self.core.swap.entries_of_run(frame.swap_slot(), frame.pages()) > 1;
        if !needed && !frame.has(FrameFlags::WRITEBACK) {
            remove_from_swap_cache(self.core, folio, None);
            frame.set(FrameFlags::DIRTY);
        }
    }
}

//! Faults on pages that are in zram and belong to one entry alone: they come back without the swap cache.
//!
//! Where large folios are enabled, a whole one comes back if its slots and entries are still together.
//!
//! Source: `do_swap_page` and `alloc_swap_folio` in mm/memory.c of Linux 6.12, where swap devices with
//! SWP_SYNCHRONOUS_IO are handled.

use super::{Fault, FaultStop, Served};
use crate::api::FaultError;
use crate::cache::read_unshared;
use crate::frame::{FolioPages, FrameFlags, Owner};
use crate::knobs::Knob;
use crate::machine::{Machine, WaitKey, Work};
use crate::memory::Worth;
use crate::space::VmaFlags;
use crate::swap::SlotUse;
use crate::table::{Absent, Entry, LockedTables, Resident, Slot, Writes};
use crate::units::*;

/// How long a task sleeps that finds a slot in another task's hands: a tick at 250 Hz, CONFIG_HZ of Debian's kernels.
const TICK: Nanos = 4_000_000;

/// Pages that come back at once.
#[derive(Clone, Copy, Debug)]
struct Returning {
    /// The first of them.
    page: Vpn,
    /// Its slot; those of the others follow.
    slot: SwapSlot,
    count: u32,
}

/// How a swap fault goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SwapRoute {
    /// Through the swap cache; the fault holds a reference to the slot.
    Cache,
    /// Without it.
    Unshared,
    /// Another task has been faster, or will be: the access is tried again.
    Retry,
}

impl<M: Machine> Fault<'_, M> {
    /// Choose how to swap in, if the entry is still as it was.
    pub(super) fn swap_route(&self, entry: Entry, slot: SwapSlot) -> SwapRoute {
        let in_memory = self.core.zram_of(slot).is_some();
        let tables = self.lock();
        let now = tables.find(self.page).map_or(Entry::NONE, |leaf| leaf.entry);
        if now != entry {
            return SwapRoute::Retry;
        }
        let slot_use = if in_memory { self.core.swap.slot_use(slot) } else { SlotUse::Shared };
        if slot_use == SlotUse::Shared {
            self.core.swap.dup(slot);
        }
        drop(tables);
        match slot_use {
            SlotUse::Shared => SwapRoute::Cache,
            SlotUse::Single => SwapRoute::Unshared,
            SlotUse::Held => {
                let ticket = self.core.machine.ticket(WaitKey::Timer);
                self.core.machine.wait(ticket, Some(self.core.machine.now() + TICK));
                SwapRoute::Retry
            }
        }
    }

    /// Swap a page in without the swap cache, with others around it if all are still as one large folio was.
    pub(super) fn swap_in_unshared(&self, entry: Entry, slot: SwapSlot) -> Result<Served, FaultStop> {
        let core = self.core;
        let (back, pfn) = match self.large_folio_back(entry)? {
            Some(large) => large,
            None => {
                let one = Returning { page: self.page, slot, count: 1 };
                (one, core.new_folio(Order::ZERO, self.gfp)?)
            }
        };
        // From here on no other task brings the pages back, or gives the slots another content.
        let prepare = || {
            let tables = self.lock();
            let place = self.place_of(&tables, back, entry);
            let held = place.and_then(|_| core.swap.cache_prepare(back.slot, back.count));
            drop(tables);
            held
        };
        let Some(shadow) = prepare() else {
            core.put(pfn);
            return Ok(Served::MINOR);
        };
        core.note_swap_nodes();
        let mapped = match read_unshared(core, back.slot, pfn, shadow, self.gfp) {
            true => self.map_unshared(pfn, entry, back),
            false => Err(FaultStop::Error(FaultError::Io)),
        };
        let maps = mapped == Ok(true);
        // A slot is free if its entry is gone.
        for page in 0..back.count {
            core.remove_from_swap(SwapSlot(back.slot.0 + page), shadow.filter(|_| !maps && page == 0));
        }
        core.note_swap_nodes();
        if !maps {
            core.put(pfn);
        }
        mapped.map(Served::from_major)
    }

    /// A new folio, with undefined content, for the largest range around the fault that can come back at once. `None`:
    /// the page comes back alone.
    fn large_folio_back(&self, entry: Entry) -> Result<Option<(Returning, Pfn)>, FaultStop> {
        let sizes = self.core.knobs.anon_sizes();
        if sizes.is_empty()
            || self.vma.flags.contains(VmaFlags::NOHUGEPAGE)
            || self.core.knobs.get(Knob::ZswapEnabled) != 0
        {
            return Ok(None);
        }
        let asked = self.vma.flags.contains(VmaFlags::HUGEPAGE);
        let orders = sizes.orders(asked).filter(|&order| order < PAGEBLOCK_ORDER);
        for order in orders {
            let Some(back) = self.returning(order, entry) else { continue };
            let worth = Worth::of_anon(&self.core.knobs, asked);
            if !self.core.find_block(order, self.gfp, worth)? {
                continue;
            }
            let Ok(pfn) = self.core.new_folio(order, self.gfp) else { continue };
            let owner = Owner::Anon(self.anon_set());
            self.core.make_large_anon(pfn, owner, self.vma.anon_index(back.page));
            return Ok(Some((back, pfn)));
        }
        Ok(None)
    }

    /// The aligned range of a size around the fault, if its pages are in consecutive slots of one zram device, aligned
    /// as they are, each for this space alone, and all zeroes or none.
    fn returning(&self, order: Order, entry: Entry) -> Option<Returning> {
        let (slot, _) = entry.as_swap()?;
        let (zram, number) = self.core.zram_of(slot)?;
        let (page, count) = (self.start_of(order), order.frames());
        let inside = (self.page.0 - page.0) as u32;
        let in_range = self.vma.start <= page && page.0 + u64::from(count) <= self.vma.end().0;
        if zram.has_backing() || !in_range || number % count != inside {
            return None;
        }
        let back = Returning { page, slot: SwapSlot(slot.0 - inside), count };
        self.core.charge(Work::EntryScan, u64::from(count));
        self.place_of(&self.lock(), back, entry)?;
        let swap = &self.core.swap;
        let zeroes = swap.has_zeroes(back.slot);
        let alike = |slot| swap.slot_use(slot) == SlotUse::Single && swap.has_zeroes(slot) == zeroes;
        (0..count).all(|page| alike(SwapSlot(back.slot.0 + page))).then_some(back)
    }

    /// Where the first entry is, if the fault's is as it was and the others go on from there.
    fn place_of(&self, tables: &LockedTables<'_, M>, back: Returning, entry: Entry) -> Option<Slot> {
        if tables.find(self.page)?.entry != entry {
            return None;
        }
        let (_, exclusive) = entry.as_swap()?;
        let first = Absent::Swap { slot: back.slot, exclusive };
        let at = tables.find(back.page).filter(|leaf| !leaf.is_large())?.slot;
        (back.count == 1 || tables.hold_slots(at, first, back.count)).then_some(at)
    }

    /// Map the folio with the slots' content, if the entries are still the slots'. Returns whether the entries took the
    /// caller's reference, and gave the slots up.
    fn map_unshared(&self, pfn: Pfn, entry: Entry, back: Returning) -> Result<bool, FaultStop> {
        let frame = &self.core.frames[pfn];
        let set = self.anon_set();
        let Some((tables, _)) = self.lock_if(entry)? else { return Ok(false) };
        let Some(at) = self.place_of(&tables, back, entry) else { return Ok(false) };
        if back.count == 1 {
            frame.set_owner(Owner::Anon(set), self.vma.anon_index(self.page));
            frame.set(FrameFlags::EXCLUSIVE);
        } else {
            frame.get(back.count - 1);
        }
        tables.counts().add(Resident::Swap, -i64::from(back.count));
        let writes = || if self.swaps_in_writable() { Writes::Private } else { Writes::No };
        let mut tables = tables.settle_at(at, back.page);
        for (offset, part) in self.steps(FolioPages::all(&self.core.frames, pfn)) {
            let page = Vpn(back.page.0 + u64::from(offset));
            self.install_at(&mut tables, at.ahead(offset), page, part, writes());
        }
        // Once the tables are unlocked, another task may unmap and free it.
        self.core.lru.add(self.core, Some(pfn), self.gfp.is_faulted());
        #[expect(clippy::disallowed_methods, reason = "their entries map the pages now")]
        self.core.swap.free_entries(self.core, back.slot, back.count);
        Ok(true)
    }
}
